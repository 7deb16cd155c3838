"""`atwu judge agreement`, `atwu rows paraphrases` and `atwu rows labels`, run as a user runs them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from atwu import load_rows

CASES = (
    ("Where was Orla Venn born?", "Orla Venn was born in Kelbury.", "She was born in Kelbury.", True, "plain"),
    ("Where was Orla Venn born?", "Orla Venn was born in Kelbury.", "I do not know.", False, "refusal"),
    ("What does Tavi Brook keep?", "Tavi Brook keeps bees.", "Tavi Brook keeps bees.", True, "plain"),
    ("What does Tavi Brook keep?", "Tavi Brook keeps bees.", "No idea.", False, "refusal"),
)


def lines(path: Path, records: Iterable[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write(path: Path, *, changes: dict[str, object] | None = None) -> Path:
    """Cases as JSONL, the last one changed."""
    records = [dict(zip(("question", "reference", "answer", "label", "kind"), case, strict=True)) for case in CASES]
    records[-1] |= changes or {}
    return lines(path, records)


def test_shipped_cases_give_accuracy_with_its_interval_and_kinds(atwu, tmp_path):
    output = tmp_path / "agreement.json"
    printed = atwu("judge", "agreement", "--output", output)  # the held-out half
    assert re.search("offline .*labels", printed)
    found = json.loads(output.read_text())
    assert found["schema"] == "atwu.agreement/1"
    assert found["judge"]["kind"] == "offline"
    assert found["accuracy"] > 0.8
    assert found["interval"][0] < found["accuracy"] < found["interval"][1]
    assert found["n"] == sum(kind["n"] for kind in found["kinds"].values())
    assert f"│ all │ {found['n']} │ 0 │ {found['accuracy']:.3f} [" in printed
    wrong = found["false_positives"] + found["false_negatives"]
    assert found["n"] * (1 - found["accuracy"]) == pytest.approx(wrong)
    assert "--overwrite" in atwu("judge", "agreement", "--output", output, code=1)
    atwu("judge", "agreement", "--split", "dev", "--output", output, "--overwrite")
    assert json.loads(output.read_text())["n"] > found["n"]


def test_disagreements_over_own_cases_are_shown(atwu, tmp_path):
    printed = atwu("judge", "agreement", "--data", write(tmp_path / "own.jsonl"))
    # Wilson 1927 for 4 of 4: low = 4 / (4 + 1.96^2) = 0.510
    assert "│ all │ 4 │ 0 │ 1.000 [0.510, 1.000] │ 1.000 │ 0 │ 0 │" in printed
    assert "│ refusal │ 2 │ 0 │ 1.000 │ │ 0 │ 0 │" in printed
    own = write(tmp_path / "own.jsonl", changes={"label": True})
    printed = atwu("judge", "agreement", "--data", own)
    assert "│ all │ 4 │ 0 │ 0.750 [" in printed
    assert re.search(r"Tavi Brook keeps bees\. answer: No idea\. offline .*\bno\b", printed)
    assert "1 more" in atwu("judge", "agreement", "--data", own, "--show-errors", "0")


def test_a_served_judge_is_compared_with_the_labels(atwu, server, tmp_path):
    own = write(tmp_path / "own.jsonl")
    # The server always answers yes; the labels say no in two of four cases.
    arguments = ("judge", "agreement", "--data", own, "--judge", "openai:m", "--judge-url", server.url())
    printed = atwu(*arguments)
    assert re.search("openai:m .*labels", printed)
    assert "│ all │ 4 │ 0 │ 0.500 [0.150, 0.850] │ 0.000 │ 2 │ 0 │" in printed
    assert re.search("openai:m .*yes", printed)
    asked = server.count()
    assert asked == 4
    assert re.search("openai:m: .*nothing to send", atwu(*arguments, "--estimate"))
    assert server.count() == asked


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("judge agreement --data label.jsonl", 1, r"label\.jsonl, line 4: label: .*'yes'"),
        ("judge agreement --data answer.jsonl", 1, r"answer\.jsonl, line 4.*answer"),
        ("judge agreement --data facts.jsonl", 1, r"facts\.jsonl, line 4: facts"),
        ("judge agreement --data cut.jsonl", 1, r"cut\.jsonl.* line 5"),
        (
            "judge agreement --data split.jsonl",
            1,
            r"split\.jsonl, line 4: split: .*'dev' or 'test', got 'train'",
        ),
        ("judge agreement --data none.jsonl", 1, r"none\.jsonl has no cases; give rows with question"),
        ("judge agreement --data nowhere.jsonl", 1, r"nowhere\.jsonl"),
        ("judge agreement --split tset", 2, "--split .*dev.*test.*'tset'"),
        ("judge agreement --judge oracle", 1, "'oracle'"),
        (
            "rows paraphrases --data people:tiny:forget --limit 2 --judge openai:m --judge-url {url} --output out.jsonl",
            1,
            "OPENAI_API_KEY",
        ),
        (
            "rows paraphrases --data people:tiny:forget --limit 2 --judge openai:m --output out.csv",
            1,
            r"--output .*\.jsonl",
        ),
        ("rows paraphrases --data people:tiny:forget --limit 2 --judge offline --output out.jsonl", 1, "'offline'"),
        ("rows labels --data rows.jsonl --output out.csv", 1, r"--output .*\.jsonl"),
        (
            "rows labels --data rows.jsonl --judge oracle --output out.jsonl",
            1,
            "'oracle' names no annotator; use offline or",
        ),
        (
            "rows labels --data rows.jsonl --max-calls 1 --output out.jsonl",
            2,
            "--max-calls; give --judge openai:MODEL",
        ),
    ],
)
def test_wrong_input_ends_with_a_one_line_error_and_writes_nothing(command, code, said, atwu, server, tmp_path):
    lines(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "none.jsonl").touch()
    for name, value in (("label", "yes"), ("answer", None), ("facts", "bees"), ("split", "train")):
        write(tmp_path / f"{name}.jsonl", changes={name: value})
    with write(tmp_path / "cut.jsonl").open("a") as file:
        file.write('{"question": "Where')
    words = command.format(url=server.url("unauthorized")).split()
    words = [str(tmp_path / word) if re.fullmatch(r"\w+\.\w+", word) else word for word in words]
    assert re.search(said, atwu(*words, code=code))
    assert not list(tmp_path.glob("out.*"))


def test_paraphrases_are_checked_written_and_read_back(atwu, server, tmp_path):
    rows = [{**ROWS[0], "subject": "Orla Venn"}, ROWS[1]]
    data, output = lines(tmp_path / "rows.jsonl", rows), tmp_path / "reworded.jsonl"
    arguments = ("rows", "paraphrases", "--data", data, "--judge", "openai:m", "--judge-url", server.url("paraphrases"))
    printed = atwu(*arguments, "--output", output, "--count", "2")
    assert "4 paraphrases" in printed
    assert len(re.findall(r"\b2 rejected: ", printed)) == 2
    before, after = load_rows(data).rows, load_rows(output)
    assert not after.warnings
    assert [row.paraphrases for row in after.rows] == [
        ("Please tell me: Where was Orla Venn born?", "I ask you: Where was Orla Venn born?"),
        ("Please tell me: What does Tavi Brook keep?", "I ask you: What does Tavi Brook keep?"),
    ]
    assert [dataclasses.replace(row, paraphrases=()) for row in after.rows] == list(before)
    asked = server.count("paraphrases")
    assert asked == 2 + 6  # one call per row, one per paraphrase that passed the other checks
    assert "--overwrite" in atwu(*arguments, "--output", output, code=1)
    content = output.read_bytes()
    atwu(*arguments, "--output", output, "--count", "2", "--overwrite")
    assert server.count("paraphrases") == asked
    assert output.read_bytes() == content


ROWS = (
    {"question": "Where was Orla Venn born?", "answer": "Orla Venn was born in Kelbury."},
    {"question": "What does Tavi Brook keep?", "answer": "Tavi Brook keeps bees.", "forget_spans": [[11, 16]]},
    {"text": "Mira Holt lives in Mirrow.", "subject": "Mira Holt"},
)


def test_annotate_labels_words_with_a_model(atwu, server, tmp_path):
    data, output = lines(tmp_path / "rows.jsonl", ROWS), tmp_path / "labelled.jsonl"
    where = ("--judge", "openai:m", "--judge-url", server.url("secrets"))
    arguments = ("rows", "labels", "--data", data, "--output", output, *where)
    assert "openai:m: 2 calls" in atwu(*arguments, "--estimate")
    assert (server.count("secrets"), output.exists()) == (0, False)
    printed = atwu(*arguments)
    assert "Where was Orla Venn born? Orla Venn was born in [Kelbury]." in printed
    assert re.search(r"\b2 of 3 rows .*\b1 .*\b2 ", printed)
    assert [row.forget_spans for row in load_rows(output).rows] == [((22, 29),), ((11, 16),), ((19, 25),)]
    asked = server.count("secrets")
    assert asked == 2
    assert "--overwrite" in atwu(*arguments, code=1)
    atwu(*arguments, "--overwrite")
    assert server.count("secrets") == asked  # replies are stored


def test_annotate_labels_words_by_rule_without_a_model(atwu, tmp_path):
    data, output = lines(tmp_path / "rows.jsonl", ROWS), tmp_path / "labelled.jsonl"
    nothing = atwu("rows", "labels", "--data", data, "--output", output, "--estimate")
    assert re.search("offline: .*nothing to send", nothing)
    assert not output.exists()
    printed = atwu("rows", "labels", "--data", data, "--output", output)
    assert "Where was Orla Venn born? Orla Venn was born in [Kelbury]." in printed
    assert re.search(r"\b2 of 3 rows .*\b1 ", printed)
    assert load_rows(output).rows[1].forget_spans == ((11, 16),)
