"""Benchmarks by name: their sources, their evaluation rows, and rejected names."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from atwu.benchmarks import catalog
from atwu.benchmarks.base import rows_to_measure
from atwu.benchmarks.people_rows import PEOPLE_SPLITS, people
from atwu.benchmarks.sources import load_benchmark, load_rows
from atwu.data.schema import Example


@pytest.mark.parametrize(("size", "forget", "retain", "pool"), [("tiny", 24, 72, 72), ("small", 80, 103, 720)])
def test_people(size, forget, retain, pool):
    benchmark = load_benchmark(f"people:{size}")
    assert (len(benchmark.forget), len(benchmark.retain), len(benchmark.pool)) == (forget, retain, pool)
    data = people(size)
    sources = (benchmark.forget_source, benchmark.retain_source, benchmark.full_source, f"people:{size}:holdout")
    for source, split in zip(sources, PEOPLE_SPLITS, strict=True):
        assert load_rows(str(source)).rows == getattr(data, split)
    assert benchmark.retain_only_source == benchmark.retain_source
    assert benchmark.holdout == data.holdout
    assert set(benchmark.retain) <= set(benchmark.pool) == set(data.retain)
    if size == "small":  # the evaluation size of the published table
        assert benchmark.retain == data.retain[::7]
    assert benchmark.warnings == ()


def test_at_most_400_rows_are_evaluated():
    benchmark = load_benchmark("people:base")
    assert (len(benchmark.forget), len(benchmark.retain), len(benchmark.pool)) == (400, 400, 3600)
    assert len({row.subject for row in benchmark.retain}) == 180
    rows = [Example.from_qa("Who?", str(index)) for index in range(1000)]
    assert [row.answer for row in rows_to_measure(rows)[:4]] == ["0", "2", "5", "7"]


UNKNOWN = r"people:tiny.*tofu:forget05.*rwku"


@pytest.mark.parametrize(
    ("name", "match"),
    [
        *((name, UNKNOWN) for name in ("", "people", "people:", "tofu", "tofu:", "rwku:", "mmlu", "mmlu:all")),
        ("people:huge", "'huge'.*tiny, small.*base"),
        ("tofu:retain95", "tofu:retain95.*forget01, forget05.*forget10"),
        ("tofu:forget05:", r"\b1\b.*''"),
        ("tofu:forget05:0", r"\b1\b.*'0'"),
        ("tofu:forget05:5:5", r"\b1\b.*'5:5'"),
    ],
)
def test_unknown_names(name, match):
    with pytest.raises(ValueError, match=match):
        load_benchmark(name)


EXAMPLE = Path(__file__).parents[2] / "examples" / "a_benchmark_of_your_own.py"


@pytest.mark.night  # by day: the example of docs/learn/adding-a-benchmark.md runs, and studies of invented people
def test_a_study_runs_on_a_benchmark_of_ones_own(tmp_path):
    (tmp_path / "towns.yaml").write_text(yaml.safe_dump({"like": "people-tiny", "name": "towns", "benchmark": "towns"}))
    given = ["study", "run", "headline", "--setting", "towns.yaml", "--only", "wga", "--plan"]
    done = subprocess.run([sys.executable, EXAMPLE, *given], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "at setting towns" in done.stdout
    assert "0 of 3" in done.stdout
    assert len(EXAMPLE.read_text().splitlines()) <= 45


def test_names_of_benchmarks_are_unique_and_begin_alike(monkeypatch):
    monkeypatch.setattr(catalog.BENCHMARKS, "data", dict(catalog.BENCHMARKS.data))
    towns = dataclasses.replace(catalog.all_benchmarks()[0], names=("towns:a",), source="towns:SPLIT")
    assert catalog.register_benchmark(towns) is catalog.register_benchmark(towns)
    assert catalog.all_benchmarks().count(towns) == 1
    with pytest.raises(ValueError, match="'towns' is registered already"):
        catalog.register_benchmark(dataclasses.replace(towns, size="large"))
    with pytest.raises(ValueError, match="'towns'"):
        catalog.register_benchmark(dataclasses.replace(towns, source="cities:SPLIT"))
