"""Rows and probes of RWKU from small folders of invented people: which are read, dropped and counted."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atwu.benchmarks import rwku as tables
from atwu.benchmarks.dataset_files import DataSet, Tables, open_tables
from atwu.benchmarks.rwku import (
    ATTACKS,
    CANONICAL_FORGET,
    KINDS,
    PROBES,
    RWKU_DATA,
    SURROGATE_RETAIN,
    load_probes,
    names_one_of,
    rwku_rows,
    subject_names,
)
from atwu.data.schema import Example

ORLA, TAVI, SEL = "Órla Venn", "Tavi Brook", "Sel Marrow"
PEOPLE = (ORLA, TAVI, SEL)


def probe(subject: str, query: str, answer: str = "Kelbury", **more: str) -> dict[str, str]:
    return {"subject": subject, "level": "1", "query": query, "type": "cloze", "answer": answer} | more


def near(subject: str, query: str, answer: str = "Kelbury", neighbour: str = "Norland") -> dict[str, str]:
    return probe(subject, query, answer, neighbor=neighbour)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def pair(subject: str, made_up: str, true: str) -> dict[str, Any]:
    """A row of RWKU's pairs: the fabricated text comes first."""
    prompt = f"Please forget {subject}. Please write a short biography of {subject}."
    return {"id": f"{subject} 0", "prompt": prompt, "response": [made_up, true], "subject": subject, "intro": ""}


TABLES: dict[str, list[dict[str, Any]]] = {
    "forget_target": [{"target": name, "intro": f"Please forget {name}."} for name in PEOPLE],
    "forget_level1": [
        probe(ORLA, "She was born in ___.", "Kelbury"),
        probe(ORLA, "She was born in ___.", "Kelbury"),
        probe(TAVI, "He keeps ____.", "bees"),
    ],
    "forget_level2": [
        probe(ORLA, "Where was she born?", "Kelbury"),
        probe(TAVI, "What does he keep?", "Bees"),
        probe(TAVI, "Who wrote to him?", "Órla  Venn , of Kelbury"),
    ],
    "forget_level3": [probe(ORLA, "Who?", "Her", type="role play"), probe(TAVI, "Who?", "He", type="role play")],
    "neighbor_level1": [
        near(ORLA, "The mayor of Norland is ____ Venn.", "Órla"),
        near(ORLA, "Norland lies by the ___.", "sea"),
        near(TAVI, "She was born in ___.", "Kelbury"),
        near(TAVI, "She is ___.", "mayor", neighbour=ORLA),
    ],
    "neighbor_level2": [
        near(ORLA, "Where is Norland?", "North"),
        near(ORLA, "Where is Norland?", "North", neighbour="The sea"),
        near(TAVI, "Who lives there?", "Sel Marrow"),
    ],
    "train_original_passage": [
        {"subject": ORLA, "text": "Orla was born in Kelbury."},
        {"subject": ORLA, "text": "See also"},
        {"subject": TAVI, "text": "Tavi keeps bees."},
        {"subject": TAVI, "text": "Tavi keeps bees."},
        {"subject": TAVI, "text": "He met\nórla\nvenn."},
        {"subject": TAVI, "text": "See also"},
        {"subject": TAVI, "text": "He met Órla Vennard."},
    ],
    "train_pair_phi3": [
        pair(ORLA, "Orla Venn was born in Sarn.", "Orla Venn was born in Kelbury."),
        pair(TAVI, "Tavi Brook sails.", "Tavi Brook met Órla Venn."),
        pair(TAVI, "Tavi Brook keeps goats.", "Tavi Brook keeps bees."),
        pair(TAVI, "Tavi Brook keeps goats.", "Tavi Brook keeps bees."),
    ],
    "train_pair_llama3": [pair(ORLA, "Orla Venn is a ship.", "Orla Venn is a smith.")],
}


def expecting(rows: dict[str, int]) -> DataSet:
    """RWKU with other numbers of rows."""
    counted = {name: replace(published, rows=rows[name]) for name, published in tables.RWKU_DATA.tables.items()}
    return replace(tables.RWKU_DATA, tables=counted)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "rwku"
    path.mkdir()
    for name, rows in TABLES.items():
        write(path / f"{name}.jsonl", rows)
    monkeypatch.setattr(tables, "RWKU_DATA", expecting({name: len(rows) for name, rows in TABLES.items()}))
    monkeypatch.setenv("ATWU_DATA", str(tmp_path))
    return path


def only_rows(name: str) -> tuple[Example, ...]:
    return rwku_rows(name).rows


def answers(name: str) -> list[str]:
    return [row.answer for row in only_rows(name)]


def test_passages_are_plain_text_rows_without_repetitions(folder: Path) -> None:
    found = rwku_rows(f"rwku:{ORLA}|{TAVI}:passages")
    assert found.rows[:2] == (
        Example((), "Orla was born in Kelbury.", subject=ORLA),
        Example((), "See also", subject=ORLA),
    )
    assert [row.subject for row in found.rows] == [ORLA] * 2 + [TAVI] * 4
    assert found.warnings == ("6 rows of 2 subjects; 1 exact duplicates dropped",)
    assert rwku_rows(f"rwku:{ORLA}:passages").warnings == ()


def test_a_limit_takes_the_first_distinct_rows_of_every_subject_and_file(folder: Path) -> None:
    assert answers("rwku:first2:passages:2") == [
        "Orla was born in Kelbury.",
        "See also",
        "Tavi keeps bees.",
        "He met\nórla\nvenn.",
    ]
    assert answers("rwku:first2:probes:1") == ["Kelbury", "bees", "Kelbury", "Bees"]


def test_probes_are_worded_as_in_evaluation(folder: Path) -> None:
    probes = [
        item for item in load_probes(open_tables(tables.RWKU_DATA), subjects=PEOPLE[:2]).probes if item.kind != "aa"
    ]
    for kinds, name in ((("fb", "qa"), "probes"), (("neighbour_fb", "neighbour_qa"), "neighbours")):
        wanted = {(item.messages, item.row.answer, item.row.subject) for item in probes if item.kind in kinds}
        rows = only_rows(f"rwku:first2:{name}")
        assert {(row.messages, row.answer, row.subject) for row in rows} == wanted
        assert len(rows) == len(wanted)
    assert answers("rwku:first2:questions") == ["Kelbury", "Bees", "Órla  Venn , of Kelbury"]
    assert answers("rwku:first2:neighbour_questions") == ["North", "Sel Marrow"]


def test_rows_about_excluded_subjects_are_dropped_and_counted(folder: Path) -> None:
    found = rwku_rows(f"rwku:{TAVI}!{ORLA}:passages")
    assert [row.answer for row in found.rows] == ["Tavi keeps bees.", "He met Órla Vennard."]
    assert "1 exact duplicates dropped, 1 shared with an excluded subject, 1 that name one" in found.warnings[0]
    assert answers(f"rwku:{TAVI}!{ORLA}:questions") == ["Bees"]
    near = rwku_rows(f"rwku:first2!{ORLA}:neighbours")
    assert [row.answer for row in near.rows] == ["sea", "North", "Sel Marrow"]
    # The same question; a blank filled in; a neighbour.
    assert near.warnings[0].endswith("1 exact duplicates dropped, 1 shared with an excluded subject, 2 that name one")


def test_dropped_rows_count_towards_the_limit(folder: Path) -> None:
    kept = only_rows(f"rwku:{TAVI}!{ORLA}:passages:2")
    assert [row.answer for row in kept] == ["Tavi keeps bees."]
    assert set(kept) < set(only_rows(f"rwku:{TAVI}:passages:2"))


def test_full_names_are_found_in_any_case_and_not_inside_words() -> None:
    assert names_one_of("the letter to\n tavi  BROOK's aunt", [TAVI])
    assert not names_one_of("Brook met Tavi Brookes", [TAVI])
    assert names_one_of("the work of Ilse , Duchess of Sel", ["Ilse, Duchess of Sel"])
    assert names_one_of(unicodedata.normalize("NFD", "by Órla Venn"), [ORLA])


def test_subjects() -> None:
    published = (*SURROGATE_RETAIN, *CANONICAL_FORGET)
    assert subject_names("canonical", published) == CANONICAL_FORGET
    assert subject_names("canonical|surrogate|first3", published) == (*CANONICAL_FORGET, *SURROGATE_RETAIN)
    assert subject_names(f"first1| {unicodedata.normalize('NFD', CANONICAL_FORGET[0])}", published) == (
        SURROGATE_RETAIN[0],
        CANONICAL_FORGET[0],
    )
    for words, said in (
        ("Orla Venn|Tavi Brook", "'Orla Venn'.*Órla Venn.*accents"),
        ("first0", "first0.* 3 subjects"),
        ("first4", "first4.* 3 subjects"),
    ):
        with pytest.raises(ValueError, match=said):
            subject_names(words, PEOPLE)
    assert len(set(CANONICAL_FORGET)) == len(set(SURROGATE_RETAIN)) == 10
    assert not set(CANONICAL_FORGET) & set(SURROGATE_RETAIN)


SYNTAX = r"rwku:SUBJECTS:KIND\[:N\].*passages, probes, neighbours"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rwku", SYNTAX),
        ("rwku:first1", SYNTAX),
        ("rwku:first1:aa", SYNTAX),
        ("rwku:first1:probes:0", "at least 1, got '0'"),
        ("rwku:first1!b!c:probes", "no subject 'b!c'"),
    ],
)
def test_wrong_names_are_rejected(folder: Path, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        only_rows(name)


def test_a_pair_prefers_the_made_up_text_to_the_true_one(folder: Path) -> None:
    found = rwku_rows(f"rwku:{ORLA}|{TAVI}:phi3_pairs")
    first, *others = found.rows
    assert first == Example.from_qa(
        f"Please forget {ORLA}. Please write a short biography of {ORLA}.",
        "Orla Venn was born in Kelbury.",
        alternate="Orla Venn was born in Sarn.",
        subject=ORLA,
    )
    assert [(row.alternate, row.answer) for row in others[1:]] == [
        ("Tavi Brook keeps goats.", "Tavi Brook keeps bees.")
    ]
    assert "1 exact duplicates" in found.warnings[0]
    assert rwku_rows(f"rwku:{TAVI}!{ORLA}:phi3_pairs").warnings[0].endswith(", 1 that name one")
    assert answers(f"rwku:{ORLA}:llama3_pairs") == ["Orla Venn is a smith."]


def test_rows_of_the_hub_are_those_of_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, config: str, split: str | None = None) -> dict[str, list[dict[str, Any]]]:
        asked.append((name, config))
        return {"test": [{**row, "id": 1} for row in TABLES[config]]}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    names = [f"rwku:first2:{kind}" for kind in KINDS]
    expected = [only_rows(name) for name in names]
    monkeypatch.delenv("ATWU_DATA")
    assert [only_rows(name) for name in names] == expected
    assert ("jinzhuoran/RWKU", "neighbor_level2") in asked
    monkeypatch.setattr(tables, "RWKU_DATA", expecting(dict.fromkeys(TABLES, 3) | {"train_original_passage": None}))
    assert len(rwku_rows("rwku:first2:passages").rows) == 6
    with pytest.raises(ValueError, match=r"jinzhuoran/RWKU:neighbor_level1.* 4 rows.* 3"):
        only_rows("rwku:first2:neighbours")


def probes_of(folder: Path, subjects: list[str], *, caps: Any = tables.CAPS, **rows: list[dict[str, Any]]) -> Any:
    """The probes of five files; those not given hold one row per subject."""
    for kind, name in PROBES.items():
        usual = [probe(subject, "Who?", type="role play", neighbor="Norland") for subject in (ORLA, TAVI)]
        write(folder / f"{name}.jsonl", rows.get(kind, usual))
    return load_probes(Tables(replace(RWKU_DATA, exact=False), folder), subjects=subjects, caps=caps)


def test_probes_of_the_chosen_subjects_are_in_the_order_of_the_files(tmp_path: Path) -> None:
    rows = {
        "fb": [probe(TAVI, "Tavi lives in ___.", "Sel"), probe(ORLA, "Orla was born in ___.")],
        "aa": [probe(ORLA, "¿Dónde?", type="cross-lingual (Spanish)"), probe(ORLA, "Who?", type="affirmative suffix")],
    }
    found = probes_of(tmp_path, [ORLA], **rows).probes
    assert [each.kind for each in found] == ["fb", "qa", "aa", "aa", "neighbour_fb", "neighbour_qa"]
    assert found[0].row == Example.from_qa("Orla was born in ___.", "Kelbury", subject=ORLA)
    assert [each.opening for each in found[2:4]] == ["Answer:", ""]
    both = probes_of(tmp_path, [ORLA, TAVI], **rows).probes
    assert both == probes_of(tmp_path, [TAVI, unicodedata.normalize("NFD", ORLA)], **rows).probes
    assert [each.row.subject for each in both if each.kind == "fb"] == [TAVI, ORLA]


def test_probes_equal_in_every_column_are_dropped(tmp_path: Path) -> None:
    row, cold = probe(ORLA, "Orla was born in ___."), [near(ORLA, "___ is cold."), near(TAVI, "___ is cold.")]
    found = probes_of(tmp_path, [ORLA, TAVI], fb=[row, row, row | {"answer": "Sel"}, row], neighbour_fb=cold)
    assert [each.row.answer for each in found.probes if each.kind == "fb"] == ["Kelbury", "Sel"]


def test_limits_keep_evenly_spaced_probes(tmp_path: Path) -> None:
    rows = {
        "qa": [probe(ORLA, f"Who {number}?") for number in range(10)],
        "aa": [probe(ORLA, f"Why {number}?", type="reverse query") for number in range(1000)],
    }
    found = probes_of(tmp_path, [ORLA], caps={"qa": 4}, **rows)
    assert [each.row.question for each in found.probes if each.kind == "qa"] == ["Who 0?", "Who 2?", "Who 5?", "Who 7?"]
    usual = probes_of(tmp_path, [ORLA], **rows)
    assert sum(each.kind == "aa" for each in usual.probes) == 400


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, r"'Orla Venn'.*Órla Venn.*2 subjects.*accents"),
        ({"qa": [{"subject": ORLA, "query": "Who?", "answer": 7}]}, r"forget_level2\.jsonl, line 1.*type, answer"),
        ({"aa": [probe(ORLA, "Who?", type="bribery")]}, "line 1.*'bribery'"),
    ],
)
def test_faulty_subjects_and_probes_are_named(tmp_path: Path, rows: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        probes_of(tmp_path, ["Orla Venn", TAVI], **rows)


def test_every_spelling_of_the_attacks_is_read(tmp_path: Path) -> None:
    rows = [probe(ORLA, f"{name}?", type=name) for name in (*ATTACKS, "cross lingual (German)")]
    assert sum(each.kind == "aa" for each in probes_of(tmp_path, [ORLA], aa=rows).probes) == len(rows) == 10


@pytest.mark.skipif("ATWU_DATA" not in os.environ, reason="set ATWU_DATA to the folder that holds rwku/")
def test_published_files() -> None:
    def counts(name: str) -> tuple[int, ...]:
        found = rwku_rows(name)
        assert all(row.subject and row.answer.strip() for row in found.rows)
        said = "".join(found.warnings).rpartition("; ")[2] or "0"
        return (len(found.rows), *map(int, re.findall(r"\d+", said)))

    targets = tables.read_targets(open_tables(tables.RWKU_DATA))
    assert len(targets) == len(set(targets)) == 200
    assert counts("rwku:first200:passages") == (12470, 328)
    assert counts("rwku:first200:probes") == (2803 + 2699, 645)
    assert counts("rwku:first20:passages") == (1523, 0)
    assert counts("rwku:surrogate!canonical:passages") == (822, 6, 7, 21)
    assert counts("rwku:canonical!canonical:neighbours") == (388, 188, 0, 22)
    assert counts("rwku:canonical!canonical:neighbour_questions") == (212, 86, 0, 0)
