"""The one way to a chat model: looks replies up first, sends each open question once, stores every reply as it comes.

A reply that cannot be read is asked for again with the next seed, a few times; then the question is unscored, with the
reason. So it is at once if the reply was cut before any text, which is stored, or if the call failed (the model has its
own retries), which is not, so that the next run asks again. Processes that share a store share its replies: each looks
again before every slice and goes through the slices in an order of its own, so that only what is in flight in two of them
at once is paid for twice.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from atwu._progress import bar_of
from atwu.errors import BudgetReached
from atwu.judge.budget import Budget, CostEstimate, Usage, estimate_cost, prompt_tokens, text_tokens
from atwu.judge.chat_model import CUT_OFF, ChatModel, ChatRequest, FailedAttempt, Reply
from atwu.judge.client import ChatServerError
from atwu.judge.reply_cache import ReplyCache, reply_key

T = TypeVar("T")

SLICE = 64
"""Requests handed over at a time at least; in between, the limit is checked and the store looked at again."""
FIRST_REPLIES = 20
"""If none of so many can be read, the rest is not asked for."""
QUOTED = 80
"""Characters of an unreadable reply that are shown."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """In place of an answer: there is none."""

    reason: str


class Asker:
    """A chat model behind a store, with a budget and counters."""

    def __init__(
        self,
        model: ChatModel,
        cache: ReplyCache,
        *,
        budget: Budget | None = None,
        progress: bool = True,
        attempts: int = 3,
        max_tokens: int | None = None,
    ) -> None:
        """Ask nothing yet.

        Args:
            attempts: how often a question is put until its reply can be read, at least 1.
            max_tokens: cap on every reply in place of the requests' own; a reasoning model needs some thousands.
        """
        self.budget = budget or Budget()
        self.model = model
        self.cache = cache
        self.progress = progress
        self.attempts = attempts
        self.max_tokens = max_tokens
        self.usage = Usage(self.budget)

    def with_new_counters(self) -> Asker:
        """The same model, store and budget with the counters at zero."""
        fresh = copy.copy(self)
        fresh.usage = Usage(self.budget)
        return fresh

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model's, and the cap on replies if there is one."""
        return {**self.model.identity, **({} if self.max_tokens is None else {"max_tokens": self.max_tokens})}

    def ask(
        self,
        requests: Sequence[ChatRequest],
        parse: Callable[[str], T],
        *,
        version: str,
        description: str = "judge",
    ) -> list[T | Unscored]:
        """Get an answer to every request; equal requests are asked once.

        Args:
            parse: reads a reply; raises ValueError if it cannot.
            version: of the rubric the requests were made from.

        Returns:
            One answer per request, in their order.

        Raises:
            BudgetReached: going on could cost more than allowed.
            ChatServerError: none of the first replies could be read, or what the model raises.
            CacheError: replies could not be stored; found out before anything is sent.
        """
        questions = _Questions(self, requests, parse, version)
        while missing := questions.missing():
            if not questions.send(missing, description):
                unjudged = sum(isinstance(answer, Unscored) for answer in questions.answers())
                raise BudgetReached(spent=self.budget.spent, limit=self.budget.max_cost or 0.0, unjudged=unjudged)
        return questions.answers()

    def stored(self, requests: Sequence[ChatRequest], parse: Callable[[str], T], *, version: str) -> list[T | None]:
        """Answers as far as they can be had from the store; None for the others. Sends and counts nothing."""
        questions = _Questions(self.with_new_counters(), requests, parse, version)
        questions.missing()
        return [None if isinstance(answer, Unscored) else answer for answer in questions.answers()]

    def estimate(self, requests: Sequence[ChatRequest], parse: Callable[[str], T], *, version: str) -> CostEstimate:
        """What `ask` would send now, if every reply can be read. Sends and counts nothing."""
        return estimate_cost(_Questions(self.with_new_counters(), requests, parse, version).missing(), self.budget.prices)

    def put(self, request: ChatRequest, attempt: int) -> ChatRequest:
        """The request as it is sent: our cap, and a seed for each attempt."""
        return replace(request, seed=request.seed + attempt, max_tokens=self.max_tokens or request.max_tokens)


class _Questions(Generic[T]):
    """The requests of one call of `ask`, and what is known of their replies."""

    def __init__(self, asker: Asker, requests: Sequence[ChatRequest], parse: Callable[[str], T], version: str) -> None:
        self._asker, self._requests, self._parse, self._version = asker, requests, parse, version
        self._identity = asker.identity
        self._known: dict[ChatRequest, Reply] = {}
        self._heard, self._ever_readable = 0, False

    def answers(self) -> list[T | Unscored]:
        """One per request, by the replies known so far."""
        answers: dict[ChatRequest, T | Unscored] = {}
        for request in dict.fromkeys(self._requests):
            answers[request] = Unscored("not asked")
            for attempt in range(self._asker.attempts):
                reply = self._known.get(self._asker.put(request, attempt))
                if reply is None:
                    break
                answers[request] = answer = self._read(reply)
                if not isinstance(answer, Unscored):
                    break
        return [answers[request] for request in self._requests]

    def missing(self) -> list[ChatRequest]:
        """What has to be sent next, by the store and the replies known so far."""
        missing: dict[ChatRequest, None] = {}
        pending = list(dict.fromkeys(self._requests))
        for attempt in range(self._asker.attempts):
            puts = {request: self._asker.put(request, attempt) for request in pending}
            missing |= dict.fromkeys(self._look_up(list(puts.values())))
            replies = {request: self._known[put] for request, put in puts.items() if put in self._known}
            pending = [
                request
                for request, reply in replies.items()
                if reply.error is None and isinstance(self._read(reply), Unscored)
            ]
        return list(missing)

    def send(self, requests: Sequence[ChatRequest], description: str) -> bool:
        """Get replies to requests; False if the budget ended before the last."""
        asker = self._asker
        asker.cache.check()
        size = max(SLICE, 4 * asker.model.concurrency)
        slices = [requests[start : start + size] for start in range(0, len(requests), size)]
        random.Random().shuffle(slices)
        with bar_of(total=len(requests), desc=description, unit="call", shown=asker.progress) as bar:
            for part in slices:
                still_open = self._look_up(part)
                bar.update(len(part) - len(still_open))
                while still_open:
                    fitting = asker.budget.affordable(still_open)
                    if not fitting or not self._complete(still_open[:fitting], bar):
                        return False
                    still_open = still_open[fitting:]
        return True

    def _look_up(self, requests: Sequence[ChatRequest]) -> list[ChatRequest]:
        """Take replies from the store; what comes back are the requests whose reply is not known yet."""
        unknown = [request for request in requests if request not in self._known]
        keys = {request: self._key(request) for request in unknown}
        values = self._asker.cache.get_many(keys.values())
        for request, key in keys.items():
            if key in values:
                self._learn(request, values[key], stored=True)
        return [request for request in unknown if request not in self._known]

    def _complete(self, requests: Sequence[ChatRequest], bar: Any) -> bool:
        """Send requests that fit the budget; False if it would not bear the tries that are still needed."""
        asker, stopped = self._asker, False

        def on_reply(index: int, reply: Reply) -> None:
            asker.usage.sent += 1
            if reply.text is None and not reply.cut:
                self._known[requests[index]] = reply if reply.error else replace(reply, error="the model gave no text")
            else:
                self._keep(requests[index], reply)
            bar.update()

        def on_failed_attempt(index: int, attempt: FailedAttempt) -> bool:
            nonlocal stopped
            asker.budget.add(requests[index], prompt=attempt.prompt_tokens, completion=attempt.completion_tokens)
            asker.usage.add_failed(requests[index], attempt.prompt_tokens, attempt.completion_tokens)
            still_open = [request for request in requests if request not in self._known]
            stopped |= attempt.will_retry and asker.budget.affordable(still_open) < len(still_open)
            return not stopped

        asker.model.complete(requests, on_reply, on_failed_attempt)
        for request in requests:
            self._known.setdefault(request, Reply(error="the model gave no reply"))
        return not stopped

    def _keep(self, request: ChatRequest, reply: Reply) -> None:
        """Book and store a reply."""
        # A server that does not report tokens is booked with the estimate.
        prompt = reply.prompt_tokens or prompt_tokens(request)
        completion = reply.completion_tokens or (request.max_tokens if reply.cut else text_tokens(reply.text or ""))
        self._asker.budget.add(request, prompt=prompt, completion=completion)
        value: dict[str, Any] = {"text": reply.text or "", "prompt_tokens": prompt, "completion_tokens": completion}
        value |= ({"cut": True} if reply.cut else {}) | ({"served": dict(reply.served)} if reply.served else {})
        answer = self._learn(request, self._asker.cache.put(self._key(request), value), stored=False)
        self._heard += 1
        self._ever_readable |= not isinstance(answer, Unscored)
        if self._heard >= FIRST_REPLIES and not self._ever_readable:
            assert isinstance(answer, Unscored)
            raise ChatServerError(
                f"none of the first {self._heard} replies could be read, the last: {answer.reason}. A reasoning model needs "
                f"a higher cap on its replies; another one may be too small to follow the instructions. Raise the cap or "
                f"take another model."
            )

    def _learn(self, request: ChatRequest, value: Mapping[str, Any], *, stored: bool) -> T | Unscored:
        """Count a stored reply and read it."""
        prompt, completion = value["prompt_tokens"], value["completion_tokens"]
        text, error = (None, CUT_OFF) if value.get("cut") else (value["text"], None)
        self._known[request] = reply = Reply(text, error, prompt, completion)
        self._asker.usage.add_reply(self._key(request), prompt, completion, stored=stored)
        return self._read(reply)

    def _key(self, request: ChatRequest) -> str:
        return reply_key(request, identity=self._identity, version=self._version)

    def _read(self, reply: Reply) -> T | Unscored:
        if reply.text is None:
            return Unscored(f"no reply: {reply.error}")
        try:
            return self._parse(reply.text)
        except ValueError as error:
            return Unscored(f"unreadable reply, {error}: {' '.join(reply.text.split())[:QUOTED]!r}")
