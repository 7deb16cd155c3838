"""Render the report page: what it says, its sections, and the data of its tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from atwu.data.schema import Example
from atwu.evaluation.registry import column_of, short_name
from atwu.evaluation.result import EvalResult, row_id
from atwu.evaluation.word_scores import Trace, TracedRow, WordScore
from atwu.report.figures import all_figures, mask_note
from atwu.report.metric_table import (
    MEANING,
    REFERENCE_MODELS,
    MetricKey,
    Table,
    format_duration,
    format_range,
    metric_label,
    seeds_of,
)
from atwu.report.page_templates import ScoredRow, render_template
from atwu.report.report_records import (
    NO_BUDGET,
    Records,
    RunRecord,
    format_left_out,
    headline_metrics,
    leading_metric,
    left_out,
    models_by_warning,
)
from atwu.training.model_card import public_command, public_record

ANSWERS_PER_SET = 8
"""Number of rows per set with sample answers."""
_TRACED_SETS = {
    "forget": ("Forget rows", "Rows that the methods unlearn."),
    "holdout": ("Holdout rows", "Rows about other subjects, which no model was trained on: do the scores generalize?"),
}
_ANSWERED_SETS = {
    "forget": ("Forget rows", "J_W", "leaked for some prompt", "not leaked for any prompt"),
    "retain": ("Retain rows", "J_AVG", "right for {:.0f} % of prompts", "wrong for every prompt"),
}

RowKey = tuple[str, str, str]
"""Set, question, answer."""
TracedLabel = tuple[str, Trace, Mapping[RowKey, TracedRow]]
"""Label, trace and its rows."""


def traced_words(records: Records) -> dict[str, Any] | None:
    """Return introduction and rows by set, each with the words of every method before, amid and after training.

    None without traces.
    """
    labels: list[TracedLabel] = []
    for label in records.labels:
        traces = [run.trace for run in records.of(label) if run.trace is not None and run.trace.steps]
        for trace in traces[:1]:  # scores cannot be averaged: of several seeds the first one is shown
            labels.append((label, trace, {(row.set, row.question, row.answer): row for row in trace.rows}))
    keys = dict.fromkeys(key for *_, rows in labels for key in rows)
    if not keys:
        return None
    kinds: dict[str, dict[str, Any]] = {}
    for key in keys:
        split, question, answer = key
        title, about = _TRACED_SETS.get(split, (split, ""))
        kind = kinds.setdefault(split, {"split": split, "title": title, "about": about, "rows": []})
        lines = [line for label, trace, rows in labels if key in rows for line in _lines_of(label, trace, rows[key])]
        kind["rows"].append({"name": question or answer, "question": question, "lines": lines})
    return {"intro": _intro(records, labels), "kinds": list(kinds.values())}


def _lines_of(label: str, trace: Trace, row: TracedRow) -> list[dict[str, Any]]:
    """Return the words of a row at the first, the middle and the last recorded step."""
    last = len(trace.steps) - 1
    aurocs = trace.auroc.get(row.set, ())
    lines = []
    for place in dict.fromkeys((0, last // 2, last)):  # a short trace has fewer than three
        ends_and_scores = zip(row.words, row.scores[place], strict=True)
        words = tuple(WordScore(row.answer[start:end], start, end, score) for (start, end), score in ends_and_scores)
        lines.append(
            {
                "label": label,
                "step": trace.steps[place],
                "auroc": aurocs[place] if aurocs else None,
                "row": ScoredRow(row.question, row.answer, {label: words}, row.forget_spans, 0),
            }
        )
    return lines


def _intro(records: Records, labels: Sequence[TracedLabel]) -> str:
    without = [label for label in records.labels if label not in {name for name, *_ in labels}]
    verb = "give"
    if len(without) == 1:
        verb = "gives"
    note = ""
    if without:
        note = f" Not shown: {', '.join(without)}, which {verb} every word the same weight, or have no trace."
    return (
        "The score that each method uses, from 0 to 100, recomputed on the current model during training (without "
        "the run's exponents), in the first run of each method that has a trace. AUROC measures how well the scores "
        "find the labelled tokens, over up to 40 rows per set, some of which are shown: 0.5 is chance, 1 is perfect."
        f"{mask_note(records)}{note}"
    )


def answers(records: Records) -> list[dict[str, Any]]:
    """Sample answers of the first seed of every method, by set: rows that most methods have, known questions first."""
    traces = [run.trace for run in records.runs if run.trace is not None]
    known = {row_id(Example.from_qa(row.question, row.answer)): row for trace in traces for row in trace.rows}
    results = {**records.references, **{label: records.of(label)[0].result for label in records.labels}}
    sections = []
    for split, (title, metric, yes, no) in _ANSWERED_SETS.items():
        models = {name: result.rows[split] for name, result in results.items() if split in result.rows}
        models = {name: rows for name, rows in models.items() if rows.texts.get("answer")}
        if not models:
            continue
        methods = [models[label].ids for label in records.labels if label in models]
        # Models may be evaluated on different rows; shown are those that most of them have.
        ids = Counter(methods or [rows.ids for rows in models.values()]).most_common(1)[0][0]
        others = [name for name, rows in models.items() if rows.ids != ids]
        places = [place for place, name in enumerate(ids) if name in known]
        places += range(0, len(ids), max(1, len(ids) // ANSWERS_PER_SET))
        shown = []
        for place in list(dict.fromkeys(places))[:ANSWERS_PER_SET]:
            row, lines = known.get(ids[place]), []
            if row is not None:
                lines.append({"who": "in the data", "kind": "truth", "said": row.answer, "verdict": ""})
            for who, rows in models.items():
                if rows.ids != ids:  # an answer beside another question would mislead
                    continue
                value = rows.metrics[metric][place] if metric in rows.metrics else None
                verdict = mark = ""
                if value is not None and value > 0:
                    verdict, mark = yes.format(value), f"yes {split}"
                elif value is not None:
                    verdict = no
                lines.append(
                    {"who": who, "kind": "", "said": rows.texts["answer"][place], "verdict": verdict, "mark": mark}
                )
            name = f"Row {place + 1}: {ids[place]}"  # results have ids only, traces the questions of their rows
            if row is not None:
                name = row.question
            shown.append({"name": name, "lines": lines})
        about = ""
        if others:
            about = f"Evaluated on other rows and not shown: {', '.join(others)}."
        sections.append({"split": split, "title": title, "about": about, "rows": shown})
    return sections


_NOTES = {"original": "original model", "retain-only": "never trained on forget rows"}
SORT = "Click a column header to sort."


def render_report_page(records: Records, *, command: str | None = None, focus: str = "atwu") -> str:
    """Render a report as one self-contained HTML page, with its `command`; equal records give equal pages."""
    every = records.table
    table = every.only(headline_metrics(records))
    models = {name for name, _ in records.single_results}
    warnings = models_by_warning(records.single_results)
    return render_template(
        "page.html",
        title=records.title,
        summary=summary(records),
        facts=facts(records),
        headline=models_page_table(table, every, focus=focus),
        figures={drawn.key: drawn for drawn in all_figures(records, focus=focus)},
        traced=traced_words(records),
        costs=cost_table(records),
        answers=answers(records),
        warnings={
            sentence: "all models" if set(names) == models else ", ".join(names) for sentence, names in warnings.items()
        },
        missing=left_out(records),
        reproduce=reproduce(records, command),
        glossary={"headline": explain_metrics(table.keys), "further": explain_metrics(every.keys, but=table.keys)},
    )


def explain_metrics(keys: Sequence[MetricKey], but: Sequence[MetricKey] = ()) -> list[dict[str, str]]:
    """Name, meaning and source of every metric in `keys` that is not in `but`, once although several sets have it."""
    explained_before = {metric for _, metric in but}
    entries: dict[str, dict[str, str]] = {}
    for split, metric in keys:
        column = column_of(metric, split)
        if column is not None and metric not in explained_before:
            entry = {"name": short_name(metric, split), "meaning": column.meaning, "where": column.where}
            # As in the first set that has it, at the place of the last one.
            entries[metric] = entries.pop(metric, entry)
    return list(entries.values())


def models_page_table(table: Table, every: Table, *, focus: str) -> dict[str, Any]:
    """Table with one row per model and one column per metric, those of `every` that are not in `table` hidden at first."""
    # The headline first; the page shows the others if they are asked for.
    keys = [*table.keys, *(key for key in every.keys if key not in table.keys)]
    every = every.only(keys)
    cells = every.cells(lambda cell: cell, None)
    ends = {key: range_of(rows) for key, rows in table.frame.groupby(["set", "metric"])}
    columns = []
    for head in every.heads:
        split, metric = head.key
        column, meaning = column_of(metric, split), ""
        if column is not None:
            meaning = f"{metric_label(head.key)}: {column.meaning}"
        columns.append(
            {
                "name": short_name(metric, split),
                "direction": head.direction,
                "above": split,
                "below": f"n = {head.count}",
                "meaning": meaning,
                "more": head.key not in table.keys,
                "ends": ends.get(head.key),
            }
        )
    return {
        "name": "headline",
        "caption": f"Reference models first, then methods. {SORT}",
        "first": "Model",
        "columns": columns,
        "rows": [
            {
                "label": label,
                "cells": list(cells.loc[label]),
                "below": _NOTES.get(label) or every.out.get(label, ""),
                "meaning": MEANING.get(every.out.get(label, ""), ""),
                "focus": label == focus,
                "reference": label in REFERENCE_MODELS,
            }
            for label in every.labels
        ],
        # Marks and notes that the legend explains.
        "used": {*every.frame["mark"], *(name for name in ("interval", "spread") if (every.frame[name] != "").any())},
        "out": {word: MEANING[word] for word in MEANING if word in every.out.values()},
    }


def cost_table(records: Records) -> dict[str, Any] | None:
    """Training time, peak memory and calls to the judge of a run, means over seeds; None if nothing was recorded."""

    def seconds(run: RunRecord) -> float | None:
        """Without those of the trace, which only methods with token weights have."""
        whole: float | None = (run.run or {}).get("train_seconds")
        if whole is None or run.trace is None:
            return whole
        return whole - run.trace.seconds

    spent = {
        "training time": [seconds(run) for run in records.runs],
        "peak memory": [(run.run or {}).get("peak_memory_bytes") for run in records.runs],
        "judge calls": [run.result.cost.get("judge_calls") for run in records.runs],
    }
    formats: dict[str, Callable[[float], str]] = {
        "training time": format_duration,
        "peak memory": lambda size: f"{size / 1e9:.3g} GB",
        "judge calls": "{:,.0f}".format,
    }
    means = pd.DataFrame(spent, dtype=float).groupby([run.label for run in records.runs], sort=False).mean()
    means = means.loc[:, (means > 0).any()]
    if means.empty:
        return None
    # What cells of metrics have and costs have not; the template prints both.
    plain = {"mark": "", "interval": "", "spread": "", "told": ""}
    rows: list[dict[str, Any]] = []
    for label, mean_of in means.iterrows():
        rows.append({"label": str(label), "cells": []})
        for title, mean in mean_of.items():
            cell = None
            if not pd.isna(mean):
                cell = plain | {"value": mean, "number": formats[str(title)](mean)}
            rows[-1]["cells"].append(cell)
    caption = f"Means over seeds, per run; times depend on the machine, and cached verdicts count. {SORT}"
    columns = [{"name": str(title)} for title in means]
    return {"name": "cost-table", "caption": caption, "first": "Method", "columns": columns, "rows": rows}


def range_of(rows: pd.DataFrame) -> tuple[float, float] | None:
    """Smallest and largest number of a column, including intervals."""
    numbers = rows[["value", "low", "high"]]
    low, high = numbers.min(axis=None), numbers.max(axis=None)
    if high > low:
        return low, high
    return None


def ranking(records: Records, key: MetricKey) -> pd.DataFrame:
    """Methods ranked by a metric, best printed value first, with their `place`.

    Methods with a value for only some seeds, and destroyed or unchanged models, have no place.
    """
    frame = records.table.only([key]).frame
    return frame[~frame.reference].set_index("label").sort_values("place", kind="stable")


def facts(records: Records) -> list[tuple[str, str]]:
    results = [run.result for run in records.runs]
    seeds = [seeds_of(records.results[label]) for label in records.labels]
    frame = records.table.frame
    rows = frame[~frame.reference].groupby("set").n.max()
    kind = "methods"
    if len(seeds) == 1:
        kind = "method"
    entries = [
        (kind, str(len(seeds))),
        ("seeds each", format_range(seeds)),
        *((f"{split} rows", str(rows.get(split, ""))) for split in ("forget", "retain")),
        ("prompts per question", records.prompts),
        ("setting", str((records.study.get("setting") or {}).get("name") or "")),
        ("judge", " and ".join(sorted(set(map(_judge, results)) - {""}))),
    ]
    return [(name, text) for name, text in entries if text not in ("", "0")]


def summary(records: Records) -> list[str]:
    """Return what the table does not say: models without a place, missing runs, and how the methods were tuned."""
    key = leading_metric(records)
    if key is None:
        return ["No metric with a direction was measured."]
    notes = [f"Methods are ranked by {metric_label(key)}."]
    places = ranking(records, key)
    for label, seeds in places.told[places.place.isna() & (places.told != "")].items():
        notes.append(f"{label} is not ranked: it has {metric_label(key)} for {seeds}.")
    notes += [f"{sentence}." for sentence in records.table.reasons_not_ranked()]
    frame = records.table.frame
    degraded = list(frame.label[frame.lost != ""].unique())
    if degraded:
        notes.append(f"General abilities lost: {', '.join(degraded)} (marked in the table).")
    planned = dict.fromkeys(str(variant["label"]) for variant in records.study.get("variants", ()))
    left = left_out(records)
    missing = [label for label in planned if label not in records.labels and label not in left]
    if missing:
        notes.append(f"No finished run: {', '.join(missing)}.")
    notes += [f"{text}." for text in (records.study.get("progress"), format_left_out(records)) if text]
    budget = str(records.study.get("budget") or NO_BUDGET).strip().rstrip(".")
    return [*notes, f"Tuning: {budget}."]


def _judge(result: EvalResult) -> str:
    """Return the model or kind of the judge; empty without a judge."""
    identity = result.settings.get("judge") or {}
    model = identity.get("model") or {}
    return str(model.get("model") or model.get("kind") or identity.get("kind") or "")


def reproduce(records: Records, command: str | None) -> dict[str, Any]:
    """Return commands, one collapsed box per method and per settings of the evaluation, and versions."""
    study = public_command(str(records.study.get("command") or ""))
    commands = {"The study": study, "This page": public_command(command or "")}
    budgets = {str(entry.get("label")): str(entry.get("budget") or "") for entry in records.study.get("variants", [])}
    if len(set(budgets.values())) == 1:  # stated at the top of the page
        budgets = {}
    methods = []
    for label in records.labels:
        run, *others = records.of(label)
        record: dict[str, Any] = {"model": run.result.model}
        about = "no record of its training"
        if run.run is not None:
            record, about = dict(run.run), _recipe_text(run.run)
        if budgets.get(label):
            about = "; ".join(filter(None, (about, budgets[label])))
        note = "run.json"
        if run.seed is not None:
            note += f" of seed {run.seed}"
        if others:
            note += f", one of {1 + len(others)}"
        methods.append({"name": label, "told": about, "note": note, "record": _to_text(public_record(record))})
    # Without the fingerprints of the rows, which say nothing to a reader.
    evaluated: dict[str, list[str]] = {}
    first = {label: records.of(label)[0].result for label in records.labels}
    for name, result in {**records.references, **first}.items():
        settings = {key: value for key, value in public_record(result.settings).items() if key != "rows"}
        evaluated.setdefault(_to_text(settings), []).append(name)
    evaluation = [
        {"name": ", ".join(names), "told": "", "note": "", "record": text} for text, names in evaluated.items()
    ]
    versions: dict[str, dict[str, None]] = {}
    for _, result in records.single_results:
        for package, version in result.versions.items():
            versions.setdefault(package, {})[version] = None
    return {
        "about": str(records.study.get("about") or "").strip(),
        "commands": {title: text for title, text in commands.items() if text},
        "settings": {"Settings of every method": methods, "Settings of the evaluation": evaluation},
        "versions": ", ".join(f"{package} {' and '.join(numbers)}" for package, numbers in versions.items()),
    }


def _to_text(record: Any) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False, default=str)


def _recipe_text(run: Mapping[str, Any]) -> str:
    recipe, config = run.get("recipe") or {}, run.get("config") or {}
    parts = [" × ".join(str(recipe[part]) for part in ("weighting", "forget_loss") if recipe.get(part))]
    if recipe.get("retain_loss"):
        parts.append(f"retain {recipe['retain_loss']}")
    if isinstance(config.get("learning_rate"), int | float):
        parts.append(f"learning rate {config['learning_rate']:.3g}")
    parts += [f"{key.replace('_', ' ')} {value:g}" for key, value in (recipe.get("values") or {}).items()]
    return ", ".join(part for part in parts if part)
