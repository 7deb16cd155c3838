"""Keys of runs: plain JSON, and what differs between two of them is named."""

from __future__ import annotations

import json
from pathlib import Path

from atwu._cache import key_differences, run_key


def key(**changes: object) -> dict[str, object]:
    parts = {
        "options": {"seed": 1, "space": {"beta": (0.1, 5.0)}},
        "model": "a1",
        "rows": {"forget": "b2"},
        "inputs": {"words": Path("words.txt")},
    }
    return run_key("unlearn", **parts | changes)


def test_a_key_equals_the_one_that_is_read_from_its_file() -> None:
    assert json.loads(json.dumps(key())) == key()
    assert key()["options"] == {"seed": 1, "space": {"beta": [0.1, 5.0]}}


def test_every_difference_is_named_by_its_place() -> None:
    other = key(options={"seed": 2, "space": {"beta": (0.1, 9.0)}}, model="a9", rows={"forget": "b2", "retain": "c3"})
    assert key_differences(key(), other) == ["model", "options.seed", "options.space.beta", "rows.retain"]
    assert key_differences(key(), key()) == []
