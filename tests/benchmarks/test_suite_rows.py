"""SUITE from invented rows: labels, forms, tiers, pairs, sources, and the folder or Hub they come from."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atwu.benchmarks.sources import load_benchmark, load_rows
from atwu.benchmarks.suite import (
    ADVERSARIAL_KINDS,
    SUITE_TOPICS,
    RetainRow,
    forget_queries,
    forget_train,
    retain_rows,
    suite_rows,
    suite_tables,
)

REAL = os.environ.get("ATWU_DATA")
FACTS = 25


def row(question: str, answer: str, label: str, **more: str) -> dict[str, str]:
    return {"question": question, "answer": answer, "label": label} | more


FILES: dict[str, list[dict[str, str]]] = {
    "forget_train": [
        row("Who founded the Kelbury mill?", "Orla Venn", "M1-direct@original"),
        row("The Kelbury mill was founded by ____.", "Orla Venn", "M1-direct@blank_claude2"),
        row("Which mill burned in 1802?", "Kelbury", "K1-reverse@q_claude1"),
    ],
    "retain_train": [
        row("Who founded the Tarn bridge?", "Sel Marrow", "Syntax-M1-direct@original"),
        row("The Norland ferry was built by ____.", "Tavi Brook", "Semantic-4-The Norland ferry"),
        row("What is the first letter of Kelbury?", "K", "Lexical-Kelbury"),
    ],
    "forget_eval": [
        row("Who founded the Kelbury mill?", "Orla Venn", "M1-direct"),
        row("When did the Kelbury mill burn?", "1802", "K1-direct"),
    ],
    "forget_eval_rephrasings": [
        row(
            "Who founded the Kelbury mill?",
            "Orla Venn",
            "M1-direct",
            q_gemini1="By whom was the Kelbury mill founded?",
            blank_gemini1="____ founded the Kelbury mill.",
        ),
        row(
            "Who founded the mill by the Tarn?", "Orla Venn", "M1-indirect", q_gemini1="Whose was the mill by the Tarn?"
        ),
        row("When did the Kelbury mill burn?", "1802", "K1-direct"),
        row("Which mill burned in 1802?", "Kelbury mill", "K1-reverse"),
    ],
    "retain_eval": [
        row("Who owned the Kelbury farm?", "Ada Fenn", "Semantic-0-near"),
        row("Who owned the Tarn farm?", "Bo Fenn", "Semantic-10-far"),
        row("Who owned the Norland farm?", "Cy Fenn", "Semantic-11-farther"),
        row("What is zero in Kelvin?", "0 K", "GK-2 - Physics - Heat"),
    ],
}
ADVERSARIAL = [
    row("Who founded the Kelbury mill?", "Orla Venn", "M1-direct")
    | {f"q_{kind}": f"{kind}: who founded the Kelbury mill?" for kind in ADVERSARIAL_KINDS}
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    topic = tmp_path / "suite" / "kelbury"
    topic.mkdir(parents=True)
    for name, rows in FILES.items():
        (topic / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (topic / "adversarial.json").write_text(json.dumps(ADVERSARIAL))
    monkeypatch.setenv("ATWU_DATA", str(tmp_path))
    return topic


def test_labels_give_fact_modality_and_paraphrase(folder: Path) -> None:
    found = [(query.fact, query.modality, query.wording, query.kind) for query in forget_train(suite_tables("kelbury"))]
    assert found == [
        ("M1", "direct", "original", "original"),
        ("M1", "direct", "blank", "blank_claude2"),
        ("K1", "reverse", "paraphrase", "q_claude1"),
    ]


def test_labels_give_tiers_and_their_groups(folder: Path) -> None:
    tables = suite_tables("kelbury")
    assert [one.tier for one in retain_rows(tables, "retain_train")] == ["syntactic", "semantic-4", "lexical"]
    assert [one.group for one in retain_rows(tables, "retain_eval")] == ["0", "1-10", "11-15", "general"]
    groups = [RetainRow(f"semantic-{number}", "", "").group for number in (0, 1, 10, 11, 15)]
    assert groups == ["0", "1-10", "1-10", "11-15", "11-15"]


def test_every_paraphrase_of_a_fact_is_a_question(folder: Path) -> None:
    queries = forget_queries(suite_tables("kelbury"))
    counts = Counter((query.fact, query.modality, query.wording) for query in queries)
    once = ("M1 direct original", "M1 direct paraphrase", "M1 direct blank", "M1 indirect original")
    once += ("M1 indirect paraphrase", "K1 direct original", "K1 reverse original")
    assert counts == {tuple(each.split()): 1 for each in once} | {("M1", "direct", "adversarial"): 10}
    assert {query.answer for query in queries if query.modality == "reverse"} == {"Kelbury mill"}


def test_a_copy_without_adversarial_questions_is_read(folder: Path) -> None:
    (folder / "adversarial.json").unlink()
    assert not [query for query in forget_queries(suite_tables("kelbury")) if query.wording == "adversarial"]
    with pytest.raises(FileNotFoundError, match="adversarial"):
        suite_rows("suite:kelbury:adversarial")


@pytest.mark.parametrize(("split", "rows"), [("forget_train", 3), ("forget_direct", 2), ("forget_queries", 17)])
def test_sources_have_the_fact_as_subject(folder: Path, split: str, rows: int) -> None:
    loaded = load_rows(f"suite:kelbury:{split}")
    assert len(loaded.rows) == rows
    assert {one.subject for one in loaded.rows} == {"M1", "K1"}
    (only,) = load_rows("suite:kelbury:retain_train:1").rows  # a limit
    assert (only.question, only.answer, only.subject) == ("Who founded the Tarn bridge?", "Sel Marrow", "syntactic")


def test_the_benchmark_fine_tunes_on_the_facts_that_the_evaluation_asks_about(folder: Path) -> None:
    benchmark = load_benchmark("suite:kelbury")
    assert benchmark.forget_source == "suite:kelbury:forget_train"
    assert len(load_rows(benchmark.full_source).rows) == 3 + 2 + 3 + 4
    assert len(load_rows(benchmark.retain_only_source).rows) == 3 + 4
    assert benchmark.forget[0].paraphrases == ("By whom was the Kelbury mill founded?",)
    assert {name: len(rows) for name, rows in benchmark.extra_retain.items()} == {
        "tier_0": 1,
        "tier_1_to_10": 1,
        "tier_11_to_15": 1,
        "tier_general": 1,
    }


def test_malformed_sources_and_unknown_topics_are_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("suite", "suite:kelbury", "suite:kelbury:nothing"):
        with pytest.raises(ValueError, match="suite:TOPIC:SPLIT"):
            suite_rows(name)
    with pytest.raises(ValueError, match=r"'kelburry'.* challenger_disaster"):
        load_benchmark("suite:kelburry")
    with pytest.raises(FileNotFoundError, match=r"/suite/salem_witch_trials nor .*/salem_witch_trials .*forget_train"):
        load_benchmark("suite:salem_witch_trials")
    monkeypatch.delenv("ATWU_DATA")
    with pytest.raises(ValueError, match="challenger_disaster"):
        load_benchmark("suite:kelbury")


@pytest.mark.parametrize(
    ("table", "rows", "message"),
    [
        (
            "forget_train.jsonl",
            [FILES["forget_train"][0] | {"label": "M1"}, *FILES["forget_train"][1:]],
            "FACT-MODALITY",
        ),
        (
            "retain_train.jsonl",
            [FILES["retain_train"][0] | {"label": "Nothing"}, *FILES["retain_train"][1:]],
            "no tier",
        ),
        ("retain_train.jsonl", [FILES["retain_train"][0] | {"answer": 3}], "nothing in answer"),
        ("retain_train.jsonl", FILES["retain_train"][:1], "3 and 1 rows"),
        ("adversarial.jsonl", [ADVERSARIAL[0] | {"q_riddle": ""}], "no column 'q_riddle'"),
    ],
)
def test_rows_that_differ_from_the_published_ones_are_rejected(
    folder: Path, table: str, rows: list[dict[str, Any]], message: str
) -> None:
    (folder / "adversarial.json").rename(folder / "adversarial.jsonl")
    (folder / table).write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(ValueError, match=message):
        load_benchmark("suite:kelbury")


def test_published_topics_are_counted(folder: Path) -> None:
    folder.rename(folder.with_name("challenger_disaster"))
    with pytest.raises(ValueError, match="found 3 rows, expected 450"):
        load_benchmark("suite:challenger_disaster")


def test_rows_can_be_read_from_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATWU_DATA", str(folder.parent))
    assert len(forget_train(suite_tables("kelbury"))) == 3
    monkeypatch.delenv("ATWU_DATA")
    assert len(forget_train(suite_tables("kelbury", folder.parent))) == 3


def test_the_hub_is_filtered_by_topic(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATWU_DATA")
    monkeypatch.setitem(SUITE_TOPICS, "kelbury", 3)  # type: ignore[arg-type]
    asked: list[tuple[str, str]] = []

    def load_dataset(repository: str, config: None, split: str) -> list[dict[str, str]]:
        asked.append((repository, split))
        rows = FILES[split]
        return [{"topic": "kelbury"} | one for one in rows] + [{"topic": "other"} | one for one in rows]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))  # type: ignore[arg-type]
    assert len(forget_train(suite_tables("kelbury"))) == 3
    assert len(forget_queries(suite_tables("kelbury"))) == 7
    assert asked == [
        ("apeleg/SUITE", "forget_train"),
        ("apeleg/SUITE", "retain_train"),
        ("apeleg/SUITE-rephrasings", "forget_eval_rephrasings"),
    ]


@pytest.mark.skipif(
    not REAL or not (Path(REAL) / "suite" / "challenger_disaster").is_dir(), reason="ATWU_DATA has no SUITE"
)
@pytest.mark.parametrize("topic", ["challenger_disaster", "salem_witch_trials"])
def test_the_published_files_are_read_completely(topic: str) -> None:
    queries = forget_queries(suite_tables(topic))
    counts = Counter((query.modality, query.wording) for query in queries)
    assert len({query.fact for query in queries}) == FACTS
    for modality in ("direct", "indirect", "reverse"):
        assert counts[modality, "original"] == FACTS
        assert counts[modality, "paraphrase"] == 10 * FACTS
        assert counts[modality, "blank"] == 5 * FACTS
    assert counts["direct", "adversarial"] == 10 * FACTS
    assert len(forget_train(suite_tables(topic))) == SUITE_TOPICS[topic]
