"""Probes of RWKU: selection by subject, row limits, and faulty files."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from atwu.benchmarks.base import RwkuProbe
from atwu.benchmarks.rwku_probes import ATTACKS, CANONICAL_FORGET, PROBES, SURROGATE_RETAIN, load_probes, rwku_tables

ORLA, TAVI = "Órla Venn", "Tavi Brook"


def _row(subject: str, query: str, answer: str = "Kelbury", kind: str = "cloze", **more: str) -> dict[str, str]:
    return {"subject": subject, "level": "1", "query": query, "type": kind, "answer": answer} | more


def _folder(path: Path, **rows: list[dict[str, Any]]) -> Path:
    """The five files; those not given hold one row per subject."""
    for kind, name in PROBES.items():
        default = [_row(ORLA, "Orla?", kind="role play", neighbor="Norland")]
        default += [_row(TAVI, "Tavi?", kind="role play", neighbor="Norland")]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows.get(kind, default)]
        (path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return path


def test_rows_of_the_chosen_subjects_in_the_order_of_the_files(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        fb=[_row(TAVI, "Tavi lives in ___.", "Sel"), _row(ORLA, "Orla was born in ___.")],
        aa=[_row(ORLA, "¿Dónde?", kind="cross-lingual (Spanish)"), _row(ORLA, "Who? Sure:", kind="affirmative suffix")],
    )
    probes = load_probes(rwku_tables(folder), subjects=[ORLA])
    assert [probe.kind for probe in probes.probes] == ["fb", "qa", "aa", "aa", "neighbour_fb", "neighbour_qa"]
    assert probes.probes[0] == RwkuProbe("fb", ORLA, "Orla was born in ___.", "Kelbury")
    assert [probe.attack for probe in probes.probes[2:4]] == ["cross-lingual", "affirmative suffix"]
    assert probes.probes[4].neighbour == "Norland"
    both = load_probes(rwku_tables(folder), subjects=[ORLA, TAVI])
    assert both.probes == load_probes(rwku_tables(folder), subjects=[TAVI, ORLA]).probes
    assert [probe.subject for probe in both.probes if probe.kind == "fb"] == [TAVI, ORLA]


def test_rows_equal_in_every_column_are_dropped_and_counted(tmp_path: Path) -> None:
    row = _row(ORLA, "Orla was born in ___.")
    near = [_row(ORLA, "___ is cold.", neighbor="Norland"), _row(TAVI, "___ is cold.", neighbor="Norland")]
    folder = _folder(tmp_path, fb=[row, row, row | {"answer": "Sel"}, row], neighbour_fb=near)
    probes = load_probes(rwku_tables(folder), subjects=[ORLA, TAVI])
    assert probes.duplicates == {"fb": 2, "qa": 0, "aa": 0, "neighbour_fb": 0, "neighbour_qa": 0}
    assert [probe.answer for probe in probes.probes if probe.kind == "fb"] == ["Kelbury", "Sel"]


def test_row_limits_keep_evenly_spaced_rows(tmp_path: Path) -> None:
    attacks = [_row(ORLA, f"Why {number}?", kind="reverse query") for number in range(1000)]
    folder = _folder(tmp_path, qa=[_row(ORLA, f"Who {number}?") for number in range(10)], aa=attacks)
    probes = load_probes(rwku_tables(folder), subjects=[ORLA], caps={"qa": 4})
    assert [probe.query for probe in probes.probes if probe.kind == "qa"] == ["Who 0?", "Who 2?", "Who 5?", "Who 7?"]
    assert probes.left_out["qa"] == 6
    usual = load_probes(rwku_tables(folder), subjects=[ORLA])
    assert sum(probe.kind == "aa" for probe in usual.probes) == 400
    assert usual.left_out == {"fb": 0, "qa": 0, "aa": 600, "neighbour_fb": 0, "neighbour_qa": 0}


def test_an_unknown_subject_is_an_error_with_close_names(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    with pytest.raises(ValueError, match=r"'Orla Venn'.*Órla Venn.*2 subjects.*accents"):
        load_probes(rwku_tables(folder), subjects=["Orla Venn", TAVI])
    assert load_probes(rwku_tables(folder), subjects=[unicodedata.normalize("NFD", ORLA)]).subjects == (ORLA,)


def test_faulty_files_raise_errors_that_name_the_line(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"forget_level1\.jsonl, forget_level2"):
        load_probes(rwku_tables(tmp_path), subjects=[ORLA])
    folder = _folder(tmp_path, qa=[_row(ORLA, "Who?"), {"subject": ORLA, "query": "Who?", "answer": 7}])
    with pytest.raises(ValueError, match=r"forget_level2\.jsonl, line 2.*type, answer"):
        load_probes(rwku_tables(folder), subjects=[ORLA])
    folder = _folder(tmp_path, aa=[_row(ORLA, "Who?", kind="bribery")])
    with pytest.raises(ValueError, match=r"line 1.*'bribery'"):
        load_probes(rwku_tables(folder), subjects=[ORLA])


def test_every_spelling_of_the_attacks_has_a_family(tmp_path: Path) -> None:
    spelled = ["prefix injection", "affirmative suffix", "role play", "multiple choice", "reverse query"]
    spelled += ["synonym manipulation", "context hint", "incontext learning", "cross lingual (German)", "cross lingual"]
    folder = _folder(tmp_path, aa=[_row(ORLA, f"{name}?", kind=name) for name in spelled])
    found = [probe.attack for probe in load_probes(rwku_tables(folder), subjects=[ORLA]).probes if probe.kind == "aa"]
    assert found == [*ATTACKS.values(), "cross-lingual"]
    assert len(ATTACKS) == 9


def test_the_two_subject_groups_are_disjoint_and_have_ten_each() -> None:
    assert len(set(CANONICAL_FORGET)) == len(set(SURROGATE_RETAIN)) == 10
    assert not set(CANONICAL_FORGET) & set(SURROGATE_RETAIN)
