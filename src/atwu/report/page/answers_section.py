"""Section with sample answers of all models to a few rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from atwu.data.schema import Example
from atwu.evaluation.result import EvalResult, RowValues, row_id
from atwu.report.run_records import Records

ANSWERS_PER_SET = 8
"""Number of rows per set."""
_SETS = {
    "forget": ("Forget rows", "J_W", "leaked for some prompt", "not leaked for any prompt"),
    "retain": ("Retain rows", "J_AVG", "right for {value:.0f} % of prompts", "wrong for every prompt"),
}


def answers(records: Records) -> list[dict[str, Any]]:
    """Return sample answers of the first seed of every method, by set; empty if no answers were stored."""
    questions = _questions(records)
    return [found for split in _SETS if (found := _kind(records, split, questions)) is not None]


def _questions(records: Records) -> dict[str, tuple[str, str]]:
    """Name of a row -> its question and answer, where traces contain them."""
    rows = [row for run in records.runs if run.trace is not None for row in run.trace.rows]
    return {row_id(Example.from_qa(row.question, row.answer)): (row.question, row.answer) for row in rows}


def _kind(records: Records, split: str, questions: dict[str, tuple[str, str]]) -> dict[str, Any] | None:
    models = _models(records, split)
    if not models:
        return None
    labels = [name for name in models if name in records.labels] or list(models)
    ids = Counter(models[name].ids for name in labels).most_common(1)[0][0]
    others = [name for name, rows in models.items() if rows.ids != ids]
    same = {name: rows for name, rows in models.items() if rows.ids == ids}
    shown = []
    for number, place in enumerate(_chosen(ids, questions), start=1):
        question, truth = questions.get(ids[place], (None, None))
        lines = [] if truth is None else [{"who": "in the data", "kind": "truth", "said": truth, "verdict": ""}]
        lines += [{"who": name, "kind": "model", **_said(rows, split, place)} for name, rows in same.items()]
        shown.append({"name": question or _name(next(iter(same.values())), place, number), "lines": lines})
    about = f"Evaluated on other rows and not shown: {', '.join(others)}." if others else ""
    return {"split": split, "title": _SETS[split][0], "about": about, "rows": shown}


def _models(records: Records, split: str) -> dict[str, RowValues]:
    results: dict[str, EvalResult] = dict(records.references) | {
        label: records.of(label)[0].result for label in records.labels
    }
    return {
        name: result.rows[split]
        for name, result in results.items()
        if split in result.rows and result.rows[split].texts.get("answer")
    }


def _chosen(ids: Sequence[str], questions: dict[str, tuple[str, str]]) -> list[int]:
    """Choose rows whose question is known first, the others evenly spaced."""
    known = [place for place, name in enumerate(ids) if name in questions]
    step = max(1, len(ids) // ANSWERS_PER_SET)
    spread = [place for place in range(0, len(ids), step) if place not in known]
    return sorted((known + spread)[:ANSWERS_PER_SET])


def _name(rows: RowValues, place: int, number: int) -> str:
    subject = rows.subjects[place]
    return f"About {subject}" if subject != rows.ids[place] else f"Row {number}"


def _said(rows: RowValues, split: str, place: int) -> dict[str, str]:
    """Return an answer and its verdict."""
    _, metric, yes, no = _SETS[split]
    value = rows.metrics.get(metric, (None,) * len(rows.ids))[place]
    verdict = "" if value is None else yes.format(value=value) if value > 0 else no
    mark = ("yes leak" if split == "forget" else "yes") if value else ""
    return {"said": rows.texts["answer"][place], "verdict": verdict, "mark": mark}
