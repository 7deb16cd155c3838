"""Calls of the prompted judge: cached, repeated or unscored; no call is made twice."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from atwu.judge.chat_model import CORRECTNESS, PREFERENCE, ChatRequest
from atwu.judge.reply_cache import ReplyCache, reply_key
from atwu.judge.verdicts import Pair, Verdict
from tests.judge.conftest import NO, YES, Fake, claim, judge

FORK = multiprocessing.get_context("fork")


BROKEN = "I would say it is right, more or less, but " + "hm " * 100


def test_a_second_evaluation_needs_no_call_and_gives_the_same_counts(cache):
    claims = [claim(f"Answer {number}.") for number in range(20)]
    first = judge(Fake(), cache)
    again = judge(Fake(), cache)
    assert first.judge(claims) == again.judge(claims) == again.judge(claims)
    assert again.asker.model.asked == []
    assert len(first.asker.model.asked) == first.asker.cost["judge_calls"] == again.asker.cost["judge_calls"] == 20
    assert first.asker.cost == {"judge_calls": 20, "judge_prompt_tokens": 2000, "judge_reply_tokens": 200}
    assert (first.asker.budget.sent, again.asker.budget.sent) == (20, 0)


def test_unreadable_replies_are_requested_again_with_other_seeds(cache):
    model = Fake(lambda request: YES if request.seed == 44 else BROKEN)
    assert judge(model, cache).judge([claim()]) == [Verdict(True, "stated")]
    assert [request.seed for request in model.asked] == [42, 43, 44]
    assert judge(Fake(), cache).judge([claim()]) == [Verdict(True, "stated")]
    assert cache.count() == 3


def test_claims_without_a_readable_reply_are_unscored(cache):
    model = Fake(lambda request: BROKEN if "odd" in request.messages[1].content else NO)
    verdicts = judge(model, cache).judge([claim(), claim("Odd.")])
    assert [verdict.correct for verdict in verdicts] == [False, None]
    quoted = verdicts[1].reason.partition(": ")[2]
    assert "'I would say" in verdicts[1].reason
    assert len(quoted) == 82
    assert len(model.asked) == 1 + 3
    silent = Fake(lambda request: ValueError("must not be asked"))
    assert judge(silent, cache).judge([claim(), claim("Odd.")]) == verdicts
    assert silent.asked == []


def test_failed_calls_are_unscored_and_not_cached(cache):
    late = TimeoutError("no reply within 60 seconds")
    model = Fake(lambda request: YES if "odd" in request.messages[1].content else late)
    failed, _ = judge(model, cache).judge([claim(), claim("Odd.")])
    assert failed.correct is None
    assert "no reply within 60 seconds" in failed.reason
    assert (len(model.asked), cache.count()) == (2, 1)
    assert judge(Fake(), cache).judge([claim()])[0].correct is True


def test_a_request_without_reply_is_unscored():
    class Forgetful(Fake):
        def complete(self, requests, on_reply):
            super().complete(requests[1:], lambda index, reply: on_reply(index + 1, reply))

    assert [verdict.correct for verdict in judge(Forgetful()).judge([claim(), claim("No.")])] == [None, True]


def test_the_estimate_equals_the_requests_sent(cache):
    """Answers that are cached, partly cached (one unreadable attempt), repeated, empty and new."""
    unlucky = Fake(lambda request: BROKEN if "unlucky" in request.messages[1].content else YES)
    judge(unlucky, cache, attempts=1).judge([claim("Old."), claim("Unlucky.")])
    claims = [claim(text) for text in ("Old.", "Unlucky.", "New.", "new. ", "", "Newer.")]
    pairs = [Pair("a", "b", "c")] * 2
    model = Fake(
        lambda request: YES if request.messages[0].content == CORRECTNESS.system else '{"first": 1, "second": 2}'
    )
    asking = judge(model, cache)
    estimated = asking.estimate(claims, pairs)
    assert model.asked == []
    assert asking.asker.used == {}
    asking.judge(claims)
    asking.prefer(pairs)
    assert estimated.calls == len(model.asked) == 4
    assert estimated.completion_tokens == 3 * CORRECTNESS.max_tokens + PREFERENCE.max_tokens
    assert asking.estimate(claims, pairs).calls == 0


def test_the_cache_contains_no_text_of_the_conversation(cache, tmp_path):
    judge(Fake(), cache).judge([claim()])
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"stated" in content
    assert b"Kelbury" not in content
    assert b"kelbury" not in content


class Logged(Fake):
    """A slow, sometimes unreadable model that logs each request to a file before it replies."""

    def __init__(self, log: Path) -> None:
        super().__init__(self.answer)
        self.log = log

    def answer(self, request: ChatRequest) -> str:
        with self.log.open("a") as file:
            file.write(reply_key(request, self.identity) + "\n")
        time.sleep(0.002)
        digest = hashlib.sha256(f"{request.messages[1].content}{request.seed}".encode()).digest()[0]
        return BROKEN if digest < 80 else YES if digest % 2 else NO


def test_kills_at_random_moments_cause_no_repeated_call(tmp_path):
    claims = [claim(f"Answer {number}.") for number in range(80)]
    store, log, draw = tmp_path / "replies.sqlite", tmp_path / "log", random.Random(1)
    log.touch()

    def work() -> None:
        judge(Logged(log), ReplyCache(store)).judge(claims)

    def stored(keys: Sequence[str]) -> set[str]:
        return set(ReplyCache(store).get_many(keys))

    kills = 3
    for _ in range(kills):
        asked_before = log.read_text().split()
        paid = stored(asked_before)
        child = FORK.Process(target=work)
        child.start()
        until = len(asked_before) + draw.randrange(1, 20)
        while len(log.read_text().splitlines()) < until:
            assert child.is_alive()
            time.sleep(0.001)
        time.sleep(draw.random() / 200)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        assert not paid & set(log.read_text().split()[len(asked_before) :])
    paid = stored(log.read_text().split())
    asked_before = len(log.read_text().split())
    assert 0 < len(paid) < 100

    cache = ReplyCache(store)
    resumed = judge(Logged(log), cache)
    verdicts = resumed.judge(claims)
    asked = log.read_text().split()
    assert not paid & set(asked[asked_before:])
    assert sum(Counter(asked).values()) - len(set(asked)) <= kills  # only a reply in flight at a kill is lost

    undisturbed = judge(Logged(tmp_path / "other"))
    assert verdicts == undisturbed.judge(claims)
    assert {verdict.correct for verdict in verdicts} == {True, False, None}
    assert resumed.asker.cost == undisturbed.asker.cost
    assert len(resumed.asker.used) == len(paid) + len(asked) - asked_before
