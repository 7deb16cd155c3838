"""A chat model behind an OpenAI-compatible server: a hosted API, vLLM, llama.cpp, `transformers serve`.

The openai package sends requests; asyncio limits concurrency and time and handles interrupts. Retries are done here,
not by the package: it knows no budget, takes an unusable reply for a success, and lets a rate limit pause one request
only. Errors are converted to `CallFailure`, so no exception keeps the package's own, which holds the API key.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tqdm.auto import tqdm

from atwu._extras import require
from atwu._interrupts import deferred
from atwu.data.render import merged_system
from atwu.judge.chat_model import ChatRequest, OnFailedAttempt, OnReply, Reply
from atwu.judge.outcomes import CallFailure, find_endpoint, read_completion, read_status, refused_parameter

logger = logging.getLogger(__name__)

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 8.0
_RATE_LIMITED = 4
"""Times as long are the delays of a server that limits the rate without giving a time: a minute for five retries."""
_MAX_BYTES = 4 * 2**20
"""Largest response; a reply of 8,000 tokens has about 40,000 bytes."""
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Content encoding -> `wbits` of zlib, where 16 stands for the header of gzip."""
_HOPELESS = 20
"""Consecutive failed requests after which no more are sent."""


class ChatServerError(ConnectionError):
    """All requests would fail in the same way, so the rest was not sent."""


class ReplyRefusedError(ConnectionError):
    """A response is too large, or cannot be decompressed."""


class UnknownEncodingError(ReplyRefusedError):
    """A response is compressed in a way that cannot be read, and so will be all others of the server."""


@dataclass(slots=True)
class _Call:
    """State of one call of `complete`."""

    todo: Iterator[tuple[int, ChatRequest]]
    on_reply: OnReply
    on_failed_attempt: OnFailedAttempt
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing more may be sent; requests in flight were billed and are still awaited."""
    error: BaseException | None = None
    paused_until: float = 0.0
    """Time before which nothing is sent."""
    flying: int = 0


class OpenAIChat:
    """Chat model on a server with the OpenAI chat API; implements `ChatModel`."""

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
            timeout: Maximum seconds per attempt, until the end of the reply.
            max_retries: Retries with growing delays, after rate limits, timeouts, server errors, lost connections and
                unusable replies.
        """
        self._openai = require("openai", extra="judge")
        self._endpoint = find_endpoint(base_url, api_key_env)
        self.concurrency = concurrency
        self._model, self._timeout, self._max_retries = model, timeout, max_retries
        self._refused: frozenset[str] = frozenset()
        self._answered, self._failed_in_a_row = False, 0

    def __repr__(self) -> str:
        return f"OpenAIChat({self._model!r}, base_url={self._endpoint.url!r})"

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"kind": "openai", "model": self._model, "base_url": self._endpoint.identity}

    def complete(
        self,
        requests: Sequence[ChatRequest],
        on_reply: OnReply,
        on_failed_attempt: OnFailedAttempt = lambda *attempt: True,
    ) -> None:
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
        loop = None
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is None:
            asyncio.run(self._answer_all(requests, on_reply, on_failed_attempt))
            return
        from anyio.from_thread import start_blocking_portal

        with start_blocking_portal() as portal:
            portal.call(self._answer_all, requests, on_reply, on_failed_attempt)

    async def _answer_all(
        self, requests: Sequence[ChatRequest], on_reply: OnReply, on_failed_attempt: OnFailedAttempt
    ) -> None:
        call = _Call(iter(enumerate(requests)), on_reply, on_failed_attempt)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with deferred(lambda: loop.call_soon_threadsafe(task.cancel)):
            async with self._client() as client:
                workers = [asyncio.create_task(self._work(client, call)) for _ in range(self.concurrency)]
                try:
                    await asyncio.wait(workers)
                except asyncio.CancelledError:  # Ctrl-C
                    if call.flying:
                        note = f"stopping: waiting for {call.flying} calls in flight; press Ctrl-C again to drop them"
                        tqdm.write(note, file=sys.stderr)
                    call.stop.set()
                    await asyncio.wait(workers)
                    raise
        if call.error is not None:
            raise call.error

    def _client(self) -> Any:
        # Redirects are not followed, since they would receive the key. The timeout covers connecting; `_try` limits the rest.
        settings = {"timeout": self._openai.Timeout(None, connect=self._timeout / 2), "follow_redirects": False}
        return self._openai.AsyncOpenAI(
            api_key=self._endpoint.key or "none",
            base_url=self._endpoint.url,
            max_retries=0,
            default_headers={"Accept-Encoding": "identity"},
            http_client=self._openai.DefaultAsyncHttpxClient(event_hooks={"response": [_read_limited]}, **settings),
            timeout=settings["timeout"],
        )

    async def _work(self, client: Any, call: _Call) -> None:
        """Answer requests one after the other until none is left or the call is stopped."""
        for index, request in call.todo:
            if call.stop.is_set():
                return
            try:
                reply = await self._answer(client, call, index, request)
                if reply is None:
                    return
                self._answered |= reply.text is not None
                self._failed_in_a_row = 0 if reply.text is not None else self._failed_in_a_row + 1
                call.on_reply(index, reply)
                if self._failed_in_a_row >= _HOPELESS:
                    self._failed_in_a_row = 0
                    raise ChatServerError(
                        f"{_HOPELESS} requests in a row failed at {self._endpoint.url}; the last error: {reply.error}. The "
                        "rest was not sent. If the server is overloaded, run again later with fewer concurrent requests or "
                        "a longer timeout."
                    )
            except BaseException as error:
                call.error = call.error or error
                call.stop.set()

    async def _answer(self, client: Any, call: _Call, index: int, request: ChatRequest) -> Reply | None:
        """Send one request until it is answered or given up; None if the call was stopped."""
        clock, due = asyncio.get_running_loop().time, 0.0
        for tries in itertools.count(1):
            while (pause := max(due, call.paused_until) - clock()) > 0 and not call.stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(call.stop.wait(), pause)
            if call.stop.is_set():
                break
            call.flying += 1
            try:
                outcome = await self._try(client, request)
            finally:
                call.flying -= 1
            if isinstance(outcome, Reply):
                return outcome
            retry = outcome.retry and tries <= self._max_retries and not call.stop.is_set()
            if outcome.billed:
                retry &= call.on_failed_attempt(index, outcome.prompt_tokens, outcome.completion_tokens, retry)
            if call.stop.is_set():
                break
            if not retry:
                message = outcome.message + (f" (tried {tries} times)" if tries > 1 else "")
                if outcome.fatal or (outcome.maybe_fatal and not self._answered):
                    raise ChatServerError(message)
                return Reply(None, message)
            delay = outcome.wait_seconds
            if delay is None:
                delay = _FIRST_DELAY * 2 ** (tries - 1)
                delay = _RATE_LIMITED * delay if outcome.rate_limited else min(_LONGEST_DELAY, delay)
            due = clock() + delay * random.uniform(1, 1.25)
            if outcome.rate_limited:
                call.paused_until = max(call.paused_until, clock() + delay)
        return None

    async def _try(self, client: Any, request: ChatRequest) -> Reply | CallFailure:
        """Send once, and again without what the server seems to reject; it is left out from then on if that helps."""
        left_out = self._refused
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    body = self._body(request, left_out)
                    sent = body.keys() | ({"system"} if body["messages"][0]["role"] == "system" else set())
                    try:
                        response = await client.chat.completions.with_raw_response.create(**body)
                        break
                    except self._openai.APIStatusError as error:
                        name = refused_parameter(error, self._endpoint, sent)
                        if name is None:
                            return read_status(error, self._endpoint, self._model)
                        left_out |= {name}
        except TimeoutError:
            return CallFailure(f"no reply within {self._timeout:g} seconds", billed=True)
        except (self._openai.APIConnectionError, ReplyRefusedError) as error:
            refused = error if isinstance(error, ReplyRefusedError) else error.__cause__  # of older versions
            if isinstance(refused, ReplyRefusedError):
                fatal = isinstance(refused, UnknownEncodingError)
                return CallFailure(str(refused), retry=False, billed=True, fatal=fatal)
            cause = type(error.__cause__).__name__
            if cause in ("ConnectError", "ConnectTimeout"):
                said = f"cannot connect to {self._endpoint.url}; is the server running?"
                return CallFailure(said, retry=self._answered, fatal=True)
            return CallFailure(f"the connection was lost ({cause})", billed=True)
        except (ValueError, TypeError) as error:
            return CallFailure(f"the request cannot be sent ({type(error).__name__})", retry=False)
        for name in sorted(left_out - self._refused - {"max_tokens"}):
            logger.warning("%s does not support %s, which is no longer sent; replies may vary.", self._model, name)
        self._refused |= left_out
        return read_completion(response.content, self._endpoint)

    def _body(self, request: ChatRequest, left_out: Set[str]) -> dict[str, Any]:
        settings = {"max_tokens": request.max_tokens, "temperature": request.temperature, "seed": request.seed}
        kept: dict[str, Any] = {name: value for name, value in settings.items() if name not in left_out}
        if "max_tokens" not in kept:
            kept["max_completion_tokens"] = request.max_tokens
        turns = merged_system(request.messages) if "system" in left_out else request.messages
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        return {"model": self._model, "messages": messages, **kept}


async def _read_limited(response: Any) -> None:
    """Read a response up to a limit, before httpx would read all of it; the responses of httpx2 are the same.

    None is asked to be compressed, but some servers and proxies compress all the same. These are decompressed here, up to
    the limit: a small one may become large.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    unpack: Callable[[bytes], bytes] = bytes
    packed = None
    if encoding in _WINDOW_BITS:
        packed = zlib.decompressobj(_WINDOW_BITS[encoding])
        unpack = functools.partial(_unpacked, packed)
    elif encoding not in ("", "identity"):
        raise UnknownEncodingError(
            f"the server compresses its replies ({encoding!r:.40}), although none was asked for; switch that off, also in a "
            "proxy before it. Only gzip and deflate can be read"
        )
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += unpack(chunk)
        if len(body) > _MAX_BYTES:
            raise ReplyRefusedError(f"the reply is larger than {_MAX_BYTES // 2**20} MB")
    if packed is not None:
        if not packed.eof:
            raise ReplyRefusedError("the compressed reply is incomplete")
        del response.headers["content-encoding"]  # else httpx decompresses again
    http = sys.modules[type(response).__module__]
    response.stream, response.is_stream_consumed, response.is_closed = http.ByteStream(bytes(body)), False, False


def _unpacked(packed: Any, chunk: bytes) -> bytes:
    """Decompress a chunk, to one byte more than the limit at most."""
    try:
        data: bytes = packed.decompress(chunk, _MAX_BYTES + 1)
    except zlib.error:
        raise ReplyRefusedError("the compressed reply is damaged") from None
    return data
