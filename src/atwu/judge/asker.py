"""Send requests to a chat model, with a cache of replies and a limit of calls.

Replies are looked up in the cache first, each remaining request is sent once, and every reply is stored immediately. An
unreadable reply is requested again with the next seed, a few times; then the request is unscored. A reply that reached
its token limit before any text is stored and not repeated. A failed call (the model has its own retries) is not stored,
so the next run repeats it. Processes that share a cache share replies: each process checks the cache before every batch
and goes through the batches in random order, so only requests in flight in two of them are paid twice.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, TypeVar

from atwu._progress import progress_bar
from atwu.errors import BudgetReachedError
from atwu.judge.budget import Budget, CallEstimate, Usage, estimate_calls, prompt_tokens, text_tokens
from atwu.judge.chat_model import CUT_OFF, ChatModel, ChatRequest, Reply
from atwu.judge.client import ChatServerError
from atwu.judge.reply_cache import ReplyCache, reply_key

_T = TypeVar("_T")

SLICE = 64
"""Minimum requests per batch; between batches, budget and cache are checked."""
FIRST_REPLIES = 20
"""If none of this many replies is readable, stop."""
_ADVICE = (
    "If replies are cut off or unreadable, raise the token limit (reasoning models need thousands), or use another model "
    "(small ones may not follow the instructions)."
)
QUOTED = 80
"""Maximum number of characters quoted from an unreadable reply."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """Result of a request without a readable reply."""

    reason: str


@dataclass(eq=False)
class Asker:
    """A chat model with a cache, a budget and counters; nothing is sent before `ask`."""

    model: ChatModel
    cache: ReplyCache
    _: KW_ONLY
    budget: Budget = field(default_factory=Budget)
    progress: bool = True
    attempts: int = 3
    """Maximum number of attempts to get a readable reply, at least 1."""
    max_tokens: int | None = None
    """Token limit per reply, instead of the requests' own; reasoning models need thousands."""
    usage: Usage = field(default_factory=Usage, init=False)
    _answered: threading.Event = field(default_factory=threading.Event, init=False)
    """Whether any request was ever answered; also for copies with new counters."""

    def with_new_counters(self) -> Asker:
        fresh = copy.copy(self)
        fresh.usage = Usage()
        return fresh

    @property
    def identity(self) -> Mapping[str, Any]:
        return {**self.model.identity, **({} if self.max_tokens is None else {"max_tokens": self.max_tokens})}

    def ask(
        self,
        requests: Sequence[ChatRequest],
        parse: Callable[[str], _T],
        *,
        description: str = "judge",
    ) -> list[_T | Unscored]:
        """Return an answer to every request, in order; equal requests are sent once.

        Args:
            parse: Parser of replies; raises ValueError for unreadable ones.

        Raises:
            BudgetReachedError: More calls are needed than the budget has left.
            ChatServerError: None of the first replies, or of all, is readable; or the model's own error.
            CacheError: A reply cannot be stored; nothing more is sent.
        """
        asked = _AskedRequests(self, requests, parse)
        answers = asked.answers(lambda missing: asked.send(missing, description))
        unscored = [answer.reason for answer in answers if isinstance(answer, Unscored)]
        if asked.stopped:
            raise BudgetReachedError(limit=self.budget.max_calls or 0, unjudged=len(unscored))
        if len(unscored) < len(answers):
            self._answered.set()
        elif unscored and not self._answered.is_set():
            raise ChatServerError(
                f"none of {len(unscored)} requests was answered; the last one: {unscored[-1]}. {_ADVICE}"
            )
        return answers

    def stored(
        self, requests: Sequence[ChatRequest], parse: Callable[[str], _T]
    ) -> tuple[list[_T | None], list[ChatRequest]]:
        """Return answers from the cache, None for those missing, and the requests to send. Nothing is sent or counted."""
        missing: list[ChatRequest] = []
        answers = _AskedRequests(self.with_new_counters(), requests, parse).answers(missing.extend)
        return [None if isinstance(answer, Unscored) else answer for answer in answers], missing

    def estimate(self, requests: Sequence[ChatRequest], parse: Callable[[str], _T]) -> CallEstimate:
        """Estimate the calls of `ask` if every reply is readable. Nothing is sent or counted."""
        return estimate_calls(self.stored(requests, parse)[1])

    def prepared(self, request: ChatRequest, attempt: int) -> ChatRequest:
        """Return the request as sent: with the token limit and the seed of this attempt."""
        return replace(request, seed=request.seed + attempt, max_tokens=self.max_tokens or request.max_tokens)


class _AskedRequests(Generic[_T]):
    """The requests of one call of `ask`, with the replies known so far."""

    def __init__(self, asker: Asker, requests: Sequence[ChatRequest], parse: Callable[[str], _T]) -> None:
        self._asker, self._requests, self._parse = asker, requests, parse
        self._identity = asker.identity
        self._known: dict[ChatRequest, Mapping[str, Any]] = {}
        """Request as sent -> its reply as stored, or the `error` of a failed call."""
        self._received, self._any_readable = 0, False
        self.stopped = False
        """Whether the budget does not allow all requests."""

    def answers(self, send: Callable[[list[ChatRequest]], object]) -> list[_T | Unscored]:
        """Return one answer per request; what is not in the cache is passed to `send`, unreadable replies again."""
        answers: dict[ChatRequest, _T | Unscored] = dict.fromkeys(self._requests, Unscored("not asked"))
        pending = list(answers)
        for attempt in range(self._asker.attempts):
            as_sent = {request: self._asker.prepared(request, attempt) for request in pending}
            send(self._look_up(list(as_sent.values())))
            pending = []
            for request, sent in as_sent.items():
                reply = self._known.get(sent)
                if reply is None:
                    continue
                answers[request] = self._read(reply)
                if _failure(reply) is None and isinstance(answers[request], Unscored):
                    pending.append(request)
            if self.stopped:
                break
        return [answers[request] for request in self._requests]

    def send(self, requests: Sequence[ChatRequest], description: str) -> None:
        if not requests:
            return
        asker = self._asker
        size = max(SLICE, 4 * asker.model.concurrency)
        slices = [requests[start : start + size] for start in range(0, len(requests), size)]
        random.Random().shuffle(slices)
        with progress_bar(total=len(requests), desc=description, unit="call", shown=asker.progress) as bar:
            for part in slices:
                missing = self._look_up(part)
                bar.update(len(part) - len(missing))
                allowed = asker.budget.take(len(missing))
                if allowed:
                    self._complete(missing[:allowed], bar)
                if allowed < len(missing):
                    self.stopped = True
                    return

    def _look_up(self, requests: Sequence[ChatRequest]) -> list[ChatRequest]:
        """Load replies from the cache; return the requests whose reply is not known."""
        unknown = {request: self._key(request) for request in requests if request not in self._known}
        values = self._asker.cache.get_many(unknown.values())
        for request, key in unknown.items():
            if key in values:
                self._learn(request, key, values[key])
        return [request for request in unknown if request not in self._known]

    def _complete(self, requests: Sequence[ChatRequest], bar: Any) -> None:
        def on_reply(index: int, reply: Reply) -> None:
            if reply.text is None and not reply.cut:
                self._known[requests[index]] = {"error": reply.error or "the model returned no text"}
            else:
                self._keep(requests[index], reply)
            bar.update()

        self._asker.model.complete(requests, on_reply)
        for request in requests:
            self._known.setdefault(request, {"error": "the model returned no reply"})

    def _keep(self, request: ChatRequest, reply: Reply) -> None:
        """Store a reply; the tokens that a server does not report are estimated."""
        prompt = reply.prompt_tokens or prompt_tokens(request)
        completion = reply.completion_tokens or (request.max_tokens if reply.cut else text_tokens(reply.text or ""))
        value: dict[str, Any] = {"text": reply.text or "", "prompt_tokens": prompt, "completion_tokens": completion}
        if reply.cut:
            value["cut"] = True
        key = self._key(request)
        stored = self._asker.cache.put_many({key: value})[key]
        self._learn(request, key, stored)
        answer = self._read(stored)
        self._received += 1
        self._any_readable |= not isinstance(answer, Unscored)
        if self._received >= FIRST_REPLIES and isinstance(answer, Unscored) and not self._any_readable:
            raise ChatServerError(
                f"none of the first {self._received} replies could be read; the last one: {answer.reason}. {_ADVICE}"
            )

    def _learn(self, request: ChatRequest, key: str, stored: Mapping[str, Any]) -> None:
        self._known[request] = stored
        self._asker.usage.add_reply(key, stored["prompt_tokens"], stored["completion_tokens"])

    def _key(self, request: ChatRequest) -> str:
        return reply_key(request, self._identity)

    def _read(self, reply: Mapping[str, Any]) -> _T | Unscored:
        failure = _failure(reply)
        if failure is not None:
            return Unscored(f"no reply: {failure}")
        text = reply["text"]
        try:
            return self._parse(text)
        except ValueError as error:
            return Unscored(f"unreadable reply, {error}: {' '.join(text.split())[:QUOTED]!r}")


def _failure(reply: Mapping[str, Any]) -> str | None:
    if reply.get("cut"):
        return CUT_OFF
    return reply.get("error")
