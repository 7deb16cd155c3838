"""Thousands of damaged inputs are read correctly or rejected in one line (`python -m tests.fuzz.run` tries more)."""

from __future__ import annotations

import pytest

from tests.fuzz.run import BAD, fuzz, table
from tests.fuzz.targets import TARGETS

TRIES = 3_000


@pytest.mark.night  # by day: tests/damaged_files
def test_damaged_inputs_give_no_traceback_and_no_wrong_value_is_accepted():
    counts, messages = fuzz(TRIES, seed=0)
    assert not messages, table(counts) + "\n" + "\n".join(f"{key}: {found[0]}" for key, found in messages.items())
    assert all(counts[name]["accepted"] for name in TARGETS), "a target that rejects every input tests nothing"
    assert all(not found[kind] for found in counts.values() for kind in BAD)
