"""Three thousand damaged inputs (`python -m tests.fuzz.run` takes more): each is accepted and right, or refused in one line."""

from __future__ import annotations

import pytest

from tests.fuzz.run import BAD, fuzz, table
from tests.fuzz.targets import TARGETS

TRIES = 3_000
PARTS = 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_ends_in_a_traceback_and_nothing_wrong_comes_through(part):
    counts, said = fuzz(TRIES // PARTS, seed=part)
    assert not said, table(counts) + "\n" + "\n".join(f"{key}: {messages[0]}" for key, messages in said.items())
    assert all(counts[name]["right"] for name in TARGETS), "a target that refuses everything shows nothing"
    assert all(not found[kind] for found in counts.values() for kind in BAD)
