"""A chat model behind an OpenAI-compatible server: a hosted API, vLLM, llama.cpp, `transformers serve`.

The openai package sends each call, repeats it where that may help, and waits as long as the server asks. Done here is what
it leaves to its caller: how many calls are in flight, what an interrupt does to them, and which parameters a server does
not know. No exception keeps one of the package's own, which holds the API key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tqdm.auto import tqdm

from atwu._command import deferred
from atwu._extras import require
from atwu.data.render import merged_system
from atwu.judge.chat_model import CUT_OFF, ChatRequest, OnReply, Reply

logger = logging.getLogger(__name__)

HOSTED = "https://api.openai.com/v1"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOPELESS = 20
"""Consecutive failed requests after which no more are sent."""
_NO_SUCH_MODEL = re.compile(r"not exist|not found|unknown|invalid|not a valid|no such|pinned", re.IGNORECASE)
"""How servers that answer 400 or 422 to an unknown model say so, beside its name."""
_OPTIONAL = {
    "response_format": re.compile(r"response_format|json_schema|structured|guided", re.IGNORECASE),
    "max_tokens": re.compile(r"max_completion_tokens"),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "seed": re.compile(r"\bseed\b", re.IGNORECASE),
    # Chat templates without a system turn, such as those of Gemma and Mistral.
    "system": re.compile(
        r"\b(system|developer)\W+(message|turn|prompt|instruction)|\broles?\b|only user", re.IGNORECASE
    ),
}
"""What a request can do without, and how messages of servers name it; these differ too much to be listed."""


class ChatServerError(ConnectionError):
    """All requests would fail in the same way, so the rest was not sent."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    key_name: str
    key: str | None = field(repr=False)

    @property
    def identity(self) -> str:
        """The address, equal for all names of this machine."""
        parts = urlsplit(self.url)
        host = parts.netloc
        if parts.hostname in _LOOPBACK:
            host = "127.0.0.1"
            if parts.port:
                host += f":{parts.port}"
        return urlunsplit((parts.scheme, host, parts.path, "", ""))

    def scrub(self, text: str) -> str:
        """Return a text on one line, without the key."""
        line = " ".join(text.split())
        if self.key is None:
            return line
        return line.replace(self.key, "***")


def find_endpoint(base_url: str | None, key_name: str) -> Endpoint:
    """Parse an address and read the key from the environment."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key_name):
        raise ValueError(
            "api_key_env (--judge-key) must be the name of an environment variable, such as OPENAI_API_KEY, not the key."
        )
    url = (base_url or os.environ.get("OPENAI_BASE_URL") or HOSTED).strip().rstrip("/")
    try:
        parts = urlsplit(url)
        # Reading a port that is no number up to 65,535 raises the error.
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or "@" in parts.netloc or parts.query:
        raise ValueError(
            "base_url (--judge-url, --model-url or OPENAI_BASE_URL) must look like http://127.0.0.1:8000/v1, without user, "
            "password and query, but the given one does not (it is not shown, since it may contain a password); a key belongs "
            f"in {key_name}."
        )
    key = os.environ.get(key_name, "").strip() or None
    if key is None and str(parts.hostname).endswith("api.openai.com"):
        raise ValueError(f"the hosted API needs a key: set {key_name}, or give the base_url of a server without keys.")
    # Anything else cannot stand in the header of a request.
    if key is not None and not re.fullmatch("[!-~]+", key):
        raise ValueError(f"the key in {key_name} contains white space or other invalid characters; set it again.")
    return Endpoint(url, key_name, key)


@dataclass(slots=True)
class _Batch:
    """State of one call of `complete`."""

    todo: Iterator[tuple[int, ChatRequest]]
    on_reply: OnReply
    stopped: bool = False
    """Whether nothing more may be sent; requests in flight were billed and are still awaited."""
    error: BaseException | None = None
    in_flight: int = 0


class OpenAIChat:
    """Chat model on a server with the OpenAI chat API."""

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
        """Create a client; nothing is sent.

        Args:
            base_url: Address up to and including `/v1`; None: `OPENAI_BASE_URL` or the hosted API.
            api_key_env: Environment variable with the API key. Only the hosted API requires one.
            timeout: Maximum seconds per attempt without a byte of the reply.
            max_retries: Retries of the openai package, after rate limits, timeouts, server errors and lost connections.
        """
        self._openai = require("openai", extra="judge")
        self._endpoint = find_endpoint(base_url, api_key_env)
        self.concurrency = concurrency
        self._model, self._timeout, self._max_retries = model, timeout, max_retries
        self._left_out: frozenset[str] = frozenset()
        self._failed_in_a_row = 0

    def __repr__(self) -> str:
        return f"OpenAIChat({self._model!r}, base_url={self._endpoint.url!r})"

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything about the model that can change a reply, as plain JSON; no keys, no timeouts."""
        return {"kind": "openai", "model": self._model, "base_url": self._endpoint.identity}

    def complete(self, requests: Sequence[ChatRequest], on_reply: OnReply) -> None:
        """Answer all requests concurrently, in any order.

        After an interrupt or an exception in `on_reply`, no more requests are sent; replies in flight were billed and
        are still passed to `on_reply` before the exception is raised again. A second interrupt drops them.

        Args:
            on_reply: Called once per request with its index and reply, in the calling thread (in another thread if that
                runs an event loop, as in a notebook).

        Raises:
            ChatServerError: No request can succeed (invalid key, unknown model, no server, no quota), or many failed in
                a row.
        """
        # A notebook runs an event loop, inside which no other can run.
        loop = None
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is None:
            asyncio.run(self._answer_all(requests, on_reply))
            return
        from anyio.from_thread import start_blocking_portal

        with start_blocking_portal() as portal:
            portal.call(self._answer_all, requests, on_reply)

    async def _answer_all(self, requests: Sequence[ChatRequest], on_reply: OnReply) -> None:
        batch = _Batch(iter(enumerate(requests)), on_reply)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        # The first Ctrl-C ends the sending; replies in flight are paid for and are still awaited.
        # A loop that waits for replies is woken by this call alone, and not by `task.cancel`.
        with deferred(lambda: loop.call_soon_threadsafe(task.cancel)):
            async with self._client() as client:
                # All take from one iterator, so that each request is sent once.
                workers = [asyncio.create_task(self._work(client, batch)) for _ in range(self.concurrency)]
                try:
                    # Unlike `gather`, it leaves the workers running when it is cancelled.
                    await asyncio.wait(workers)
                except asyncio.CancelledError:  # Ctrl-C
                    if batch.in_flight:
                        note = (
                            f"stopping: waiting for {batch.in_flight} calls in flight; press Ctrl-C again to drop them"
                        )
                        tqdm.write(note, file=sys.stderr)
                    batch.stopped = True
                    await asyncio.wait(workers)
                    raise
        if batch.error is not None:
            raise batch.error

    def _client(self) -> Any:
        return self._openai.AsyncOpenAI(
            # The package refuses to start without a key; a server without keys ignores it.
            api_key=self._endpoint.key or "none",
            base_url=self._endpoint.url,
            max_retries=self._max_retries,
            timeout=self._timeout,
            # A redirect would receive the key.
            http_client=self._openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def _work(self, client: Any, batch: _Batch) -> None:
        """Answer requests one after the other until none is left or the batch is stopped."""
        for index, request in batch.todo:
            if batch.stopped:
                return
            batch.in_flight += 1
            try:
                reply = await self._send(client, request)
                batch.on_reply(index, reply)
                self._check_hopeless(reply)
            except BaseException as error:
                # Kept for the caller; a task that raised would leave the others to run on.
                batch.error = batch.error or error
                batch.stopped = True
            finally:
                batch.in_flight -= 1

    def _check_hopeless(self, reply: Reply) -> None:
        if reply.text is not None:
            self._failed_in_a_row = 0
            return
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _HOPELESS:
            self._failed_in_a_row = 0
            raise ChatServerError(
                f"{_HOPELESS} requests in a row failed at {self._endpoint.url}; the last error: {reply.error}. The rest was "
                "not sent. If the server is overloaded, run again later with fewer concurrent requests or a longer timeout."
            )

    async def _send(self, client: Any, request: ChatRequest) -> Reply:
        """Send a request, and again without what the server refuses; that is left out from then on if it helps."""
        left_out = self._left_out
        while True:
            body = self._body(request, left_out)
            # The error as a value: one that is raised would stay with later errors, and with it the key.
            outcome: Any
            try:
                outcome = await client.chat.completions.create(**body)
            except (self._openai.OpenAIError, ValueError, TypeError) as error:
                outcome = error
            refused = self._refused_parameter(outcome, body)
            if refused is None:
                break
            left_out |= {refused}
        if isinstance(outcome, Exception):
            return self._failure(outcome)
        # Without a schema, or with another name of the token limit, replies do not vary more.
        for name in sorted(left_out - self._left_out - {"max_tokens", "response_format"}):
            logger.warning("%s does not support %s, which is no longer sent; replies may vary.", self._model, name)
        self._left_out |= left_out
        return self._read(outcome)

    def _body(self, request: ChatRequest, left_out: Set[str]) -> dict[str, Any]:
        turns = request.messages
        if "system" in left_out:
            turns = merged_system(turns)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": turn.role, "content": turn.content} for turn in turns],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
        if request.schema:
            schema = {"name": "reply", "strict": True, "schema": json.loads(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if "max_tokens" in left_out:
            body["max_completion_tokens"] = request.max_tokens
        return {name: value for name, value in body.items() if name not in left_out}

    def _refused_parameter(self, error: Any, body: Mapping[str, Any]) -> str | None:
        """Return what the server may reject of a request that can do without it, if any."""
        if not isinstance(error, self._openai.APIStatusError):
            return None
        sent = set(body)
        if body["messages"][0]["role"] == "system":
            sent.add("system")
        if error.status_code == 500:  # of llama.cpp, if a chat template rejects the system turn
            sent &= {"system"}
        elif error.status_code not in (400, 422):
            return None
        message, param = self._server_message(error), str(error.param or "")
        if re.fullmatch(r"messages(\W0\W*)?(\.?role)?", param):  # the first turn
            param = "system"
        for name, words in _OPTIONAL.items():
            if name in sent and (param.rpartition(".")[2] == name or words.search(message)):
                return name
        return None

    def _failure(self, error: Any) -> Reply:
        """Return the reply of a failed request; ChatServerError if all others would fail in the same way."""
        url = self._endpoint.url
        if isinstance(error, self._openai.APIStatusError):
            said, for_all = self._status_message(error)
            if for_all:
                raise ChatServerError(f"{url}: {said}.")
            return Reply(None, said)
        if isinstance(error, self._openai.APITimeoutError):
            return Reply(None, f"no reply within {self._timeout:g} seconds")
        cause = type(error.__cause__).__name__
        # Names of httpx, by which the package sends.
        if cause in ("ConnectError", "ConnectTimeout"):
            raise ChatServerError(f"cannot connect to {url}; is the server running?")
        if isinstance(error, self._openai.APIConnectionError):
            return Reply(None, f"the connection was lost ({cause})")
        # A text that is not UTF-8 cannot be sent, and a reply that is not JSON cannot be read.
        return Reply(None, f"the request cannot be sent, or its reply not read ({type(error).__name__})")

    def _status_message(self, error: Any) -> tuple[str, bool]:
        """Return what is wrong, and whether it is wrong for all requests."""
        status = error.status_code
        said = f"the server returned {status}: {self._server_message(error)}".removesuffix(": ")
        if status == 401:  # the server's message may contain parts of the key
            return f"the server does not accept the key (401); set {self._endpoint.key_name} to a valid one", True
        unknown_model = status in (400, 422) and self._model in said and _NO_SUCH_MODEL.search(said)
        if status in (404, 405) or unknown_model:
            return f"{said}; check the model's name, {self._model!r}, and the address, which usually ends in /v1", True
        if 300 <= status < 400:
            target = str(error.response.headers.get("location", "elsewhere")).partition("?")[0]
            return f"the server redirects to {self._endpoint.scrub(target)}; give the final address", True
        if status == 500 and "internal server error" in said.lower():  # `transformers serve` gives no reason
            said += "; the server's log has the reason (a model without a chat template cannot be served, for example)"
        return said, status == 402 or error.code == "insufficient_quota"

    def _server_message(self, error: Any) -> str:
        """Return the server's error message on one short line, without secrets."""
        body = error.body
        if isinstance(body, dict) and isinstance(body.get("message"), str):
            body = body["message"]
        if not isinstance(body, str):
            body = json.dumps(body or "")
        return self._endpoint.scrub(body).strip('"')[:300]

    def _read(self, completion: Any) -> Reply:
        """Read text and token counts of a completion, whose fields the openai package does not check."""
        if isinstance(completion, str):  # not JSON
            said = f"{self._endpoint.url} answers with a web page; check the address, which usually ends in /v1"
            raise ChatServerError(said)
        prompt, reply = (
            _positive(getattr(completion.usage, name, 0)) for name in ("prompt_tokens", "completion_tokens")
        )
        try:
            choice = completion.choices[0]
            text = choice.message.content
            refusal, finish = choice.message.refusal, choice.finish_reason
        except (AttributeError, IndexError, KeyError, TypeError):
            return Reply(None, "the reply has no message", prompt, reply)
        if isinstance(text, list):  # of Mistral's models that think
            text = "".join(str(part.get("text", "")) for part in text if part.get("type") == "text")
        # A refusal comes in a field of its own, and is an answer like any other.
        text = text or refusal or text
        if finish == "length" and not text:
            return Reply(None, CUT_OFF, prompt, reply, cut=True)
        if finish == "content_filter" and not text:
            return Reply(None, "the server's content filter blocked the reply", prompt, reply)
        if not isinstance(text, str):
            return Reply(None, "the reply has no content", prompt, reply)
        # Half of a surrogate pair cannot be written to any file.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if self._endpoint.key is not None:
            text = text.replace(self._endpoint.key, "***")
        return Reply(text, None, prompt, reply, filtered=finish == "content_filter")


def _positive(count: Any) -> int:
    if type(count) is not int:
        return 0
    return max(count, 0)
