"""The table of several models: marks, intervals, differences."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from atwu._cache import short_hash
from atwu.evaluation.aggregate import paired_differences
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.report.metric_table import PANEL, table_of
from atwu.report.table_writers import SplitTable, differences_table, models_markdown, models_terminal_table, panel_table
from tests.evaluation.conftest import result_of, row_values

NONE = MetricValue(None, 0, "up", skipped=40)


def down(value, low=None, high=None, n=40):
    return MetricValue(value, n, "down", low=low, high=high, digits=1)


def up(value, n=100):
    return MetricValue(value, n, "up", digits=1)


def result(name, forget, *, rate=None, fluency=500.0, uq=None):
    sets = {"forget": {"J_W": forget}, "instructions": {"repetitiveness": up(fluency)}}
    if rate is not None:
        sets["instructions"]["win_rate"] = up(rate)
    return EvalResult(name, short_hash(name), sets, {} if uq is None else {"UQ": up(uq, 40)}, {}, {}, {})


RESULTS = {
    "original": result("original", down(93.1, 90.0, 96.0)),
    "retain-only": result("retain-only", down(2.0)),
    "npo": result("npo", down(30.04, 20.0, 41.2), rate=44.0, fluency=470.0, uq=50.0),
    "wga": result("wga", down(30.01, 20.0, 41.2, n=38), rate=55.0, fluency=480.0, uq=40.0),
    "atwu": result("atwu", down(14.5, 9.9, 20.0), rate=50.0, fluency=520.0, uq=78.1),
}


def cells(table: SplitTable) -> dict[str, dict[str, Text]]:
    first, *others = table.table.columns
    names = [name.plain.strip().partition(" (n")[0] for name in first.cells]
    return {column.header.plain: dict(zip(names, column.cells, strict=True)) for column in others}


def test_best_second_and_degraded_among_ranked_models() -> None:
    shown = cells(panel_table(RESULTS))
    assert {name: (cell["J_W ↓"].plain, cell["J_W ↓"].style) for name, cell in shown.items()} == {
        "original": ("93.1 [90.0, 96.0]", "dim"),
        "retain-only": ("2.0", "dim"),
        "npo": ("30.0 [20.0, 41.2]", "italic"),
        "wga": ("30.0 [20.0, 41.2]", "italic"),  # prints the same, so it ranks the same
        "atwu": ("14.5 [9.9, 20.0]", "bold green"),
    }
    assert {name: cell["win_rate ↑"].style for name, cell in shown.items() if "-" not in name} == {
        "original": "dim",
        "npo": "red",
        "wga": "bold green",
        "atwu": "italic",
    }
    assert shown["original"]["win_rate ↑"].plain == "–"
    assert shown["npo"]["repetitiveness ↑"].style == "red"
    assert shown["atwu"]["UQ ↑"].style == "bold green"


def test_the_degraded_mark_replaces_the_best_mark() -> None:
    lost = {"npo": result("npo", down(1.0), rate=44.0), "wga": result("wga", down(2.0), rate=40.0)}
    assert {cell["win_rate ↑"].style for cell in cells(panel_table(lost)).values()} == {"red"}
    assert "**44.0**" not in models_markdown(table_of(lost))


@pytest.mark.parametrize("width", [50, 80, 200])
def test_columns_that_do_not_fit_are_printed_in_a_second_table(width: int) -> None:
    text = shown(panel_table(RESULTS), width)
    assert all(len(line) <= width for line in text.splitlines())
    words = text.split()
    for name in RESULTS:
        assert words.count(name) == 1
    assert text.count("J_W ↓") == text.count("metric ") == {50: 5, 80: 2, 200: 1}[width]
    assert "20.0, 41.2]" in text
    assert "…" not in text


def test_different_row_counts_are_noted_and_attacks_follow_long_names() -> None:
    recovered = {"extraction_strength": down(1.0), "extraction_strength@relearn_forget_twice": down(2.0, n=12)}
    text = shown(panel_table({"atwu": EvalResult("atwu", "", {"forget": recovered}, {}, {}, {}, {})}), 60)
    assert "forget (n = 40)" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    place = lines.index("extraction_strength 2.0")
    assert lines[place + 1] == "@relearn_forget_twice ↓ (n = 12)"


def test_the_caption_explains_only_the_marks_that_are_shown() -> None:
    counts, *marks = panel_table(RESULTS, keys=[("forget", "J_W")]).notes
    assert counts == "Rows: forget n=38–40"
    assert "best" in marks[-1]
    assert "degraded" not in marks[-1]
    assert "degraded" in panel_table(RESULTS).notes[-1]
    assert panel_table({"atwu": result("atwu", down(14.5), rate=50.0)}).notes == []


def test_metrics_are_grouped_by_set_and_missing_ones_omitted() -> None:
    odd = dataclasses.replace(
        RESULTS["npo"], sets={"retain": {"J_AVG": up(1.0), "J_P": NONE}, "forget": {"ES": up(0.0)}}
    )
    assert table_of({"atwu": RESULTS["atwu"], "odd": odd}).keys == [
        ("forget", "J_W"),
        ("forget", "ES"),
        ("instructions", "repetitiveness"),
        ("instructions", "win_rate"),
        ("retain", "J_AVG"),
        ("overall", "UQ"),
    ]
    assert set(table_of(RESULTS).keys) < set(PANEL)


def shown(table, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue()


def test_one_model_or_equal_values_are_not_ranked_and_of_two_only_the_best_is_marked() -> None:
    alone = {"original": result("original", down(0.9)), "atwu": result("atwu", down(0.1))}
    equal = {name: result(name, down(0.1)) for name in ("wga", "atwu")}
    for results in (alone, equal):
        assert set(table_of(results).frame["mark"]) == {""}
    two = {name: result(name, down(left)) for name, left in (("wga", 0.1), ("atwu", 0.2))}
    assert list(table_of(two).frame.query("metric == 'J_W'")["mark"]) == ["best", ""]


def test_odd_values() -> None:
    nan = MetricValue(float("nan"), 1, "up")
    found = {"a": {"x": up(-0.0001), "y|z": nan}, "b": {"x": up(-0.25), "[b]y|z": up(1.0)}}
    odd = {name: EvalResult(name, "", {"s": metrics}, {}, {}, {}, {}) for name, metrics in found.items()}
    assert models_markdown(table_of(odd)) == (
        "| method | s x ↑ | s \\[b\\]y\\|z ↑ |\n| --- | ---: | ---: |\n| a | **0.0** | – |\n| b | -0.2 | 1.0 |\n"
    )
    assert models_markdown(table_of({})) == "| method |\n| --- |\n"
    assert "[b]y|z ↑" in shown(panel_table(odd))  # not markup of the terminal's
    assert shown(panel_table({}))


def test_selected_metrics_can_have_custom_names() -> None:
    text = shown(models_terminal_table(RESULTS, {("forget", "J_W"): "what\nleaks", ("overall", "UQ"): "UQ"}))
    first, second = (line.split() for line in text.splitlines()[1:3])
    assert [first, second] == [["what"], ["method", "leaks", "↓", "UQ", "↑"]]
    rows = [line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in RESULTS]
    assert rows[0] == ["original", "93.1", "–"]
    assert rows[-1] == ["atwu", "14.5", "78.1"]
    assert "Green: best, italic: second." in text


SUBJECTS = tuple(f"person {index // 4}" for index in range(40))


def measured(name, shift, *, original=None, subjects=SUBJECTS):
    noise = np.random.default_rng(0).uniform(20, 60, size=40)
    shift = shift * np.linspace(0.9, 1.1, 40)
    rows = {
        split: row_values({metric: noise + more}, subjects)
        for split, metric, more in (("forget", "J_W", shift), ("retain", "J_AVG", 0.0))
    }
    return result_of(rows, name=name, original=original)


@pytest.fixture
def compared() -> dict[str, EvalResult]:
    original = measured("original", 40.0)
    return {"original": original} | {
        name: measured(name, shift, original=original) for name, shift in (("npo", 10.0), ("atwu", 0.0))
    }


def differences(results: dict[str, EvalResult], *, to: str) -> SplitTable:
    every = list(results.values())
    found = {name: paired_differences(each, results[to], every) for name, each in results.items() if name != to}
    return differences_table({"": found}, to=to, heads=table_of(results).heads)


def bold(cell: Text) -> bool:
    return any("bold" in str(span.style) for span in cell.spans)


def test_differences_are_paired_and_bold_where_they_exclude_zero(compared) -> None:
    table = cells(differences(compared, to="npo"))
    assert list(table) == ["original", "atwu"]
    shown = table["atwu"]
    assert shown["forget J_W ↓"].plain == "-10.0 [-10.4, -9.6]"
    assert bold(shown["forget J_W ↓"])
    assert shown["retain J_AVG ↑"].plain == "+0.0 [-30.8, +30.8]"
    assert not bold(shown["retain J_AVG ↑"])
    expected = compared["atwu"].overall["UQ"].value - compared["npo"].overall["UQ"].value
    assert shown["overall UQ ↑"].plain.startswith(f"{expected:+.1f} [")
    assert bold(shown["overall UQ ↑"])
    assert table["original"]["overall UQ ↑"].plain == "–"  # the original model has none
    del compared["original"]  # which derived metrics need
    shown = cells(differences(compared, to="npo"))["atwu"]
    assert shown["overall FQ ↑"].plain == "–"
    assert shown["forget J_W ↓"].plain.startswith("-10.0")


def test_one_subject_has_no_interval_and_zero_no_sign() -> None:
    def shown(shift: float, **more: object) -> Text:
        results = {name: measured(name, left, **more) for name, left in (("npo", shift), ("atwu", 0.0))}
        return cells(differences(results, to="npo"))["atwu"]["forget J_W ↓"]

    alone = shown(10.0, subjects=("Orla Venn",) * 40)
    assert alone.plain == "-10.0"
    assert not bold(alone)
    assert "-0.0" not in shown(0.01).plain


def test_different_rows_are_rejected(compared) -> None:
    other = compared["atwu"]
    rows = {split: dataclasses.replace(found, ids=found.ids[::-1]) for split, found in other.rows.items()}
    with pytest.raises(ValueError, match="forget rows"):
        differences({"npo": compared["npo"], "atwu": dataclasses.replace(other, rows=rows)}, to="npo")


def test_intervals_of_tasks_are_labelled_as_normal_intervals() -> None:
    task = MetricValue(27.0, 855, "up", low=24.0, high=30.0, digits=1)
    alone = EvalResult("a", short_hash("a"), {"tasks": {"mmlu": task}}, {}, {}, {}, {})
    both = dataclasses.replace(alone, sets={**alone.sets, "forget": {"J_W": down(30.0, 20.0, 41.2)}})
    said = "For tasks: 95 % intervals from the harness's standard errors"
    drawn = "In brackets: 95 % bootstrap intervals, resampled by subject"
    assert table_of({"a": alone}).caption({}) == [said]
    assert table_of({"a": both}).caption({}) == [drawn, said]
    assert table_of({"npo": RESULTS["npo"]}).caption({}) == [drawn]
