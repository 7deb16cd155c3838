"""A server that misbehaves on purpose, in another process, and a chat model with scripted replies, in this one."""

from __future__ import annotations

import json
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from atwu.data.schema import Message
from atwu.judge.asker import Asker
from atwu.judge.chat_model import ChatRequest, OnReply, Reply
from atwu.judge.prompted import PromptedJudge
from atwu.judge.reply_cache import ReplyCache
from atwu.judge.verdicts import Claim
from tests.chat_server import serving

KEY = "sk-test-Kelbury-0123456789"
VERDICT = '{"verdict": "YES", "reason": "stated"}'
YES, NO = VERDICT, '{"verdict": "NO", "reason": "refuses"}'
_CACHES = tempfile.TemporaryDirectory()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pytest.importorskip("openai")
    with serving() as started:
        yield started.root


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, no other address and no proxy, and short delays."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    return ReplyCache(tmp_path / "replies.sqlite")


def make_request(text: str = "Was Orla Venn born in Kelbury?") -> ChatRequest:
    return ChatRequest((Message("system", "You check answers."), Message("user", text)), max_tokens=20)


def ask(chat: Any, requests: Sequence[ChatRequest] | None = None) -> list[Reply]:
    requests = [make_request()] if requests is None else requests
    found: dict[int, Reply] = {}

    def keep(index: int, reply: Reply) -> None:
        assert index not in found
        assert threading.current_thread() is threading.main_thread()
        found[index] = reply

    chat.complete(requests, keep)
    assert sorted(found) == list(range(len(requests)))
    return [found[index] for index in range(len(requests))]


def stats(server: str, behaviour: str) -> tuple[int, int, list[float]]:
    with urllib.request.urlopen(f"{server}/stats", timeout=5) as response:
        found = json.load(response)
    return (
        found["counts"].get(behaviour, 0),
        found["max_concurrency"].get(behaviour, 0),
        found["arrivals"].get(behaviour, []),
    )


class Fake:
    """Answers with `reply(request)`, a text at so many tokens; an exception instance becomes a failed call."""

    identity: ClassVar[dict[str, str]] = {"kind": "fake"}
    concurrency = 1

    def __init__(
        self,
        reply: Callable[[ChatRequest], str | Exception | Reply] = lambda request: YES,
        tokens: tuple[int, int] = (100, 10),
    ) -> None:
        self.reply, self.tokens = reply, tokens
        self.asked: list[ChatRequest] = []
        self.batches: list[int] = []

    def complete(self, requests: Sequence[ChatRequest], on_reply: OnReply) -> None:
        self.batches.append(len(requests))
        for index, request in enumerate(requests):
            self.asked.append(request)
            said = self.reply(request)
            reply = Reply(error=str(said)) if isinstance(said, Exception) else said
            on_reply(index, Reply(reply, None, *self.tokens) if isinstance(reply, str) else reply)

    @property
    def prompts(self) -> list[str]:
        return [request.messages[-1].content for request in self.asked]


def claim(answer: str = "She was born in Kelbury.", question: str = "Where was Orla Venn born?") -> Claim:
    return Claim(question, "Orla Venn was born in Kelbury.", answer)


def empty_cache() -> ReplyCache:
    return ReplyCache(Path(tempfile.mkdtemp(dir=_CACHES.name)) / "replies.sqlite")


def judge(model: Fake, cache: ReplyCache | None = None, **settings) -> PromptedJudge:
    return PromptedJudge(Asker(model, cache or empty_cache(), progress=False, **settings))
