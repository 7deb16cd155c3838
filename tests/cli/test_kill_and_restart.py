"""An evaluation that is killed at any moment continues to the same bytes, and pays for no verdict twice."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from atwu.data.schema import Message
from atwu.judge.cache import reply_key
from atwu.judge.chat import ChatRequest
from atwu.judge.rubrics import CORRECTNESS
from tests.commands import Started

KILLS = 3
CONCURRENCY = 2


def arguments(models: Any, url: str, output: Path) -> list[str]:
    return [
        *("evaluate", "--model", str(models.unlearned), "--forget", "people:tiny:forget", "--limit", "12"),
        *("--retain", "people:tiny:retain", "--metrics", "memorization,rouge,judge", "--paraphrases", "4"),
        *("--max-new-tokens", "8", "--batch-tokens", "256", "--device", "cpu", "--output", str(output), "--overwrite"),
        *("--judge", "openai:m", "--judge-url", url, "--judge-concurrency", str(CONCURRENCY)),
    ]


def stored(cache: Path, scratch: Path) -> set[str]:
    """Keys in the store, read from a copy so that the next process finds what the killed one left."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for path in cache.glob("judge.sqlite*"):
        shutil.copy(path, scratch)
    if not (scratch / "judge.sqlite").is_file():
        return set()
    connection = sqlite3.connect(scratch / "judge.sqlite")
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'replies'").fetchall()
        return {key for (key,) in connection.execute("SELECT key FROM replies")} if tables else set()
    finally:
        connection.close()


def keys(bodies: list[dict[str, Any]], identity: Mapping[str, Any]) -> list[str]:
    """Under which the replies to these requests are stored."""
    return [
        reply_key(
            ChatRequest(
                tuple(Message(turn["role"], turn["content"]) for turn in body["messages"]),
                max_tokens=body["max_tokens"],
                temperature=body["temperature"],
                seed=body["seed"],
            ),
            identity=identity,
            version=CORRECTNESS.version,
        )
        for body in bodies
    ]


class Run:
    """The command, and how long it has been at work."""

    def __init__(self, command: list[str], environment: dict[str, str], cache: Path) -> None:
        self.began, self.ended = time.monotonic(), 0.0
        self.command = Started(command, env=environment | {"ATWU_CACHE": str(cache)})

    @property
    def age(self) -> float:
        return time.monotonic() - self.began

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for a moment, or for the end of the command."""
        while not until() and not self.command.ended():
            assert self.age < 120
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill everything; a command that has just ended must have ended well."""
        done = self.command.kill()
        assert done.returncode in (0, -signal.SIGKILL), done.stderr

    def finish(self) -> None:
        """Wait for a good end."""
        done = self.command.wait()
        assert done.returncode == 0, done.stderr
        self.ended = self.age


@pytest.mark.slow
def test_killed_evaluation_continues_and_pays_once(models, environment, server, tmp_path):
    # Undisturbed first, to know when it asks for its first verdict, when it has the last one, and when it ends.
    url = server.url("slow")
    whole, killed = tmp_path / "whole.json", tmp_path / "killed.json"
    undisturbed = Run(arguments(models, url, whole), environment, tmp_path / "cache_whole")
    undisturbed.wait(lambda: server.count("slow") > 0)
    first = undisturbed.age
    undisturbed.finish()
    last = first + server.arrivals("slow")[-1] - server.arrivals("slow")[0]
    claims = server.count("slow")
    identity = {"kind": "openai", "model": "m", "base_url": url}
    cache = tmp_path / "cache"
    assert set(keys(server.log("slow"), identity)) == stored(tmp_path / "cache_whole", tmp_path / "scratch")

    seed = int(time.time())
    print("seed of the moments of the kills:", seed)
    draw = random.Random(seed)
    moments = sorted(draw.uniform(0, undisturbed.ended) for _ in range(KILLS))
    print(f"first verdict at {first:.2f} s, last at {last:.2f} s of {undisturbed.ended:.2f} s; kills at {moments}")
    known: set[str] = set()
    begun = claims
    for moment in moments:
        # As far as the undisturbed run was at that moment: so old, or so many verdicts asked for, or so long after the last.
        run = Run(arguments(models, url, killed), environment, cache)
        goal = round(claims * min(1, (moment - first) / (last - first))) - len(known)
        if moment < first:
            run.wait(lambda: run.age > moment or server.count("slow") > begun)
        else:
            run.wait(lambda: server.count("slow") - begun >= goal)
            time.sleep(draw.uniform(0, 0.1) + max(0.0, moment - last))
        run.kill()
        time.sleep(0.3)  # for requests on their way
        asked = keys(server.log("slow")[begun:], identity)
        begun += len(asked)
        now = stored(cache, tmp_path / "scratch")
        assert known <= now
        assert not known & set(asked), "a stored verdict was paid for again"
        assert len(asked) == len(set(asked))
        assert len(set(asked) - now) <= CONCURRENCY, "more was lost than what was in flight"
        assert now - known <= set(asked)
        assert not killed.exists() or killed.read_bytes() == whole.read_bytes()
        known = now

    Run(arguments(models, url, killed), environment, cache).finish()
    rest = keys(server.log("slow")[begun:], identity)
    assert sorted(rest) == sorted(stored(cache, tmp_path / "scratch") - known)
    assert stored(cache, tmp_path / "scratch") == stored(tmp_path / "cache_whole", tmp_path / "scratch")
    assert server.count("slow") - claims <= claims + KILLS * CONCURRENCY
    assert killed.read_bytes() == whole.read_bytes()
