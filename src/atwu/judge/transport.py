"""How one request goes to an OpenAI-compatible server and what comes of it; the openai package does the sending.

Whatever goes wrong is returned as a `Failure`, never raised, so that no exception holds the library's own, and with it
the headers.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from atwu._extras import require
from atwu.judge.answers import Answer, Failure, read_completion, read_status, refused_parameter
from atwu.judge.chat import ChatRequest
from atwu.judge.endpoint import Endpoint

logger = logging.getLogger(__name__)

_PACKAGES = ("openai", "httpx", "httpx2", "httpcore", "httpcore2")


class Transport:
    """Sends requests for one model of one server; several threads may use it at once."""

    def __init__(self, model: str, endpoint: Endpoint, timeout: float) -> None:
        self._model, self._endpoint, self._timeout = model, endpoint, timeout
        self._refused: frozenset[str] = frozenset()
        self._openai = require("openai", extra="judge")
        self._client = self._openai.OpenAI(
            api_key=endpoint.key or "none",
            base_url=endpoint.url,
            default_headers=endpoint.headers,
            default_query=endpoint.query,
            timeout=timeout,
            max_retries=0,
            # A key must not follow a redirect.
            http_client=self._openai.DefaultHttpxClient(timeout=timeout, follow_redirects=False),
        )

    def send(self, request: ChatRequest) -> Answer | Failure:
        """Send once, or again without the parameters that this server refuses."""
        deadline = time.monotonic() + self._timeout
        late = Failure(f"no reply within {self._timeout:g} seconds", billed=True)
        while True:
            body = self._body(request)
            try:
                content = b""
                with self._client.chat.completions.with_streaming_response.create(**body) as response:
                    for part in response.iter_bytes():
                        content += part
                        if time.monotonic() > deadline:
                            return late
            except self._openai.APIStatusError as error:
                if not self._adapt(error, body):
                    return read_status(error, self._endpoint, self._model)
                continue
            except (ValueError, TypeError) as error:
                return Failure(f"the request cannot be sent ({type(error).__name__})", again=False)
            except Exception as error:  # the transport's own, of whichever package the library uses
                wrapped = isinstance(error, self._openai.APIConnectionError)
                cause = type(error.__cause__ if wrapped else error).__name__
                if cause in ("ConnectError", "ConnectTimeout"):
                    return Failure("no connection", unreachable=True)
                return late if "Timeout" in cause else Failure(f"the connection was cut ({cause})", billed=True)
            return self._read(content, body)

    def _read(self, content: bytes, sent: Mapping[str, Any]) -> Answer | Failure:
        try:
            found = read_completion(json.loads(content), self._model, self._endpoint)
        except (ValueError, RecursionError):
            return Failure("the reply is not valid JSON", billed=True)
        left_out = [name for name in ("temperature", "seed") if name not in sent]
        if isinstance(found, Answer) and left_out:
            return replace(found, served={**found.served, "left_out": left_out})
        return found

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        settings = {"max_tokens": request.max_tokens, "temperature": request.temperature, "seed": request.seed}
        kept: dict[str, Any] = {name: value for name, value in settings.items() if name not in self._refused}
        if "max_tokens" not in kept:
            kept["max_completion_tokens"] = request.max_tokens
        turns = [{"role": message.role, "content": message.content} for message in request.messages]
        return {"model": self._model, "messages": turns, **kept}

    def _adapt(self, error: Any, sent: Mapping[str, Any]) -> bool:
        """Stop sending a parameter that the server refuses; False when it is something else that it minds."""
        name = refused_parameter(error, self._endpoint, sent)
        if name is None:
            return False
        if name not in self._refused and name != "max_tokens":
            logger.warning("%s does not take %s, which is left out from now on; replies may vary.", self._model, name)
        self._refused |= {name}
        return True


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what the transport notes about requests (addresses, headers, in older versions bodies) out of all logs."""

    def only_warnings(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    names = [name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] in _PACKAGES]
    loggers = [logging.getLogger(name) for name in names]
    for each in loggers:
        each.addFilter(only_warnings)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(only_warnings)
