"""Send requests to a chat model, with a cache of replies and a limit of calls.

Replies are looked up in the cache first, each remaining request is sent once, and every reply is stored immediately. An
unreadable reply is requested again with the next seed, a few times; then the request is unscored. A reply that reached
its token limit before any text is stored and not repeated. A failed call (the model has its own retries) is not stored,
so the next run repeats it.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

from atwu._progress import progress_bar
from atwu.errors import BudgetReachedError
from atwu.judge.chat_model import CUT_OFF, ChatRequest, Reply
from atwu.judge.client import ChatServerError, OpenAIChat
from atwu.judge.reply_cache import ReplyCache, reply_key

_T = TypeVar("_T")
_StoredReply = Mapping[str, Any]
"""A reply as the cache holds it, or the `error` of a failed call."""

FIRST_REPLIES = 20
"""If none of this many replies is readable, stop: the model does not follow the instructions, and every call may cost."""
_ADVICE = (
    "If replies are cut off or unreadable, raise the token limit (reasoning models need thousands), or use another model "
    "(small ones may not follow the instructions)."
)
QUOTED = 80
"""Maximum number of characters quoted from an unreadable reply."""
CHARACTERS_PER_TOKEN = 4
"""Bytes of UTF-8 per token, by which tokens that no server has counted are estimated."""
TOKENS_PER_TURN = 4
"""Tokens that a chat template adds per turn."""


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """Number of calls and their tokens, if every reply reaches its token limit and none is repeated."""

    calls: int
    prompt_tokens: int
    completion_tokens: int

    def __add__(self, other: CallEstimate) -> CallEstimate:
        return CallEstimate(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def __str__(self) -> str:
        if not self.calls:
            return "nothing to send: all replies are cached"
        return (
            f"{self.calls:,} calls, about {self.prompt_tokens:,} prompt tokens (at {CHARACTERS_PER_TOKEN} characters per "
            f"token) and at most {self.completion_tokens:,} reply tokens, without retries"
        )


def text_tokens(text: str) -> int:
    return math.ceil(len(text.encode(errors="replace")) / CHARACTERS_PER_TOKEN)


def prompt_tokens(request: ChatRequest) -> int:
    return sum(text_tokens(message.content) + TOKENS_PER_TURN for message in request.messages)


def estimate_calls(requests: Sequence[ChatRequest]) -> CallEstimate:
    """Estimate what it takes to send each request once."""
    prompt, completion = sum(map(prompt_tokens, requests)), sum(request.max_tokens for request in requests)
    return CallEstimate(len(requests), prompt, completion)


@dataclass(eq=False)
class Budget:
    """Calls sent by this process, and how many it may send; shared by all judges of a command."""

    max_calls: int | None = None
    """None: no limit."""
    sent: int = 0

    def take(self, wanted: int) -> int:
        """Count calls that are about to be sent, and return how many of the wanted ones these are."""
        allowed = wanted
        if self.max_calls is not None:
            allowed = min(wanted, self.max_calls - self.sent)
        self.sent += allowed
        return allowed


@dataclass(frozen=True, slots=True)
class Unscored:
    """Result of a request without a readable reply."""

    reason: str


@dataclass(eq=False)
class Asker:
    """A chat model with a cache, a budget and counters; nothing is sent before `ask`."""

    model: OpenAIChat
    cache: ReplyCache
    _: KW_ONLY
    budget: Budget = field(default_factory=Budget)
    progress: bool = True
    attempts: int = 3
    """Maximum number of attempts to get a readable reply, at least 1."""
    max_tokens: int | None = None
    """Token limit per reply, instead of the requests' own; reasoning models need thousands."""
    used: dict[str, _StoredReply] = field(default_factory=dict, init=False)
    """Replies by key, whether sent or from the cache, so that their counts do not depend on interruptions."""
    _answered: threading.Event = field(default_factory=threading.Event, init=False)
    """Whether any request was ever answered; an object, so that copies with new counters share it."""

    def with_new_counters(self) -> Asker:
        fresh = copy.copy(self)
        fresh.used = {}
        return fresh

    @property
    def cost(self) -> dict[str, int]:
        """Number of replies used, and their tokens."""
        return {
            "judge_calls": len(self.used),
            "judge_prompt_tokens": sum(reply["prompt_tokens"] for reply in self.used.values()),
            "judge_reply_tokens": sum(reply["completion_tokens"] for reply in self.used.values()),
        }

    @property
    def identity(self) -> Mapping[str, Any]:
        if self.max_tokens is None:
            return self.model.identity
        return {**self.model.identity, "max_tokens": self.max_tokens}

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
        received: list[_T | Unscored] = []
        stopped = False

        # Only what was sent is checked: stored replies cost nothing more.
        def check_first(reply: _StoredReply) -> None:
            answer = _read(reply, parse)
            received.append(answer)
            if len(received) < FIRST_REPLIES or not isinstance(answer, Unscored):
                return
            if all(isinstance(other, Unscored) for other in received):
                raise ChatServerError(
                    f"none of the first {len(received)} replies could be read; the last one: {answer.reason}. {_ADVICE}"
                )

        def send(missing: Sequence[ChatRequest]) -> Mapping[ChatRequest, _StoredReply]:
            nonlocal stopped
            # Replies that are paid for are stored even if the budget ends here; the error comes behind them.
            allowed = self.budget.take(len(missing))
            stopped = stopped or allowed < len(missing)
            return self._send(missing[:allowed], check_first, description)

        answers = self._answers(requests, parse, send)
        unscored = [answer.reason for answer in answers if isinstance(answer, Unscored)]
        if stopped:
            raise BudgetReachedError(limit=self.budget.max_calls or 0, unjudged=len(unscored))
        # A server that never answered is broken; one that answered before has a bad set of requests.
        if len(unscored) < len(answers):
            self._answered.set()
        elif unscored and not self._answered.is_set():
            raise ChatServerError(
                f"none of {len(unscored)} requests was answered; the last one: {unscored[-1]}. {_ADVICE}"
            )
        return answers

    def read_stored(
        self, requests: Sequence[ChatRequest], parse: Callable[[str], _T]
    ) -> tuple[list[_T | None], list[ChatRequest]]:
        """Return answers from the cache, None for those missing, and the requests to send. Nothing is sent or counted."""
        to_send: list[ChatRequest] = []

        def note(missing: Sequence[ChatRequest]) -> Mapping[ChatRequest, _StoredReply]:
            to_send.extend(missing)
            return {}

        answers = self.with_new_counters()._answers(requests, parse, note)
        return [None if isinstance(answer, Unscored) else answer for answer in answers], to_send

    def estimate(self, requests: Sequence[ChatRequest], parse: Callable[[str], _T]) -> CallEstimate:
        """Estimate the calls of `ask` if every reply is readable. Nothing is sent or counted."""
        return estimate_calls(self.read_stored(requests, parse)[1])

    def prepare(self, request: ChatRequest, attempt: int) -> ChatRequest:
        """Return the request as sent: with the token limit and the seed of this attempt."""
        return replace(request, seed=request.seed + attempt, max_tokens=self.max_tokens or request.max_tokens)

    def _answers(
        self,
        requests: Sequence[ChatRequest],
        parse: Callable[[str], _T],
        send: Callable[[Sequence[ChatRequest]], Mapping[ChatRequest, _StoredReply]],
    ) -> list[_T | Unscored]:
        """Return one answer per request; what is not in the cache is passed to `send`, unreadable replies again."""
        # By request, so that equal ones are sent once.
        answers: dict[ChatRequest, _T | Unscored] = dict.fromkeys(requests, Unscored("not asked"))
        pending = list(answers)
        for attempt in range(self.attempts):
            # With the next seed, since a model would repeat an unreadable reply.
            as_sent = {request: self.prepare(request, attempt) for request in pending}
            keys = {sent: self._key(sent) for sent in as_sent.values()}
            stored = self.cache.get_many(keys.values())
            self.used.update(stored)
            replies: dict[ChatRequest, _StoredReply] = {
                sent: stored[key] for sent, key in keys.items() if key in stored
            }
            missing = [sent for sent in keys if sent not in replies]
            replies |= send(missing)
            pending = []
            for request, sent in as_sent.items():
                reply = replies.get(sent)
                if reply is None:
                    continue
                answers[request] = _read(reply, parse)
                # A failed call was retried by the model already, and a cut reply would be cut again.
                if _failure(reply) is None and isinstance(answers[request], Unscored):
                    pending.append(request)
        return [answers[request] for request in requests]

    def _send(
        self, requests: Sequence[ChatRequest], check: Callable[[_StoredReply], None], description: str
    ) -> dict[ChatRequest, _StoredReply]:
        """Send requests, store every reply and pass it to `check`; return what each request got."""
        replies: dict[ChatRequest, _StoredReply] = {}
        if not requests:
            return replies

        def on_reply(index: int, reply: Reply) -> None:
            request = requests[index]
            if reply.text is None and not reply.cut:
                replies[request] = {"error": reply.error or "the model returned no text"}
            else:
                replies[request] = self._store(request, reply)
                check(replies[request])
            bar.update()

        with progress_bar(total=len(requests), desc=description, unit="call", shown=self.progress) as bar:
            self.model.complete(requests, on_reply)
        # A model may leave requests out, and each must have an answer.
        for request in requests:
            replies.setdefault(request, {"error": "the model returned no reply"})
        return replies

    def _store(self, request: ChatRequest, reply: Reply) -> _StoredReply:
        """Store a reply and return what is stored; the tokens that a server does not report are estimated."""
        text = reply.text or ""
        completion = text_tokens(text)
        if reply.cut:
            completion = request.max_tokens
        # Only what a later reading needs: a conversation may quote what was to be forgotten.
        value: dict[str, Any] = {
            "text": text,
            "prompt_tokens": reply.prompt_tokens or prompt_tokens(request),
            "completion_tokens": reply.completion_tokens or completion,
        }
        if reply.cut:
            value["cut"] = True
        key = self._key(request)
        # Another process may have stored a reply meanwhile; the first one is everybody's.
        stored = self.cache.put_many({key: value})[key]
        self.used[key] = stored
        return stored

    def _key(self, request: ChatRequest) -> str:
        return reply_key(request, self.identity)


def _read(reply: _StoredReply, parse: Callable[[str], _T]) -> _T | Unscored:
    failure = _failure(reply)
    if failure is not None:
        return Unscored(f"no reply: {failure}")
    text = reply["text"]
    try:
        return parse(text)
    except ValueError as error:
        return Unscored(f"unreadable reply, {error}: {' '.join(text.split())[:QUOTED]!r}")


def _failure(reply: _StoredReply) -> str | None:
    if reply.get("cut"):
        return CUT_OFF
    return reply.get("error")
