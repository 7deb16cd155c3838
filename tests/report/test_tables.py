"""Result tables: ranking, marks and layout."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from atwu.report.tables import MetricValue, markdown_table, results_table


def _down(value: float | None, n: int = 40) -> MetricValue:
    return MetricValue(value, n, "down")


def _up(value: float | None, n: int = 400) -> MetricValue:
    return MetricValue(value, n, "up", digits=2)


RESULTS = {
    "original": {"ES_F": _down(0.97), "ES_R": _up(0.99)},
    "retain-only": {"ES_F": _down(0.001), "ES_R": _up(0.98)},
    "grad_diff": {"ES_F": _down(0.0501), "ES_R": _up(0.412), "tokens": MetricValue(5, 1, "none", digits=0)},
    "wga": {"ES_F": _down(0.0499), "ES_R": _up(None), "tokens": MetricValue(3, 1, "none", digits=0)},
    "atwu": {"ES_F": _down(0.031, 38), "ES_R": _up(0.9)},
}


def _columns(table: Table) -> dict[str, dict[str, Text]]:
    models, *metrics = table.columns
    names = [str(cell) for cell in models.cells]
    return {str(column.header).partition("\n")[0]: dict(zip(names, column._cells, strict=True)) for column in metrics}


def test_best_is_bold_and_second_italic_among_unlearned_models() -> None:
    columns = _columns(results_table(RESULTS))
    assert list(columns) == ["ES_F ↓", "ES_R ↑", "tokens"]
    forget = {model: (cell.plain, cell.style) for model, cell in columns["ES_F ↓"].items()}
    assert forget == {
        "original": ("0.970", "dim"),
        "retain-only": ("0.001", "dim"),  # better than any, but not ranked
        "grad_diff": ("0.050", "italic"),
        "wga": ("0.050", "italic"),  # prints the same, so it ranks the same
        "atwu": ("0.031", "bold"),
    }
    retain = {model: (cell.plain, cell.style) for model, cell in columns["ES_R ↑"].items()}
    assert retain["atwu"] == ("0.90", "bold")
    assert retain["grad_diff"] == ("0.41", "")  # last of two is not a second place
    assert retain["wga"] == ("–", "")
    assert {str(cell.style) for cell in columns["tokens"].values()} <= {"", "dim"}


def test_terminal_layout() -> None:
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(results_table(RESULTS, title="people [small]"))
    shown = out.getvalue()
    assert "people [small]" in shown
    assert "n=38–40" in shown
    assert "n=400" in shown
    rows = [line for line in shown.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == list(RESULTS)
    assert shown.splitlines().index(next(row for row in rows if "grad_diff" in row)) - 1 == next(
        place for place, line in enumerate(shown.splitlines()) if line.startswith("├")
    ), "a rule between reference rows and unlearned models"


def test_markdown() -> None:
    assert markdown_table(RESULTS) == (
        "| model | ES\\_F ↓ (n=38–40) | ES\\_R ↑ (n=400) | tokens (n=1) |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| original | 0.970 | 0.99 | – |\n"
        "| retain-only | 0.001 | 0.98 | – |\n"
        "| grad\\_diff | *0.050* | 0.41 | 5 |\n"
        "| wga | *0.050* | – | 3 |\n"
        "| atwu | **0.031** | **0.90** | – |\n"
    )


def test_own_references_are_left_out_of_the_ranking() -> None:
    text = markdown_table(RESULTS, references=["atwu"])
    assert "| retain-only | **0.001** |" in text
    assert "| atwu | 0.031 |" in text


def test_one_model_or_equal_values_are_not_ranked() -> None:
    alone = {"original": {"ES_F": _down(0.9)}, "atwu": {"ES_F": _down(0.1)}}
    equal = {"wga": {"ES_F": _down(0.1)}, "atwu": {"ES_F": _down(0.1)}}
    for results in (alone, equal):
        assert "*" not in markdown_table(results)
        assert results_table(results).caption is None


def test_sets_as_rows_carry_their_own_arrows() -> None:
    sets = {"forget": {"es": _down(0.1)}, "retain": {"es": MetricValue(0.9, 400, "up")}}
    text = markdown_table(sets)
    assert "| es (n=40–400) |" in text
    assert "| forget | 0.100 ↓ |" in text
    assert "| retain | 0.900 ↑ |" in text


def test_odd_values() -> None:
    odd = {
        "a": {"x": MetricValue(-0.0001, 1, "up"), "y|z": MetricValue(float("nan"), 1, "up")},
        "b": {"x": MetricValue(-0.25, 1, "up")},
    }
    text = markdown_table(odd)
    assert "| a | **0.000** | – |" in text
    assert "| b | -0.250 | – |" in text
    assert "y\\|z ↑ (n=0)" in text
    assert markdown_table({}) == "| model |\n| --- |\n"
    assert results_table({}).row_count == 0
