"""RWKU as a benchmark: its sources, disjoint forget and retain sets, and the reported checks."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from atwu.benchmarks import rwku as module
from atwu.benchmarks.rwku import rwku_benchmark, rwku_rows
from atwu.cli.cli_options import parse_command
from atwu.cli.evaluate import EvaluateCommand
from atwu.data.schema import Example

ORLA, TAVI = "Orla Venn", "Tavi Brook"


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two people; one neighbour probe of each names her or him, one the other."""
    if "real" in request.node.name:
        return
    tables: dict[str, list[dict[str, str]]] = {name: [] for name in module.RWKU_DATA.tables}
    for name, other, home in ((ORLA, TAVI, "Kelbury"), (TAVI, ORLA, "Sel")):
        tables[module.TARGETS].append({"target": name})
        tables[module.PASSAGES] += [{"subject": name, "text": f"{name} lives in {home}, {way}."} for way in "abc"]
        tables[module.PASSAGES] += [
            {"subject": name, "text": f"{name} knows {other}."},
            {"subject": name, "text": "Notes"},
        ]
        row = {"subject": name, "level": "1", "type": "role play", "answer": home}
        tables["forget_level1"] += [row | {"query": f"{name}'s home is ___."}] * 2
        tables["forget_level2"] += [row | {"query": f"Where is {name}'s home, {way}?"} for way in "ab"]
        tables["forget_level3"] += [row | {"query": f"Speak of {name}'s home."}]
        near = row | {"neighbor": f"{home} Bridge", "answer": f"in {home}"}
        tables["neighbor_level1"] += [near | {"query": "The bridge is ___."}]
        first, last = name.split()
        tables["neighbor_level1"] += [near | {"query": f"Its builder is ___ {last}.", "answer": first}]
        tables["neighbor_level2"] += [near | {"query": f"Where is the bridge of {home}?"}]
        tables["neighbor_level2"] += [near | {"query": "Who crosses it?", "answer": other}]
    for name, rows in tables.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    counted = {name: replace(module.RWKU_DATA.tables[name], rows=len(rows)) for name, rows in tables.items()}
    monkeypatch.setattr(module, "RWKU_DATA", replace(module.RWKU_DATA, tables=counted))
    monkeypatch.setenv("ATWU_DATA", str(tmp_path))


def rows_of(source: str | None) -> tuple[Example, ...]:
    assert source is not None
    return tuple(row for part in source.split(" + ") for row in rwku_rows(part).rows)


def texts(rows: tuple[Example, ...]) -> str:
    return "\n".join(f"{row.question} {row.answer}" for row in rows)


def test_sources() -> None:
    found = rwku_benchmark(f"rwku:{ORLA}/{TAVI}")
    forget, retain = rows_of(found.forget_source), rows_of(found.retain_source)
    full, retain_only = rows_of(found.full_source), rows_of(found.retain_only_source)
    assert {row.subject for row in forget} == {ORLA}
    assert len(forget) == 5
    assert [row.answer for row in retain] == [f"{TAVI} lives in Sel, {way}." for way in "abc"]
    assert set(retain) <= set(retain_only) <= set(full)
    assert set(forget) <= set(full)
    assert not any(row.subject == ORLA and not row.messages for row in retain_only)
    assert ORLA not in texts(retain_only)
    assert "in Kelbury" in texts(retain_only), "neighbours of whom is forgotten stay"
    assert len(full) - len(retain_only) == 5 + 2 + 3 + 2, "her passages, two of his, her probes, neighbours naming her"


def test_evaluation_rows() -> None:
    found = rwku_benchmark(f"rwku:{ORLA}/{TAVI}")
    assert found.name == f"rwku:{ORLA}/{TAVI}"
    assert found.forget == rwku_rows(f"rwku:{ORLA}:questions").rows
    assert [row.answer for row in found.retain] == ["in Kelbury", TAVI]
    assert [row.answer for row in found.pool] == ["in Kelbury", TAVI, "in Sel"]
    assert all(row.subject and row.messages for row in (*found.forget, *found.retain, *found.pool))
    assert set(found.retain) <= set(found.pool)
    assert not set(found.pool) & set(found.forget)
    assert set(found.forget) | set(found.pool) <= set(rows_of(found.full_source))
    assert found.probes is not None
    assert found.probes.subjects == (ORLA,)
    kinds = [probe.kind for probe in found.probes.probes]
    assert kinds == ["fb", "qa", "qa", "aa", "neighbour_fb", "neighbour_fb", "neighbour_qa", "neighbour_qa"]


def test_miniature() -> None:
    found = rwku_benchmark(f"rwku:{ORLA}/{TAVI}:2")
    assert (len(rows_of(found.forget_source)), len(rows_of(found.retain_source))) == (2, 2)
    assert sum(not row.messages for row in rows_of(found.full_source)) == 4
    assert found.probes == rwku_benchmark(f"rwku:{ORLA}/{TAVI}").probes


def test_row_limits_select_evenly_spaced_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atwu.benchmarks.rwku.CAPS", {"qa": 2, "neighbour_qa": 1})
    found = rwku_benchmark(f"rwku:{ORLA}/{TAVI}")
    assert len(found.forget) == 2
    assert [row.answer for row in found.retain] == ["in Kelbury"]
    assert len(found.pool) == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"rwku:{TAVI}/first2", TAVI),
        (f"rwku:Orla Ven/{TAVI}", r"'Orla Ven'.*Orla Venn"),
        *((name, "rwku:FORGET/RETAIN") for name in ("rwku:", "rwku:a", "rwku:a/", "rwku:a!c/b")),
    ],
)
def test_wrong_names_are_rejected(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rwku_benchmark(name)


@pytest.mark.skipif("ATWU_DATA" not in os.environ, reason="set ATWU_DATA to the folder that holds rwku/")
def test_real_batch_protocol() -> None:
    found = rwku_benchmark("rwku")
    assert len({row.subject for row in found.forget}) == len({row.subject for row in found.retain}) == 10
    assert (len(found.forget), len(found.retain), len(found.pool)) == (142, 212, 421)
    assert found.probes is not None
    kinds = [probe.kind for probe in found.probes.probes]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counts == {"fb": 171, "qa": 142, "aa": 372, "neighbour_fb": 198, "neighbour_qa": 212}
    full, retain_only = rows_of(found.full_source), rows_of(found.retain_only_source)
    assert set(retain_only) < set(full)
    forgotten = {(row.messages, row.answer) for row in rows_of(found.forget_source)}
    assert not forgotten & {(row.messages, row.answer) for row in retain_only}


def test_an_evaluation_answers_at_most_the_limit_of_probes_per_kind() -> None:
    given = ["--model", "smollm2", "--probes", f"rwku:{ORLA}/{TAVI}"]
    every = parse_command(EvaluateCommand, given, name="evaluate")._probes()
    assert every == rwku_benchmark(f"rwku:{ORLA}/{TAVI}").probes
    kept = parse_command(EvaluateCommand, [*given, "--limit", "1"], name="evaluate")._probes()
    assert kept is not None
    assert [probe.kind for probe in kept.probes] == list(dict.fromkeys(probe.kind for probe in every.probes))
