"""Concurrent calls: their number, the order of replies, and calls in flight at an interrupt."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from atwu.judge import client
from atwu.judge.chat_model import Reply
from atwu.judge.client import OpenAIChat
from tests.judge.conftest import ask, make_request, stats

pytest.importorskip("openai")

pytestmark = pytest.mark.usefixtures("surroundings")


def test_concurrency_is_used_and_never_exceeded(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/slow/v1", concurrency=4)
    ask(chat, [make_request(f"REPLY: {index}") for index in range(16)])
    assert stats(server, "slow")[1] == 4


def test_replies_are_returned_as_soon_as_they_arrive(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2, max_retries=0)
    order: list[int] = []
    chat.complete(
        [make_request("BEHAVE:always-timeout"), make_request(), make_request()],
        lambda index, reply: order.append(index),
    )
    assert order == [1, 2, 0]


def test_a_rate_limit_pauses_every_worker(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/rate-limit-once/v1", concurrency=2)
    assert len(ask(chat, [make_request(f"REPLY: {index}") for index in range(6)])) == 6
    count, _, arrivals = stats(server, "rate-limit-once")
    assert count == 7
    early = [moment for moment in arrivals if moment - arrivals[0] < 0.5]
    assert len(early) <= 3, "the first, and what was on its way before its answer came"


class _StopError(Exception):
    pass


@pytest.mark.parametrize("kind", [_StopError, KeyboardInterrupt])
def test_an_exception_starts_no_new_request_and_keeps_replies_in_flight(server: str, kind: type[BaseException]) -> None:
    behaviour = f"slow-{kind.__name__}"
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", concurrency=3)
    kept: list[int] = []

    def on_reply(index: int, reply: Reply) -> None:
        kept.append(index)
        if len(kept) == 4:
            raise kind

    with pytest.raises(kind):
        chat.complete([make_request(f"REPLY: {index}") for index in range(40)], on_reply)
    assert len(kept) == len(set(kept)) == stats(server, behaviour)[0] <= 6


def test_an_interrupt_keeps_replies_in_flight(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/slow-interrupt/v1", concurrency=3)
    kept: list[int] = []
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        chat.complete([make_request(f"REPLY: {index}") for index in range(60)], lambda index, reply: kept.append(index))
    timer.join()
    assert 0 < len(kept) < 60
    assert len(kept) == len(set(kept)) == stats(server, "slow-interrupt")[0]


def test_stopping_does_not_wait_for_retries(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_FIRST_DELAY", 30.0)
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2)

    def stop(index: int, reply: Reply) -> None:
        raise _StopError

    start = time.monotonic()
    with pytest.raises(_StopError):
        chat.complete([make_request("BEHAVE:always-error-503"), make_request("BEHAVE:slow")], stop)
    assert time.monotonic() - start < 5


WAITING = """
import sys
from atwu.data.schema import Message
from atwu.judge.chat_model import ChatRequest
from atwu.judge.client import OpenAIChat
requests = [ChatRequest((Message("user", str(number)),), 9) for number in range(5)]
OpenAIChat("tiny", base_url=sys.argv[1], concurrency=2).complete(requests, lambda index, reply: None)
"""


def test_the_first_interrupt_waits_with_a_message_and_the_second_exits(server: str) -> None:
    command = [sys.executable, "-c", WAITING, f"{server}/stuck/v1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        try:
            while stats(server, "stuck")[0] < 2:
                assert child.poll() is None
                time.sleep(0.05)
            os.kill(child.pid, signal.SIGINT)
            assert child.stderr is not None
            assert re.search(r"\b2 calls.*Ctrl-C", child.stderr.readline())
            time.sleep(0.5)
            assert child.poll() is None
            os.kill(child.pid, signal.SIGINT)
            assert child.wait(15) != 0, "before the server would have answered"
        finally:
            child.kill()
    assert stats(server, "stuck")[0] == 2
