"""The table of the default's parts, on a tiny model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from atwu.benchmarks.people_rows import people
from atwu.data.row_parsing import write_rows

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.night  # it trains two models to measure them
def test_variants_of_the_default_are_trained_and_measured(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    import ingredients

    rows, table = tmp_path / "forget.jsonl", tmp_path / "table.jsonl"
    write_rows(rows, people("tiny").forget[:4])
    options = {"--model": str(target), "--forget": str(rows), "--steps": "6", "--output": str(table)}
    named = [word for option in options.items() for word in option]
    monkeypatch.setattr(sys, "argv", ["ingredients.py", *named, "--only", "none", "all"])
    ingredients.main()
    before, none, every = (json.loads(line) for line in table.read_text(encoding="utf-8").splitlines())
    assert [each["variant"] for each in (before, none, every)] == ["before", "none", "all"]
    probability = "forget key_token_probability"
    assert max(none[probability], every[probability]) < before[probability]
    assert every["forget refusal"] >= none["forget refusal"]
    assert 0 <= every["worst untrained form"] <= 1
