"""What the models said to a few rows, one under the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from atwu.data.schema import Example
from atwu.evaluation.result import EvalResult, RowValues, row_id
from atwu.report.page.chooser import kind
from atwu.report.page.html import Html, join, tag
from atwu.report.records import Records

SHOWN = 8
"""Rows of each set."""
LONGEST = 400
"""Characters of an answer that are shown."""
_SETS = {
    "forget": ("Forget rows", "J_W", "leaked in some wording", "not leaked in any wording"),
    "retain": ("Retain rows", "J_AVG", "right in {value:.0f} % of wordings", "wrong in every wording"),
}


def answers_section(records: Records) -> Html | None:
    """Sample answers of the first seed of every method; None where no answers were kept."""
    questions = _questions(records)
    kinds = [found for split in _SETS if (found := _kind(records, split, questions)) is not None]
    if not kinds:
        return None
    intro = tag(
        "p", None, "What the models answer to the plain question, decoded greedily; of every method its first seed."
    )
    return join((intro, *kinds))


def _questions(records: Records) -> dict[str, tuple[str, str]]:
    """Name of a row -> its question and answer, as far as traces tell them."""
    rows = [row for run in records.runs if run.trace is not None for row in run.trace.rows]
    return {row_id(Example.from_qa(row.question, row.answer)): (row.question, row.answer) for row in rows}


def _kind(records: Records, split: str, questions: dict[str, tuple[str, str]]) -> Html | None:
    models = _models(records, split)
    if not models:
        return None
    labels = [name for name in models if name in records.labels] or list(models)
    ids = Counter(models[name].ids for name in labels).most_common(1)[0][0]
    others = [name for name, rows in models.items() if rows.ids != ids]
    about = f"Measured on other rows and not shown: {', '.join(others)}." if others else ""
    same = {name: rows for name, rows in models.items() if rows.ids == ids}
    chosen = _chosen(ids, questions)
    names = [_name(same, place, questions.get(ids[place]), number) for number, place in enumerate(chosen, start=1)]
    articles = [_article(split, place, same, questions.get(ids[place])) for place in chosen]
    rows = [
        (name, tag("article", {"class": "card"}, tag("h4", {"dir": "auto"}, name), article))
        for name, article in zip(names, articles, strict=True)
    ]
    return kind(split, _SETS[split][0], about, rows)


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
    """Rows whose question is known first, the others evenly over the set."""
    known = [place for place, name in enumerate(ids) if name in questions]
    step = max(1, len(ids) // SHOWN)
    spread = [place for place in range(0, len(ids), step) if place not in known]
    return sorted((known + spread)[:SHOWN])


def _name(models: Mapping[str, RowValues], place: int, row: tuple[str, str] | None, number: int) -> str:
    rows = next(iter(models.values()))
    subject = rows.subjects[place]
    return row[0] if row else f"About {subject}" if subject != rows.ids[place] else f"Row {number}"


def _article(split: str, place: int, models: Mapping[str, RowValues], row: tuple[str, str] | None) -> Html:
    truth = [] if row is None else [_line("in the data", row[1], None, "truth")]
    return join((*truth, *(_line(model, *_said(rows, split, place), "model") for model, rows in models.items())))


def _said(rows: RowValues, split: str, place: int) -> tuple[str, Html | None]:
    _, metric, yes, no = _SETS[split]
    value = rows.metrics.get(metric, (None,) * len(rows.ids))[place]
    said = rows.texts["answer"][place]
    if value is None:
        return said, None
    classes = ("verdict yes leak" if split == "forget" else "verdict yes") if value > 0 else "verdict"
    return said, tag("span", {"class": classes}, yes.format(value=value) if value > 0 else no)


def _line(who: str, said: str, verdict: Html | None, kind: str) -> Html:
    shown = said if len(said) <= LONGEST else f"{said[: LONGEST - 1].rstrip()}…"
    return tag(
        "div",
        {"class": f"line {kind}"},
        tag("div", {"class": "who"}, tag("span", {"class": "method"}, who), verdict),
        tag("p", {"class": "answer", "dir": "auto"}, shown or tag("em", None, "(empty)")),
    )
