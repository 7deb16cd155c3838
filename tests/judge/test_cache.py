"""The cache of replies with several processes, and damage; `test_prompted_calls.py` kills processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import sqlite3
from dataclasses import replace

import pytest

from atwu.data.schema import Message
from atwu.judge.chat_model import ChatRequest
from atwu.judge.reply_cache import CacheError, ReplyCache, reply_key
from tests.damage import disk

FORK = multiprocessing.get_context("fork")
REQUEST = ChatRequest(
    (Message("system", "Check."), Message("user", "Where was Orla Venn born?")), max_tokens=100, rubric="correctness/1"
)
IDENTITY = {"kind": "openai", "model": "small", "base_url": "http://127.0.0.1:1/v1"}


def put(cache: ReplyCache, key: str, value: dict) -> dict:
    return cache.put_many({key: value})[key]


def test_values_are_read_back_and_the_first_one_is_kept(tmp_path):
    path = tmp_path / "new" / "replies.sqlite"
    cache = ReplyCache(path)
    assert cache.get_many(["a", "b"]) == {}
    first = {"text": "Kelbury \ud800 {}", "n": 1}
    assert put(cache, "a", first) == put(cache, "a", {"text": "other"}) == first
    assert ReplyCache(path).get_many(["a", "b", "a"]) == {"a": first}
    cache.put_many({str(number): {"n": number} for number in range(0, 1203, 3)})
    found = cache.get_many(str(number) for number in range(1203))
    assert found == {str(number): {"n": number} for number in range(0, 1203, 3)}


def test_the_key_covers_exactly_what_can_change_a_reply():
    key = reply_key(REQUEST, IDENTITY)
    assert key == "b8cb657b887133464741018c8f1a1de6"  # another value would discard replies that users paid for
    assert key == reply_key(replace(REQUEST), dict(reversed(IDENTITY.items())))
    others = [
        reply_key(REQUEST, IDENTITY | {"model": "large"}),
        *(
            reply_key(replace(REQUEST, **change), IDENTITY)
            for change in (
                {"messages": REQUEST.messages[1:]},
                {"messages": (Message("user", "Check."), REQUEST.messages[1])},
                {"max_tokens": 101},
                {"temperature": 0.5},
                {"seed": 43},
                {"rubric": "correctness/2"},
            )
        ),
    ]
    assert len({key, *others}) == 8


def test_processes_share_one_file(tmp_path):
    """All start at once without a file; the process that stores a shared key first decides its value for all."""
    path, start, seen = tmp_path / "replies.sqlite", FORK.Event(), FORK.SimpleQueue()

    def work(name: int) -> None:
        start.wait()
        cache = ReplyCache(path)
        shared = {}
        for number in range(20):
            put(cache, f"{name}-{number}", {"from": name})
            shared[number] = put(cache, f"shared-{number}", {"from": name})["from"]
            assert cache.get_many([f"{name}-{number}", "absent"]) == {f"{name}-{number}": {"from": name}}
        seen.put(shared)

    workers = [FORK.Process(target=work, args=(name,)) for name in range(5)]
    for worker in workers:
        worker.start()
    start.set()
    views = [seen.get() for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 5
    assert all(view == views[0] for view in views)
    cache = ReplyCache(path)
    assert cache.count() == 5 * 20 + 20
    assert cache.get_many(f"shared-{number}" for number in range(20)) == {
        f"shared-{number}": {"from": name} for number, name in views[0].items()
    }


def test_only_the_user_may_read_the_cache(tmp_path):
    path = tmp_path / "new" / "replies.sqlite"
    before = os.umask(0)
    try:
        cache = ReplyCache(path)
        put(cache, "a", {"n": 1})
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == dict.fromkeys(
        ("replies.sqlite", "replies.sqlite-wal", "replies.sqlite-shm"), 0o600
    )


def test_a_full_disk_is_named(tmp_path):
    with disk(tmp_path / "small", "1m") as small:
        cache = ReplyCache(small / "replies.sqlite")
        with pytest.raises(CacheError, match="disk is not full"):
            cache.put_many({str(number): {"text": "x" * 30_000} for number in range(40)})


@pytest.mark.parametrize(
    "damaged", ["substr(value, 1, 40)", "replace(value, 'yes', 'no')", "zeroblob(60)", "value || ' '"]
)
def test_a_damaged_reply_gives_a_warning_and_is_requested_again(damaged, tmp_path, caplog):
    path = tmp_path / "replies.sqlite"
    cache = ReplyCache(path)
    put(cache, "a", {"text": "yes"})
    put(cache, "b", {"text": "yes"})
    with sqlite3.connect(path) as plain:
        plain.execute(f"UPDATE replies SET value = {damaged} WHERE key = 'a'")
    assert cache.get_many(["a", "b"]) == {"b": {"text": "yes"}}
    (said,) = caplog.messages
    assert re.search(rf"^warning: {re.escape(str(path))}: .*\ba\b.*damaged", said)
    assert put(cache, "a", {"text": "yes"}) == {"text": "yes"}


@pytest.mark.parametrize("content", [b"not a database at all " * 400, bytes(8192), "other", None])
def test_a_file_that_is_no_cache_is_named_and_kept(content, tmp_path):
    path = tmp_path / "replies.sqlite"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "other":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE replies (id INTEGER)")
        other.close()
    else:
        path.mkdir()
    with pytest.raises(CacheError, match=r"replies\.sqlite: .*cache.*recover"):
        ReplyCache(path)
    assert not isinstance(content, bytes) or path.read_bytes() == content
