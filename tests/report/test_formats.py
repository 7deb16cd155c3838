"""The table of a report in every format: numbers equal those of the JSON, and captions are complete."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re

import pytest
from rich.console import Console

from atwu.evaluation.result import MetricValue
from atwu.report.read_records import read_records
from atwu.report.report_records import Records, degradation_notes, headline_metrics, report_table
from atwu.report.table_writers import (
    WRITERS,
    escape_latex,
    escape_markdown,
    headline_table,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
)

BUDGET = "20 trials per method, learning rate and forget weight searched"


def values(plain: dict, label: str) -> dict[tuple[str, str], dict]:
    found = plain["results"][label]
    sets = {**found["sets"], "overall": found["overall"]}
    return {(split, metric): cell for split, metrics in sets.items() for metric, cell in metrics.items()}


def printed(records: Records, width: int = 400) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(headline_table(records))
    return console.file.getvalue()


def markdown_rows(text: str) -> dict[str, list[str]]:
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].replace("\\", ""): row[1:] for row in rows}


def latex_rows(text: str) -> list[list[str]]:
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0].replace(r"\midrule", "")
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", row)] for row in body.strip().split("\\\\\n")]


def test_the_headline_table_has_the_papers_metrics_and_other_measured_ones(records) -> None:
    assert headline_metrics(records) == [
        ("overall", "UQ"),
        ("forget", "extraction_strength"),
        ("retain", "extraction_strength"),
        ("overall", "ES_delta"),
        ("forget", "J_P"),
        ("forget", "J_W"),
        ("retain", "J_AVG"),
        ("overall", "FQ"),
        ("overall", "RD"),
        ("instructions", "repetitiveness"),
        ("instructions", "win_rate"),
        ("overall", "mia_auc_loss"),
        ("forget", "auroc_scorer"),
    ]


def with_original(records: Records, *names: str) -> Records:
    """The same with further derived metrics of the original model."""
    more = {name: MetricValue(0.5, 8, "up") for name in names}
    original = records.references["original"]
    changed = dataclasses.replace(original, overall=original.overall | more)
    return dataclasses.replace(records, references={"original": changed})


def test_the_headline_table_includes_utility_and_one_membership_attack(records) -> None:
    more = with_original(records, "model_utility", "mia_auc_min_k", "N_delta_official")
    assert r"N\_Δ (official) ↑" in to_markdown(more)
    lines = headline_metrics(more)
    assert lines[-4:] == [
        ("overall", "model_utility"),
        ("overall", "mia_auc_min_k"),
        ("forget", "auroc_scorer"),
        ("overall", "N_delta_official"),
    ]


def test_the_caption_gives_the_number_of_prompts_per_question(records) -> None:
    assert "prompts per question" not in to_markdown(records)
    asked = {"questions_per_row": {"forget": [1, 6]}}
    runs = tuple(
        dataclasses.replace(run, result=dataclasses.replace(run.result, settings=asked)) for run in records.runs
    )
    assert ", prompts per question: 1–6, seeds: 2." in to_markdown(dataclasses.replace(records, runs=runs))


def test_printed_numbers_are_those_of_the_json(records) -> None:
    plain = json.loads(to_json(records))
    lines = [tuple(line) for line in plain["headline"]]
    markdown, latex = markdown_rows(to_markdown(records)), latex_rows(to_latex(records))
    terminal = {
        line.split()[0]: line.split()[1:]
        for line in printed(records).splitlines()
        if line.split()[:1] and line.split()[0] in plain["results"]
    }
    csv_cells = {(row["label"], row["set"], row["metric"]): row for row in csv.DictReader(io.StringIO(to_csv(records)))}
    labels = list(plain["results"])
    assert [row[0] for row in latex[::2]] == labels
    for place, label in enumerate(labels):
        found = values(plain, label)
        for column, line in enumerate(lines):
            cell = found.get(line)
            if cell is None:
                assert markdown[label][column] == terminal[label][column] == "–"
                assert latex[2 * place][column + 1] == "--"
                continue
            number = f"{cell['value']:.{cell['digits']}f}"
            assert re.sub(r"\*|\(!\)", "", markdown[label][column]).split()[0] == number
            assert terminal[label][column] == number
            assert re.search(
                rf"(?<![\d.]){re.escape(number.replace('-', '$-$'))}(?![\d.])", latex[2 * place][column + 1]
            )
            if cell["seed_std"] is not None:
                spread = f"{cell['seed_std']:.{cell['digits']}f}"
                assert f" ± {spread}" in markdown[label][column]
                assert f"$_{{\\pm {spread}}}$" in latex[2 * place][column + 1]
            if cell["low"] is not None:
                low, high = (f"{cell[end]:.{cell['digits']}f}" for end in ("low", "high"))
                assert markdown[label][column].endswith(f"[{low}, {high}]")
                assert latex[2 * place + 1][column + 1] == f"{{\\tiny [{low}, {high}]}}".replace("-", "$-$")
            row = csv_cells[label, *line]
            assert float(row["value"]) == cell["value"]
            assert (row["n"], row["direction"], row["seeds"]) == (str(cell["n"]), cell["direction"], str(cell["seeds"]))
            assert row["seed_std"] == ("" if cell["seed_std"] is None else repr(cell["seed_std"]))


def test_marks(records) -> None:
    table = report_table(records)
    marks = {(row.label, row.metric): row.mark for row in table.frame.itertuples()}
    assert table.labels == ["original", "retain-only", "atwu", "wga", "npo"]
    assert marks["npo", "win_rate"] == "degraded"
    assert marks["atwu", "FQ"] == "best"
    assert marks["wga", "FQ"] == "second"
    assert marks["atwu", "mia_auc_loss"] == ""  # neither way is better
    assert marks["original", "win_rate"] == ""
    assert degradation_notes(table) == ["npo: win rate 40.0 is below 45: generation is degraded."]
    markdown = markdown_rows(to_markdown(records))
    column = [name for _, name in headline_metrics(records)].index("win_rate")
    assert markdown["npo"][column].startswith("40.0 (!) ± 0.0")
    assert r"\textcolor{red}{40.0}" in to_latex(records)
    assert r"\textbf{81.2}" in to_latex(records)
    assert r"\underline{" in to_latex(records)


@pytest.mark.parametrize("text", [to_markdown, to_latex, printed])
def test_exported_tables_come_with_their_caption(records, text) -> None:
    said = " ".join(text(records).split()).replace("23--24", "23–24")
    rows = "forget n=23–24, retain n=24"
    for words in (rows, "seeds: 2", f"Tuning budget: {BUDGET}", "means over seeds", "degraded"):
        assert words in said
    study = {"failed": {"atwu-s1": "diverged.\n" + "x" * 200}, "left_out": {"dpo": "no rows"}}
    unknown = " ".join(text(dataclasses.replace(records, study=study)).split())
    assert "Tuning budget: not stated" in unknown
    assert re.search(r"Left out: atwu-s1 \(diverged\. x+(…|\\ldots\{\})\), dpo \(no rows\)\.", unknown)


def test_the_caption_explains_only_shown_metrics(build_records) -> None:
    single = build_records(labels=["atwu"], seeds=[0])
    for text in (to_markdown(single), to_latex(single), printed(single)):
        assert "means over seeds" not in text
        assert "old: best" not in text
        assert "seeds: 1" in text
    assert "[" not in printed(single)
    assert "In brackets" not in printed(single)
    heads = markdown_rows(to_markdown(single))["method"]
    assert heads[0] == "UQ ↑"
    assert len(heads) == len(headline_metrics(single))


def test_latex_is_well_formed(build_records) -> None:
    text = to_latex(build_records(labels=["atwu", "rho_50% & {more} #1"], seeds=[0, 1]))
    body = re.sub(r"\\[{}]", "", text)
    assert body.count("{") == body.count("}")
    assert r"rho\_50\% \& \{more\} \#1" in text
    assert r"method & UQ $\uparrow$ & ES$_{F}$ $\downarrow$ & ES$_{R}$ $\uparrow$ & ES$_{\Delta}$ $\uparrow$ & " in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert rule in text
    columns = re.search(r"\\begin\{tabular\}\{(l r*|lr+)\}", text)[1]
    for row in latex_rows(text):
        assert len(row) == len(columns)
    assert text.isascii()


def test_special_characters(build_records) -> None:
    assert escape_latex("a_b\\c ± 5 % – ×") == r"a\_b\textbackslash{}c $\pm$ 5 \% -- $\times$"
    assert f"| {escape_markdown('a|b_c*')} |" in to_markdown(build_records(labels=["atwu", "a|b_c*"], seeds=[0]))


def test_values_of_only_some_seeds_are_marked_and_not_ranked(records) -> None:
    first, *others = records.runs
    less = {name: cell for name, cell in first.result.overall.items() if name != "UQ"}
    first = dataclasses.replace(first, result=dataclasses.replace(first.result, overall=less))
    found = dataclasses.replace(records, runs=(first, *others))
    cells = markdown_rows(to_markdown(found))
    place = headline_metrics(found).index(("overall", "UQ"))
    assert [name for name, row in cells.items() if "(1 of 2 seeds)" in row[place]] == ["atwu"]
    assert re.fullmatch(r"\d+\.\d \[[\d., ]+\] \(1 of 2 seeds\)", cells["atwu"][place])
    assert cells["wga"][place].startswith("**")
    assert r" {\tiny (1 of 2 seeds)}" in to_latex(found)
    assert "(1 of 2 seeds)" in printed(found)


def test_json_holds_no_secrets(records) -> None:
    study = {
        **records.study,
        "command": "atwu study run x --judge-url https://orla:pw@host/v1?key=abc --output ~/somebody/y",
    }
    run = dataclasses.replace(
        records.runs[0], run={"data": {"forget": {"source": "/srv/somebody/a.jsonl + people:tiny:retain"}}}
    )
    text = to_json(dataclasses.replace(records, study=study, runs=(run, *records.runs[1:])))
    assert not re.search("orla|pw|abc|somebody|srv", text)
    assert json.loads(text)["study"]["command"] == "atwu study run x --judge-url https://host/v1 --output y"
    assert json.loads(text)["runs"][0]["run"]["data"]["forget"]["source"] == "a.jsonl + people:tiny:retain"


def test_json_is_complete(records) -> None:
    plain = json.loads(to_json(records))
    assert plain["schema"] == "atwu.report/1"
    assert plain["study"]["budget"] == BUDGET
    assert [(run["label"], run["seed"]) for run in plain["runs"]] == [(run.label, run.seed) for run in records.runs]
    assert plain["runs"][0]["run"]["config"]["learning_rate"] == 3e-4
    for label, result in records.results.items():
        expected = json.loads(json.dumps(result.to_json()))
        assert plain["results"][label]["sets"] == expected["sets"]
        assert plain["results"][label]["overall"] == expected["overall"]


def test_csv_has_every_value_once(records) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(records))))
    keys = [(row["label"], row["set"], row["metric"]) for row in rows]
    assert len(keys) == len(set(keys))
    for label, result in records.results.items():
        known = {(label, split, name) for split, metrics in result.sets.items() for name in metrics}
        assert known <= set(keys)
        assert {(label, "overall", name) for name in result.overall} <= set(keys)


def test_terminal_splits_the_table_rather_than_a_number(records) -> None:
    wide, narrow = printed(records), printed(records, width=60)
    assert wide.count("method  ") == 1
    assert narrow.count("method  ") == 3
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 60
    numbers = re.compile(r"(?<![\w.-])-?\d+\.\d+")
    assert sorted(numbers.findall(wide)) == sorted(numbers.findall(narrow))


def test_exported_text_equals_the_written_file(records, study_folder) -> None:
    read = read_records([study_folder])
    for name, write in WRITERS.items():
        assert write(read) == write(records), name
