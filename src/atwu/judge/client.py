"""A chat model behind an OpenAI-compatible server: a hosted one, vLLM, llama.cpp, `transformers serve`.

The openai package sends and reads. Retrying is done here instead: one budget also covers replies that arrive but cannot
be used, a rate limit holds back every worker, and a wait ends when the run is stopped. The key comes from the
environment and is in nothing that is logged, raised or returned.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from atwu._extras import require
from atwu.judge.answers import Failure, read_completion, read_status, refused_parameter
from atwu.judge.chat import ChatRequest, Reply
from atwu.judge.endpoint import find_endpoint

logger = logging.getLogger(__name__)

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 8.0
_JITTER = random.Random()
_TRANSPORT = ("openai", "httpx", "httpx2", "httpcore", "httpcore2")


class ChatServerError(ConnectionError):
    """Something would fail every request alike, so the rest was not tried."""


class _Run:
    """What the workers of one call share: whether to stop, and until when nobody sends."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._until = 0.0
        self._lock = threading.Lock()

    def hold_all(self, seconds: float) -> None:
        with self._lock:
            self._until = max(self._until, time.monotonic() + seconds)

    def wait(self, seconds: float) -> bool:
        """Sleep, and on while everybody is held back; False when the run was stopped."""
        until = time.monotonic() + seconds
        while not self.stopped.is_set():
            left = max(until, self._until) - time.monotonic()
            if left <= 0:
                return True
            self.stopped.wait(left)
        return False


class OpenAIChat:
    """Answers chats through a server that speaks the OpenAI chat protocol; a `ChatModel`."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        timeout: float = 60,
        max_retries: int = 5,
    ) -> None:
        """Set up a client; nothing is sent yet.

        Args:
            model: the server's name of the model.
            base_url: address up to and including `/v1`; None takes `OPENAI_BASE_URL` or the hosted API. A user and
                password, or a query, in it are sent but never shown.
            api_key_env: environment variable that holds the key. Only the hosted API must have one.
            concurrency: most requests in flight at once.
            timeout: seconds of silence after which a try has failed.
            max_retries: tries after the first, with growing pauses, for rate limits, timeouts, server errors, cut
                connections and unusable replies.

        Raises:
            ValueError: a setting out of range, an address that is none, or no usable key for the hosted API.
            ImportError: the openai package is missing.
        """
        if not model:
            raise ValueError("model is empty; name a model of the server.")
        if concurrency < 1 or max_retries < 0 or timeout <= 0:
            raise ValueError(
                "concurrency must be at least 1, max_retries 0 or more and timeout above 0, got "
                f"{concurrency}, {max_retries} and {timeout}."
            )
        self._endpoint = find_endpoint(base_url, api_key_env)
        self._model, self._concurrency = model, concurrency
        self._timeout, self._max_retries = timeout, max_retries
        self._refused: frozenset[str] = frozenset()
        self._openai = require("openai", extra="judge")
        self._client = self._openai.OpenAI(
            api_key=self._endpoint.key or "none",
            base_url=self._endpoint.url,
            default_headers=self._endpoint.headers,
            default_query=self._endpoint.query,
            timeout=timeout,
            max_retries=0,
        )

    def __repr__(self) -> str:
        return f"OpenAIChat({self._model!r}, base_url={self._endpoint.url!r})"

    @property
    def identity(self) -> Mapping[str, Any]:
        """Kind, model and address, the latter without user, password and query."""
        return {"kind": "openai", "model": self._model, "base_url": self._endpoint.url}

    def complete(self, requests: Sequence[ChatRequest], on_reply: Callable[[int, Reply], None]) -> None:
        """Answer all requests, in any order, several at a time.

        An interrupt or an exception of `on_reply` starts no more requests; those in flight have been paid for, so their
        replies are still handed over before it is raised again.

        Args:
            requests: the conversations.
            on_reply: called once per request with its index and reply, in the calling thread, as soon as it is there.

        Raises:
            ChatServerError: no request can succeed: refused key, unknown model, no server, no quota left.
        """
        run = _Run()
        todo = iter(enumerate(requests))
        pending: dict[Future[Reply | None], int] = {}
        with _quiet_transport(), ThreadPoolExecutor(self._concurrency, thread_name_prefix="chat") as pool:
            try:
                while True:
                    for index, request in itertools.islice(todo, self._concurrency - len(pending)):
                        pending[pool.submit(self._ask, request, run)] = index
                    if not pending:
                        return
                    for future in wait(pending, return_when=FIRST_COMPLETED).done:
                        index = pending.pop(future)
                        if (reply := future.result()) is not None:
                            on_reply(index, reply)
            except BaseException:
                run.stopped.set()
                for future in as_completed(pending):
                    with suppress(Exception):
                        if (reply := future.result()) is not None:
                            on_reply(pending[future], reply)
                raise

    def _ask(self, request: ChatRequest, run: _Run) -> Reply | None:
        """The reply to one request, after as many tries as it takes; None when the run was stopped before."""
        failure = Failure("not tried")
        delay, prompt_tokens, completion_tokens = 0.0, 0, 0
        for tries in range(1, self._max_retries + 2):
            if not run.wait(delay):
                return None
            outcome = self._try(request)
            prompt_tokens += outcome.prompt_tokens
            completion_tokens += outcome.completion_tokens
            if isinstance(outcome, Reply):
                return replace(outcome, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
            failure = outcome
            if failure.fatal:
                raise ChatServerError(failure.words)
            if not failure.again:
                break
            delay = failure.wait or min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (tries - 1))
            if failure.crowded:
                run.hold_all(delay)
            delay *= _JITTER.uniform(1, 1.25)
        if failure.unreachable:
            raise ChatServerError(f"no connection to {self._endpoint.url} in {tries} tries; is the server running?")
        words = failure.words + (f" (tried {tries} times)" if tries > 1 else "")
        return Reply(error=words, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)

    def _try(self, request: ChatRequest) -> Reply | Failure:
        """Send once, or again without the parameters that this server refuses.

        Failures are returned rather than raised, so that no exception holds the library's own, and with it the headers.
        """
        while True:
            body = self._body(request)
            try:
                return read_completion(self._client.chat.completions.create(**body))
            except self._openai.APIStatusError as error:
                if not self._adapt(error, body):
                    return read_status(error, self._endpoint, self._model)
            except self._openai.APIConnectionError as error:
                cause = type(error.__cause__).__name__
                if cause in ("ConnectError", "ConnectTimeout"):
                    return Failure("no connection", unreachable=True)
                if isinstance(error, self._openai.APITimeoutError):
                    return Failure(f"no reply within {self._timeout:g} seconds")
                return Failure(f"the connection was cut ({cause})")
            except (json.JSONDecodeError, UnicodeDecodeError, self._openai.APIResponseValidationError):
                return Failure("the reply is not valid JSON")
            except (ValueError, self._openai.OpenAIError) as error:
                return Failure(f"the request cannot be sent ({type(error).__name__})", again=False)

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
def _quiet_transport() -> Iterator[None]:
    """Keep what the transport notes about requests (addresses, headers, in older versions bodies) out of all logs."""

    def only_warnings(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    names = [name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] in _TRANSPORT]
    loggers = [logging.getLogger(name) for name in names]
    for each in loggers:
        each.addFilter(only_warnings)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(only_warnings)
