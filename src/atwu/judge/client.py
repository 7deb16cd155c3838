"""A chat model behind an OpenAI-compatible server: a hosted one, vLLM, llama.cpp, `transformers serve`.

Each try has a thread of its own; all decisions are taken in the calling thread. Retrying is done here: one budget also
covers replies that arrive but cannot be used, a rate limit holds back everything, and no try is waited for longer than its
time. The key comes from the environment and is in nothing that is logged, raised or returned.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tqdm.auto import tqdm

from atwu.judge.answers import Answer, Failure
from atwu.judge.chat import ChatRequest, Reply
from atwu.judge.endpoint import find_endpoint
from atwu.judge.flights import Flights, Job
from atwu.judge.transport import Transport, quiet

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 8.0
_CROWDED_PATIENCE = 60.0
"""Seconds over which the tries are spread at least when a server limits the rate without saying for how long."""
_HOPELESS = 20
"""Requests that failed one after the other until no more are tried."""
_JITTER = random.Random()


class ChatServerError(ConnectionError):
    """Something would fail every request alike, so the rest was not tried."""


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
        max_tokens: int | None = None,
    ) -> None:
        """Set up a client; nothing is sent yet.

        Args:
            model: the server's name of the model.
            base_url: address up to and including `/v1`; None takes `OPENAI_BASE_URL` or the hosted API. A user and
                password, or a query, in it are sent but never shown.
            api_key_env: environment variable that holds the key. Only the hosted API must have one.
            concurrency: most requests in flight at once.
            timeout: seconds that a try may take from sending to the end of its reply.
            max_retries: tries after the first, with growing pauses, for rate limits, timeouts, server errors, cut
                connections and unusable replies.
            max_tokens: cap on every reply in place of the requests' own; a reasoning model needs some thousands.

        Raises:
            ValueError: a setting out of range, an address that is none, or no usable key for the hosted API.
            ImportError: the openai package is missing.
        """
        if not model:
            raise ValueError("model is empty; name a model of the server.")
        if concurrency < 1 or max_retries < 0 or timeout <= 0 or (max_tokens is not None and max_tokens < 1):
            raise ValueError(
                "concurrency must be at least 1, max_retries 0 or more, timeout above 0 and max_tokens at least 1, got "
                f"{concurrency}, {max_retries}, {timeout} and {max_tokens}."
            )
        self._endpoint = find_endpoint(base_url, api_key_env)
        self.concurrency, self.max_tokens = concurrency, max_tokens
        self._model, self._timeout, self._max_retries = model, timeout, max_retries
        self._answered, self._failed_in_a_row = False, 0
        self._transport = Transport(model, self._endpoint, timeout)

    def __repr__(self) -> str:
        return f"OpenAIChat({self._model!r}, base_url={self._endpoint.url!r})"

    @property
    def identity(self) -> Mapping[str, Any]:
        """Kind, model, address without user and password, and the cap if it is set here."""
        cap = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        return {"kind": "openai", "model": self._model, **self._endpoint.identity, **cap}

    def complete(self, requests: Sequence[ChatRequest], on_reply: Callable[[int, Reply], None]) -> None:
        """Answer all requests, in any order, several at a time.

        An interrupt or an exception of `on_reply` starts no more requests; those in flight have been paid for, so their
        replies are still handed over before it is raised again. A second interrupt drops them.

        Args:
            requests: the conversations.
            on_reply: called once per request with its index and reply, in the calling thread, as soon as it is there.
                Its tokens are those of all tries as far as the server reports them.

        Raises:
            ChatServerError: no request can succeed: refused key, unknown model, no server, no quota left; or many
                failed one after the other.
        """
        wasted: dict[int, list[Failure]] = defaultdict(list)

        def on_waste(index: int, failure: Failure) -> bool:
            wasted[index].append(failure)
            return True

        def on_answer(index: int, answer: Answer) -> None:
            reply = answer.reply
            prompt = reply.prompt_tokens + sum(failure.prompt_tokens for failure in wasted[index])
            completion = reply.completion_tokens + sum(failure.completion_tokens for failure in wasted[index])
            on_reply(index, replace(reply, prompt_tokens=prompt, completion_tokens=completion))

        self.complete_metered(requests, on_answer, on_waste)

    def complete_metered(
        self,
        requests: Sequence[ChatRequest],
        on_answer: Callable[[int, Answer], None],
        on_waste: Callable[[int, Failure], bool],
    ) -> None:
        """See `Metered.complete_metered`; otherwise as `complete`."""
        if self.max_tokens is not None:
            requests = [replace(request, max_tokens=self.max_tokens) for request in requests]
        self._complete(requests, on_answer, on_waste)

    def _complete(
        self,
        requests: Sequence[ChatRequest],
        on_answer: Callable[[int, Answer], None],
        on_waste: Callable[[int, Failure], bool],
    ) -> None:
        flights = Flights(self._transport.send, self._timeout)
        todo = (Job(index, request) for index, request in enumerate(requests))
        waiting: list[Job] = []
        held_until = 0.0
        with flights.interruptible(), quiet():
            try:
                while True:
                    waiting += itertools.islice(todo, self.concurrency - len(waiting) - len(flights.jobs))
                    now = time.monotonic()
                    for job in [job for job in waiting if max(job.due, held_until) <= now]:
                        waiting.remove(job)
                        flights.start(job)
                    if not waiting and not flights.jobs:
                        return
                    moments = [max(job.due, held_until) for job in waiting]
                    landed = flights.land(min(moments, default=math.inf))
                    if landed is None:
                        continue
                    job, outcome = landed
                    if isinstance(outcome, Answer):
                        self._answered, self._failed_in_a_row = True, 0
                        on_answer(job.index, outcome)
                    elif self._again(job, outcome, on_waste):
                        delay = self._delay(job, outcome)
                        job.due = time.monotonic() + delay * _JITTER.uniform(1, 1.25)
                        waiting.append(job)
                        if outcome.crowded:
                            held_until = max(held_until, time.monotonic() + delay)
                    else:
                        self._give_up(job, outcome, on_answer)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and flights.jobs:
                    note = f"stopping: {len(flights.jobs)} calls in flight are waited for; Ctrl-C again drops them"
                    tqdm.write(note, file=sys.stderr)
                while flights.jobs:
                    if (landed := flights.land()) is not None:
                        job, outcome = landed
                        with suppress(Exception):
                            if isinstance(outcome, Answer):
                                on_answer(job.index, outcome)
                            elif outcome.billed:
                                on_waste(job.index, replace(outcome, again=False))
                raise

    def _again(self, job: Job, failure: Failure, on_waste: Callable[[int, Failure], bool]) -> bool:
        """Whether to send once more."""
        again = failure.again and not failure.fatal and job.tries <= self._max_retries
        allowed = on_waste(job.index, replace(failure, again=again)) if failure.billed else True
        return again and allowed

    def _delay(self, job: Job, failure: Failure) -> float:
        """Seconds until the next try."""
        if failure.wait is not None:
            return failure.wait
        doubled: int = 2 ** (job.tries - 1)
        # All pauses of a crowded server add up to the patience.
        share = _CROWDED_PATIENCE * doubled / (2**self._max_retries - 1) if failure.crowded else 0.0
        return max(share, min(_LONGEST_DELAY, _FIRST_DELAY * doubled))

    def _give_up(self, job: Job, failure: Failure, on_answer: Callable[[int, Answer], None]) -> None:
        """Hand over an error, or raise what concerns every request."""
        if failure.fatal or (failure.suspect and not self._answered):
            raise ChatServerError(failure.words)
        url = self._endpoint.url
        if failure.unreachable:
            raise ChatServerError(f"no connection to {url} in {job.tries} tries; is the server running?")
        words = failure.words + (f" (tried {job.tries} times)" if job.tries > 1 else "")
        prompt, completion = (failure.prompt_tokens, failure.completion_tokens) if failure.cut else (0, 0)
        on_answer(job.index, Answer(Reply(None, words, prompt, completion), failure))
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _HOPELESS:
            self._failed_in_a_row = 0
            raise ChatServerError(
                f"{_HOPELESS} requests in a row failed at {url}, the last one: {words}. The rest was not sent. If the "
                f"server is overloaded, run again later, with fewer requests at once or a longer timeout."
            )
