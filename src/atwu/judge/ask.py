"""The one way to a chat model: looks replies up first, sends each open question once, stores every reply as it comes.

A reply that cannot be read is asked for again with the next seed, a few times; then the question is unscored, with the
reason. So it is at once if the reply was cut before any text, which is stored, or if the call failed (the model has its
own retries), which is not, so that the next run asks again. Processes that share a store share its replies: each looks
again before every slice and goes through the slices in an order of its own, so that only what is in flight in two of them
at once is paid for twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tqdm.auto import tqdm

from atwu.errors import BudgetReached
from atwu.judge.answers import CUT, Answer, Failure, Metered
from atwu.judge.budget import Budget, Estimate, Tally, Usage, estimate, prompt_tokens, text_tokens
from atwu.judge.cache import ReplyCache, reply_key
from atwu.judge.chat import ChatModel, ChatRequest, Reply
from atwu.judge.client import ChatServerError

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
        cache: ReplyCache | None,
        *,
        budget: Budget | None = None,
        progress: bool = True,
        attempts: int = 3,
    ) -> None:
        """Ask nothing yet.

        Args:
            model: answers what is not stored.
            cache: the store; None: nothing is kept.
            budget: prices and limit.
            progress: whether to show a tqdm bar while calls are made.
            attempts: how often a question is put until its reply can be read, at least 1.

        Raises:
            ValueError: attempts below 1, or a limit without a store.
        """
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}.")
        self.budget = budget or Budget()
        if cache is None and self.budget.max_cost is not None:
            raise ValueError("max_cost needs a cache, or what was paid for is lost when the limit is reached.")
        self.model = model
        self.cache = cache
        self.progress = progress
        self.attempts = attempts
        self._identity = dict(model.identity)
        self._metered = model if isinstance(model, Metered) else None
        self._tally = Tally(self.budget)
        self._heard = 0
        self._ever_readable = self._stopped = False

    def afresh(self) -> Asker:
        """The same model, store and budget with the counters at zero."""
        return Asker(self.model, self.cache, budget=self.budget, progress=self.progress, attempts=self.attempts)

    @property
    def usage(self) -> Usage:
        """Counters since the start."""
        return self._tally.usage

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
            requests: the questions.
            parse: reads a reply; raises ValueError if it cannot.
            version: of the rubric the requests were made from.
            description: of the progress bar.

        Returns:
            One answer per request, in their order.

        Raises:
            BudgetReached: going on could cost more than allowed.
            ChatServerError: none of the first replies could be read, or what the model raises.
            CacheError: replies could not be stored; found out before anything is sent.
        """
        counts = Counter(requests)
        answers: dict[ChatRequest, T | Unscored] = {}
        pending = list(counts)
        for attempt in range(self.attempts):
            tries = {request: self._put(request, attempt) for request in pending}
            replies = self._look_up(list(tries.values()), version)
            missing = [put for put in tries.values() if put not in replies]
            whole = self._send(missing, replies, parse, version, description)
            answers |= {request: _read(replies[put], parse) for request, put in tries.items() if put in replies}
            if not whole:
                judged = sum(counts[request] for request, answer in answers.items() if not isinstance(answer, Unscored))
                raise BudgetReached(
                    spent=self.budget.spent, limit=self.budget.max_cost or 0.0, unjudged=len(requests) - judged
                )
            pending = [
                request
                for request, put in tries.items()
                if isinstance(answers[request], Unscored) and replies[put].error is None
            ]
            if not pending:
                break
        return [answers[request] for request in requests]

    def stored(self, requests: Sequence[ChatRequest], parse: Callable[[str], T], *, version: str) -> list[T | None]:
        """Answers as far as they can be had from the store; None for the others. Sends and counts nothing."""
        answers, _ = self._from_store(requests, parse, version)
        return [answers.get(request) for request in requests]

    def estimate(self, requests: Sequence[ChatRequest], parse: Callable[[str], T], *, version: str) -> Estimate:
        """What `ask` would send now, if every reply can be read. Sends and counts nothing."""
        _, missing = self._from_store(requests, parse, version)
        return self.price(missing)

    def price(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What it takes to send all of these once."""
        return estimate([self._put(request, 0) for request in requests], self.budget.prices)

    def _from_store(
        self, requests: Sequence[ChatRequest], parse: Callable[[str], T], version: str
    ) -> tuple[dict[ChatRequest, T], list[ChatRequest]]:
        """Readable answers in the store, and what would have to be sent next for the others."""
        answers: dict[ChatRequest, T] = {}
        missing: dict[ChatRequest, None] = {}
        pending = list(dict.fromkeys(requests))
        for attempt in range(self.attempts):
            tries = {request: self._put(request, attempt) for request in pending}
            replies = self._look_up(list(tries.values()), version, count=False)
            missing |= dict.fromkeys(put for put in tries.values() if put not in replies)
            read = {request: _read(replies[put], parse) for request, put in tries.items() if put in replies}
            answers |= {request: answer for request, answer in read.items() if not isinstance(answer, Unscored)}
            pending = [request for request in read if request not in answers and replies[tries[request]].error is None]
        return answers, list(missing)

    def _put(self, request: ChatRequest, attempt: int) -> ChatRequest:
        """The request as it is sent: the model's own cap, and a seed for each attempt."""
        cap = self._metered.max_tokens if self._metered else None
        return replace(request, seed=request.seed + attempt, max_tokens=cap or request.max_tokens)

    def _key(self, request: ChatRequest, version: str) -> str:
        return reply_key(request, identity=self._identity, version=version)

    def _look_up(
        self, requests: Sequence[ChatRequest], version: str, *, count: bool = True
    ) -> dict[ChatRequest, Reply]:
        """Stored replies."""
        if self.cache is None:
            return {}
        keys = {request: self._key(request, version) for request in requests}
        values = self.cache.get_many(keys.values())
        replies = {}
        for request, key in keys.items():
            if key in values:
                reply = replies[request] = _from_value(values[key])
                if count:
                    self._tally.found(key, reply.prompt_tokens, reply.completion_tokens)
        return replies

    def _send(
        self,
        requests: Sequence[ChatRequest],
        replies: dict[ChatRequest, Reply],
        parse: Callable[[str], T],
        version: str,
        description: str,
    ) -> bool:
        """Put the requests to the model and their replies into `replies`; False if the budget ended before the last."""
        if self.cache is not None and requests:
            self.cache.check()
        size = max(SLICE, 4 * self._metered.concurrency) if self._metered else SLICE
        slices = [requests[start : start + size] for start in range(0, len(requests), size)]
        random.Random().shuffle(slices)
        hidden = not (self.progress and requests)
        with tqdm(total=len(requests), desc=description, unit="call", disable=hidden) as bar:
            for part in slices:
                found = self._look_up(part, version)
                replies |= found
                bar.update(len(found))
                part = [request for request in part if request not in found]
                while part:
                    fitting = self.budget.fitting(part)
                    if not fitting:
                        return False
                    self._complete(part[:fitting], replies, parse, version, bar)
                    if self._stopped:
                        return False
                    part = part[fitting:]
        return True

    def _complete(
        self,
        part: Sequence[ChatRequest],
        replies: dict[ChatRequest, Reply],
        parse: Callable[[str], T],
        version: str,
        bar: Any,
    ) -> None:
        """Send requests that fit the budget."""

        def on_answer(index: int, answer: Answer) -> None:
            self._tally.sent += 1
            replies[part[index]] = self._keep(part[index], answer, parse, version)
            bar.update()

        def on_waste(index: int, failure: Failure) -> bool:
            self._tally.waste(part[index], failure.prompt_tokens, failure.completion_tokens)
            still_open = [request for request in part if request not in replies]
            if failure.again and self.budget.fitting(still_open) < len(still_open):
                self._stopped = True
                return False
            return True

        self._stopped = False
        if self._metered is not None:
            self._metered.complete_metered(part, on_answer, on_waste)
        else:
            self.model.complete(part, lambda index, reply: on_answer(index, Answer(reply)))
        for request in part:
            replies.setdefault(request, Reply(error="the model gave no reply"))

    def _keep(self, request: ChatRequest, answer: Answer, parse: Callable[[str], T], version: str) -> Reply:
        """Book and store a reply; what comes back is the stored one."""
        reply, cut = answer.reply, answer.failure is not None and answer.failure.cut
        if reply.text is None and not cut:
            if reply.prompt_tokens or reply.completion_tokens:
                self._tally.waste(request, reply.prompt_tokens, reply.completion_tokens)
            return reply if reply.error else replace(reply, error="the model gave no text")
        # A server that does not report tokens is booked with the estimate.
        prompt = reply.prompt_tokens or prompt_tokens(request)
        completion = reply.completion_tokens or (request.max_tokens if cut else text_tokens(reply.text or ""))
        self.budget.add(request, prompt=prompt, completion=completion)
        text = reply.text or ""
        reply = Reply(None if cut else text, CUT if cut else None, prompt, completion)
        read, key = _read(reply, parse), self._key(request, version)
        if self.cache is not None:
            value = {"text": text, "prompt_tokens": prompt, "completion_tokens": completion}
            marks = {"readable": not isinstance(read, Unscored)} | ({"cut": True} if cut else {})
            served = {"served": dict(answer.served)} if answer.served else {}
            reply = _from_value(self.cache.put(key, value | marks | served))
        self._tally.tokens[key] = (reply.prompt_tokens, reply.completion_tokens)
        self._heard += 1
        self._ever_readable |= not isinstance(read, Unscored)
        if self._heard >= FIRST_REPLIES and not self._ever_readable:
            assert isinstance(read, Unscored)
            raise ChatServerError(
                f"none of the first {self._heard} replies could be read, the last: {read.reason}. A reasoning model needs a "
                f"higher cap on its replies; another one may be too small to follow the instructions. Raise the cap or "
                f"take another model."
            )
        return reply


def _from_value(value: Mapping[str, Any]) -> Reply:
    cut = value.get("cut", False)
    text, error = (None, CUT) if cut else (value["text"], None)
    return Reply(text, error, value["prompt_tokens"], value["completion_tokens"])


def _read(reply: Reply, parse: Callable[[str], T]) -> T | Unscored:
    if reply.text is None:
        return Unscored(f"no reply: {reply.error}")
    try:
        return parse(reply.text)
    except ValueError as error:
        return Unscored(f"unreadable reply, {error}: {' '.join(reply.text.split())[:QUOTED]!r}")
