"""Benchmarks by name: their sources, their evaluation rows, and rejected names."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from atwu.benchmarks.dataset_files import Tables
from atwu.benchmarks.load_benchmark import load_benchmark
from atwu.benchmarks.people.people_rows import PEOPLE_SPLITS, SIZES, people
from atwu.benchmarks.sources import load_rows
from atwu.benchmarks.subsample import rows_to_measure
from atwu.benchmarks.tofu import TOFU, tofu_benchmark
from atwu.data.schema import Example

ROWS = {"full": 60, "forget05": 20, "retain95": 40, "retain_perturbed": 40, "forget05_perturbed": 20, "holdout05": 20}


def pairs(first, last):
    return [{"question": f"Where is Orla {index}?", "answer": f"In Kelbury {index}."} for index in range(first, last)]


def perturbed(rows):
    more = {"paraphrased_question": "Orla?", "paraphrased_answer": "Kelbury.", "perturbed_answer": [*"abcde"]}
    return [row | more for row in rows]


def copy_in(folder, **tables):
    published = {name: replace(entry, rows=ROWS.get(name, entry.rows)) for name, entry in TOFU.tables.items()}
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Tables(replace(TOFU, tables=published), folder)


@pytest.fixture
def tables(tmp_path):
    full = pairs(0, 60)
    return copy_in(
        tmp_path,
        full=full,
        forget05=full[40:],
        forget05_perturbed=perturbed(full[40:]),
        retain95=full[:40],
        retain_perturbed=perturbed(full[:40]),
        holdout05=pairs(100, 120),
    )


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
    assert f"people:{size}: {pool} retain rows about {pool // SIZES[size].rows_per_person} people" in benchmark.checked


def test_people_small_has_the_evaluation_sizes_of_the_published_table():
    assert load_benchmark("people:small").retain == people("small").retain[::7]


def test_at_most_400_rows_are_evaluated():
    benchmark = load_benchmark("people:base")
    assert (len(benchmark.forget), len(benchmark.retain), len(benchmark.pool)) == (400, 400, 3600)
    assert len({row.subject for row in benchmark.retain}) == 180
    rows = [Example.from_qa("Who?", str(index)) for index in range(1000)]
    assert [row.answer for row in rows_to_measure(rows)[:4]] == ["0", "2", "5", "7"]


def test_tofu(tables):
    benchmark = tofu_benchmark("tofu:forget05", tables=tables)
    assert benchmark.name == benchmark.forget_source == "tofu:forget05"
    assert benchmark.retain_source == benchmark.retain_only_source == "tofu:retain95"
    assert benchmark.full_source == "tofu:full"
    assert [row.question for row in benchmark.forget] == [f"Where is Orla {index}?" for index in range(40, 60)]
    assert len(benchmark.retain) == len(benchmark.pool) == 40
    assert len(benchmark.holdout) == 20
    assert benchmark.extra_retain == {}
    for line in (
        "forget05: equal to the last 20 rows of full",
        "holdout05: none of its rows is in full",
        "real_authors is not available: skipped",
        "evaluated: 20 of 20 forget rows and 40 of 40 retain rows",
    ):
        assert line in benchmark.checked


def test_tofu_miniature(tables, monkeypatch):
    benchmark = tofu_benchmark("tofu:forget05:25", tables=tables)
    assert benchmark.name == "tofu:forget05:25"
    assert benchmark.retain_source == benchmark.retain_only_source == "tofu:retain95:25"
    assert benchmark.full_source == "tofu:retain95:25 + tofu:forget05"
    assert len(benchmark.retain) == len(benchmark.pool) == 25
    with pytest.raises(ValueError, match=r"\b1 .*\b40\b"):
        tofu_benchmark("tofu:forget05:41", tables=tables)


def test_only_retain_rows_with_wrong_answers_are_evaluated_if_any_exist(tables, tmp_path):
    odd = perturbed(pairs(0, 40))
    odd[3]["answer"] = "Elsewhere."
    benchmark = tofu_benchmark("tofu:forget05", tables=copy_in(tmp_path, retain_perturbed=odd))
    assert [row for row in benchmark.pool if row not in benchmark.retain] == [benchmark.pool[3]]
    (tmp_path / "retain_perturbed.jsonl").unlink()
    assert len(tofu_benchmark("tofu:forget05", tables=copy_in(tmp_path)).retain) == 40


@pytest.mark.parametrize("name", ["", "people", "people:", "tofu", "tofu:", "rwku:", "mmlu", "mmlu:all"])
def test_unknown_benchmarks(name):
    with pytest.raises(ValueError, match=r"people:tiny.*tofu:forget05.*rwku"):
        load_benchmark(name)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("people:huge", "'huge'.*tiny, small.*base"),
        ("tofu:retain95", "tofu:retain95.*forget01, forget05.*forget10"),
        ("tofu:forget05:", r"\b1\b.*''"),
        ("tofu:forget05:0", r"\b1\b.*'0'"),
        ("tofu:forget05:5:5", r"\b1\b.*'5:5'"),
    ],
)
def test_unknown_parts(name, match):
    with pytest.raises(ValueError, match=match):
        load_benchmark(name)


@pytest.mark.skipif("ATWU_DATA" not in os.environ, reason="set ATWU_DATA to the folder that holds tofu/")
@pytest.mark.parametrize(("name", "pool"), [("tofu:forget05", 3800), ("tofu:forget10:600", 600)])
def test_real_tofu(name, pool):
    benchmark = load_benchmark(name)
    assert len(benchmark.retain) == 400
    assert len(benchmark.pool) == pool
    assert {split: len(rows) for split, rows in benchmark.extra_retain.items()} == {
        "real_authors": 100,
        "world_facts": 117,
    }
    assert load_rows(benchmark.forget_source).rows == benchmark.forget
    assert load_rows(benchmark.retain_source).rows == benchmark.pool
    assert len(benchmark.holdout) == len(benchmark.forget)
    assert len(load_rows(benchmark.full_source).rows) == pool + len(benchmark.forget)
