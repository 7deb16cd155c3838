"""The one way to a chat model: looks replies up first, sends each open question once, stores every reply as it comes.

A reply that cannot be read is asked for again with the next seed, a few times; then the question is unscored, with the
reason. A failed call is unscored at once (the model has its own retries) and not stored, so the next run asks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tqdm.auto import tqdm

from atwu.judge.budget import Budget, BudgetReached, Estimate, estimate, prompt_tokens, text_tokens
from atwu.judge.cache import ReplyCache, reply_key
from atwu.judge.chat import ChatModel, ChatRequest, Reply

T = TypeVar("T")

SLICE = 64
"""Requests handed over at a time under a limit, which is checked in between."""
QUOTED = 80
"""Characters of an unreadable reply that are shown."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """In place of an answer: there is none."""

    reason: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls and tokens. All but `sent` against `stored` is the same, however often the work was interrupted."""

    sent: int
    """Calls made now, failed ones included."""
    stored: int
    """Calls answered from the store."""
    prompt_tokens: int
    """Of all replies used, sent now or stored, each counted once."""
    completion_tokens: int
    usd: float | None
    """Price of these tokens; None: no prices were given."""


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
        self._sent = self._stored = 0
        self._tokens: dict[str, tuple[int, int]] = {}

    def afresh(self) -> Asker:
        """The same model, store and budget with the counters at zero."""
        return Asker(self.model, self.cache, budget=self.budget, progress=self.progress, attempts=self.attempts)

    @property
    def usage(self) -> Usage:
        """Counters since the start."""
        prompt, completion = (sum(counts[side] for counts in self._tokens.values()) for side in (0, 1))
        prices = self.budget.prices
        usd = prices.cost(prompt, completion) if prices else None
        return Usage(self._sent, self._stored, prompt, completion, usd)

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
        """
        counts = Counter(requests)
        answers: dict[ChatRequest, T | Unscored] = {}
        pending = list(counts)
        for attempt in range(self.attempts):
            tries = {request: _again(request, attempt) for request in pending}
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
        return estimate(missing, self.budget.prices)

    def _from_store(
        self, requests: Sequence[ChatRequest], parse: Callable[[str], T], version: str
    ) -> tuple[dict[ChatRequest, T], list[ChatRequest]]:
        """Readable answers in the store, and what would have to be sent next for the others."""
        answers: dict[ChatRequest, T] = {}
        missing: dict[ChatRequest, None] = {}
        pending = list(dict.fromkeys(requests))
        for attempt in range(self.attempts):
            tries = {request: _again(request, attempt) for request in pending}
            replies = self._look_up(list(tries.values()), version, count=False)
            missing |= dict.fromkeys(put for put in tries.values() if put not in replies)
            read = {request: _read(replies[put], parse) for request, put in tries.items() if put in replies}
            answers |= {request: answer for request, answer in read.items() if not isinstance(answer, Unscored)}
            pending = [request for request, answer in read.items() if isinstance(answer, Unscored)]
        return answers, list(missing)

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
                if count and key not in self._tokens:
                    self._stored += 1
                    self._tokens[key] = (reply.prompt_tokens, reply.completion_tokens)
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
        done = 0
        hidden = not (self.progress and requests)
        with tqdm(total=len(requests), desc=description, unit="call", disable=hidden) as bar:
            while done < len(requests):
                part = requests[done:] if self.budget.max_cost is None else requests[done : done + SLICE]
                part = part[: self.budget.fitting(part)]
                if not part:
                    return False

                def on_reply(index: int, reply: Reply, part: Sequence[ChatRequest] = part) -> None:
                    self._sent += 1
                    replies[part[index]] = self._keep(part[index], reply, parse, version)
                    bar.update()

                self.model.complete(part, on_reply)
                for request in part:
                    replies.setdefault(request, Reply(error="the model gave no reply"))
                done += len(part)
        return True

    def _keep(self, request: ChatRequest, reply: Reply, parse: Callable[[str], T], version: str) -> Reply:
        """Book and store a reply; what comes back is the stored one."""
        if reply.text is None:
            self.budget.add(request, prompt=reply.prompt_tokens, completion=reply.completion_tokens)
            return reply if reply.error else replace(reply, error="the model gave no text")
        # A server that does not report tokens is booked with the estimate.
        prompt = reply.prompt_tokens or prompt_tokens(request)
        completion = reply.completion_tokens or text_tokens(reply.text)
        self.budget.add(request, prompt=prompt, completion=completion)
        reply = Reply(reply.text, None, prompt, completion)
        key = self._key(request, version)
        if self.cache is not None:
            readable = not isinstance(_read(reply, parse), Unscored)
            stored = self.cache.put(
                key,
                {"text": reply.text, "prompt_tokens": prompt, "completion_tokens": completion, "readable": readable},
            )
            reply = _from_value(stored)
        self._tokens[key] = (reply.prompt_tokens, reply.completion_tokens)
        return reply


def _again(request: ChatRequest, attempt: int) -> ChatRequest:
    return replace(request, seed=request.seed + attempt)


def _from_value(value: Mapping[str, Any]) -> Reply:
    return Reply(value["text"], None, value["prompt_tokens"], value["completion_tokens"])


def _read(reply: Reply, parse: Callable[[str], T]) -> T | Unscored:
    if reply.text is None:
        return Unscored(f"no reply: {reply.error}")
    try:
        return parse(reply.text)
    except ValueError as error:
        return Unscored(f"unreadable reply, {error}: {' '.join(reply.text.split())[:QUOTED]!r}")
