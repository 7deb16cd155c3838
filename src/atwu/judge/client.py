"""A chat model behind an OpenAI-compatible server: a hosted one, vLLM, llama.cpp, `transformers serve`.

The openai package sends; asyncio limits how many are in flight and for how long, and sees to interrupts. Retrying is done
here, because one budget also covers replies that arrive but cannot be used, and because a rate limit holds back everything.
The key comes from the environment and is in nothing that is logged, raised or returned: whatever goes wrong in a try is
returned as a `CallFailure`, so that no exception holds the package's own, and with it the headers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tqdm.auto import tqdm

from atwu._extras import require
from atwu._interrupts import deferred
from atwu.judge.chat_model import ChatRequest, FailedAttempt, OnFailedAttempt, OnReply, Reply
from atwu.judge.endpoint import find_endpoint, quiet
from atwu.judge.outcomes import CallFailure, read_completion, read_status, refused_parameter

logger = logging.getLogger(__name__)

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 8.0
_CROWDED_PATIENCE = 60.0
"""Seconds over which the tries are spread at least when a server limits the rate without saying for how long."""
_HOPELESS = 20
"""Requests that failed one after the other until no more are tried."""


class ChatServerError(ConnectionError):
    """Something would fail every request alike, so the rest was not tried."""


@dataclass(slots=True)
class _Call:
    """One call of `complete`."""

    todo: Iterator[tuple[int, ChatRequest]]
    on_reply: OnReply
    on_failed_attempt: OnFailedAttempt
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing more may be sent; what is in flight has been paid for and is still waited for."""
    error: BaseException | None = None
    """Why it stopped."""
    held_until: float = 0.0
    """Moment before which nothing is sent."""
    flying: int = 0


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
            base_url: address up to and including `/v1`; None takes `OPENAI_BASE_URL` or the hosted API. A user and
                password, or a query, in it are sent but never shown.
            api_key_env: environment variable that holds the key. Only the hosted API must have one.
            timeout: seconds that a try may take from sending to the end of its reply.
            max_retries: tries after the first, with growing pauses, for rate limits, timeouts, server errors, cut
                connections and unusable replies.

        Raises:
            ValueError: an address that is none, or no usable key for the hosted API.
            ImportError: the openai package is missing.
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
        """Kind, model, and address without user and password."""
        return {"kind": "openai", "model": self._model, **self._endpoint.identity}

    def complete(
        self, requests: Sequence[ChatRequest], on_reply: OnReply, on_failed_attempt: OnFailedAttempt = lambda index, attempt: True
    ) -> None:
        """Answer all requests, in any order, several at a time.

        An interrupt or an exception of `on_reply` starts no more requests; those in flight have been paid for, so their
        replies are still handed over before it is raised again. A second interrupt drops them.

        Args:
            on_reply: called once per request with its index and reply, as soon as it is there, in the calling thread (in
                another one if that runs an event loop, as a notebook does).

        Raises:
            ChatServerError: no request can succeed: refused key, unknown model, no server, no quota left; or many
                failed one after the other.
        """
        with quiet():
            if not _in_an_event_loop():
                asyncio.run(self._answer_all(requests, on_reply, on_failed_attempt))
                return
            from anyio.from_thread import start_blocking_portal

            with start_blocking_portal() as portal:
                portal.call(self._answer_all, requests, on_reply, on_failed_attempt)

    async def _answer_all(self, requests: Sequence[ChatRequest], on_reply: OnReply, on_failed_attempt: OnFailedAttempt) -> None:
        call = _Call(iter(enumerate(requests)), on_reply, on_failed_attempt)
        with deferred(_cancelling()):
            async with self._client() as client:
                workers = [asyncio.create_task(self._work(client, call)) for _ in range(self.concurrency)]
                try:
                    await asyncio.wait(workers)
                except asyncio.CancelledError:  # Ctrl-C
                    if call.flying:
                        note = f"stopping: {call.flying} calls in flight are waited for; Ctrl-C again drops them"
                        tqdm.write(note, file=sys.stderr)
                    call.stop.set()
                    await asyncio.wait(workers)
                    raise
        if call.error is not None:
            raise call.error

    def _client(self) -> Any:
        # A key must not follow a redirect. The timeout is for the connection alone: all of a try has its own.
        settings = {"timeout": self._openai.Timeout(None, connect=self._timeout / 2), "follow_redirects": False}
        return self._openai.AsyncOpenAI(
            api_key=self._endpoint.key or "none",
            base_url=self._endpoint.url,
            default_headers=self._endpoint.headers,
            default_query=self._endpoint.query,
            max_retries=0,
            http_client=self._openai.DefaultAsyncHttpxClient(**settings),
            timeout=settings["timeout"],
        )

    async def _work(self, client: Any, call: _Call) -> None:
        """Answer one request after the other until there is none left or something ends the call."""
        for index, request in call.todo:
            if call.stop.is_set():
                return
            try:
                reply = await self._answer(client, call, index, request)
                if reply is not None:
                    self._hand_over(call, index, reply)
            except BaseException as error:
                call.error = call.error or error
                call.stop.set()

    async def _answer(self, client: Any, call: _Call, index: int, request: ChatRequest) -> Reply | None:
        """Send one request until it is answered or given up; None if the call was stopped before."""
        clock, due = asyncio.get_running_loop().time, 0.0
        for tries in itertools.count(1):
            while (pause := max(due, call.held_until) - clock()) > 0 and not call.stop.is_set():
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
            again = outcome.retry and tries <= self._max_retries and not call.stop.is_set()
            if outcome.billed:
                again &= call.on_failed_attempt(index, FailedAttempt(outcome.prompt_tokens, outcome.completion_tokens, again))
            if call.stop.is_set():
                break
            if not again:
                words = outcome.message + (f" (tried {tries} times)" if tries > 1 else "")
                if outcome.fatal or (outcome.maybe_fatal and not self._answered):
                    raise ChatServerError(words)
                return Reply(None, words)
            delay = self._delay(outcome, tries)
            due = clock() + delay * random.uniform(1, 1.25)
            if outcome.rate_limited:
                call.held_until = max(call.held_until, clock() + delay)
        return None

    def _hand_over(self, call: _Call, index: int, reply: Reply) -> None:
        """Give a reply to the caller, and stop if too many have failed one after the other."""
        self._answered |= reply.text is not None
        self._failed_in_a_row = 0 if reply.text is not None else self._failed_in_a_row + 1
        call.on_reply(index, reply)
        if self._failed_in_a_row >= _HOPELESS:
            self._failed_in_a_row = 0
            raise ChatServerError(
                f"{_HOPELESS} requests in a row failed at {self._endpoint.url}, the last one: {reply.error}. The rest was "
                f"not sent. If the server is overloaded, run again later, with fewer requests at once or a longer timeout."
            )

    def _delay(self, failure: CallFailure, tries: int) -> float:
        """Seconds until the next try."""
        if failure.wait_seconds is not None:
            return failure.wait_seconds
        doubled: int = 2 ** (tries - 1)
        # All pauses of a rate_limited server add up to the patience.
        share = _CROWDED_PATIENCE * doubled / (2**self._max_retries - 1) if failure.rate_limited else 0.0
        return max(share, min(_LONGEST_DELAY, _FIRST_DELAY * doubled))

    async def _try(self, client: Any, request: ChatRequest) -> Reply | CallFailure:
        """Send once, or again without the parameters that this server refuses."""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    body = self._body(request)
                    try:
                        response = await client.chat.completions.with_raw_response.create(**body)
                        break
                    except self._openai.APIStatusError as error:
                        if not self._adapt(error, body):
                            return read_status(error, self._endpoint, self._model)
        except TimeoutError:
            return CallFailure(f"no reply within {self._timeout:g} seconds", billed=True)
        except self._openai.APIConnectionError as error:
            cause = type(error.__cause__).__name__
            if cause in ("ConnectError", "ConnectTimeout"):
                return CallFailure(f"no connection to {self._endpoint.url}; is the server running?", fatal=True)
            return CallFailure(f"the connection was cut ({cause})", billed=True)
        except (ValueError, TypeError) as error:
            return CallFailure(f"the request cannot be sent ({type(error).__name__})", retry=False)
        outcome = read_completion(response.content, self._model, self._endpoint)
        left_out = [name for name in ("temperature", "seed") if name not in body]
        if isinstance(outcome, Reply) and left_out:
            return replace(outcome, served={**outcome.served, "left_out": left_out})
        return outcome

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


def _cancelling() -> Callable[[], object]:
    """What cancels the task that runs now, called in between."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    return lambda: loop.call_soon_threadsafe(task.cancel)


def _in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
