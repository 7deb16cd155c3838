"""Sections about single rows: word scores during training, and sample answers of all models.

The page shows the final scores; its script reads the other snapshots from a JSON block. Runs have snapshots at
different steps, so the slider shows the share of training and each line its nearest snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from atwu.data.schema import Example
from atwu.evaluation.result import row_id
from atwu.evaluation.trace import Trace, TracedRow
from atwu.evaluation.word_scores import WordScore
from atwu.report.figures.curves import mask_note
from atwu.report.report_records import Records
from atwu.report.scored_row import ScoredRow, percent_of_score

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
HeatMapLine = tuple[str, int | None, Trace, Mapping[RowKey, TracedRow]]
"""Label, seed, trace and its rows: one line in the heat maps of every row."""


def traced(records: Records) -> dict[str, Any] | None:
    """Return introduction, rows by set, and the script's data; None without traces."""
    lines: list[HeatMapLine] = []
    for label in records.labels:
        traces = [(run.seed, run.trace) for run in records.of(label) if run.trace is not None and run.trace.steps]
        for seed, trace in traces[:1]:
            lines.append((label, seed, trace, {(row.set, row.question, row.answer): row for row in trace.rows}))
    keys = list(dict.fromkeys(key for *_, found in lines for key in found))
    if not keys:
        return None
    kinds: dict[str, dict[str, Any]] = {}
    for place, key in enumerate(keys):
        split, question, answer = key
        title, about = _TRACED_SETS.get(split, (split, ""))
        kind = kinds.setdefault(split, {"split": split, "title": title, "about": about, "rows": []})
        shown = [
            {
                "method": number,
                "label": label,
                "step": trace.steps[-1],
                "auroc": (trace.auroc.get(split) or (None,))[-1],
                "row": _at_the_end(found[key], label),
            }
            for number, (label, _, trace, found) in enumerate(lines)
            if key in found
        ]
        kind["rows"].append({"place": place, "name": question or answer, "question": question, "lines": shown})
    data = {
        "snapshots": max(len(trace.steps) for _, _, trace, _ in lines),
        "methods": [{"label": label, "steps": trace.steps, "auroc": dict(trace.auroc)} for label, _, trace, _ in lines],
        "rows": [[_snapshots(found[key]) if key in found else None for *_, found in lines] for key in keys],
    }
    return {"intro": _intro(records, lines), "kinds": list(kinds.values()), "data": data}


def _intro(records: Records, lines: Sequence[HeatMapLine]) -> str:
    without = [label for label in records.labels if label not in {name for name, *_ in lines}]
    each = "gives" if len(without) == 1 else "give"
    note = f" Not shown: {', '.join(without)}, which {each} every word the same weight, or have no trace."
    seeds = {label: seed for label, seed, *_ in lines if seed is not None}
    if len(set(seeds.values())) == 1:
        which = f", in the run with seed {next(iter(seeds.values()))}"
    else:
        each_seed = ", ".join(f"{label}: {seed}" for label, seed in seeds.items())
        which = f", in the first run with a trace (seed of {each_seed})" if seeds else ""
    return (
        "The score that each method uses, from 0 to 100, recomputed on the current model during training (without "
        f"the run's exponents){which}. AUROC measures how well the scores find the labelled tokens, over up "
        "to 40 rows per set, some of which are shown: 0.5 is chance, 1 is perfect."
        f"{mask_note(records)}{note if without else ''}"
    )


def _at_the_end(row: TracedRow, label: str) -> ScoredRow:
    words = tuple(
        WordScore(row.answer[start:end], start, end, None if score is None else percent_of_score(score) / 100)
        for (start, end), score in zip(row.words, row.scores[-1], strict=True)
    )
    return ScoredRow(row.question, row.answer, {label: words}, row.forget_spans, 0)


def _snapshots(row: TracedRow) -> list[list[int | None]]:
    return [[None if score is None else percent_of_score(score) for score in snapshot] for snapshot in row.scores]


def answers(records: Records) -> list[dict[str, Any]]:
    """Sample answers of the first seed of every method, by set: rows that most methods have, known questions first."""
    traces = [run.trace for run in records.runs if run.trace is not None]
    known = {row_id(Example.from_qa(row.question, row.answer)): row for trace in traces for row in trace.rows}
    results = {**records.references, **{label: records.of(label)[0].result for label in records.labels}}
    found = []
    for split, (title, metric, yes, no) in _ANSWERED_SETS.items():
        models = {name: result.rows[split] for name, result in results.items() if split in result.rows}
        models = {name: rows for name, rows in models.items() if rows.texts.get("answer")}
        if not models:
            continue
        methods = [models[label].ids for label in records.labels if label in models]
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
                if rows.ids == ids:
                    value = rows.metrics[metric][place] if metric in rows.metrics else None
                    verdict = "" if value is None else yes.format(value) if value > 0 else no
                    mark = f"yes {split}" if value else ""
                    lines.append(
                        {"who": who, "kind": "", "said": rows.texts["answer"][place], "verdict": verdict, "mark": mark}
                    )
            shown.append({"name": row.question if row else f"Row {place + 1}: {ids[place]}", "lines": lines})
        about = f"Evaluated on other rows and not shown: {', '.join(others)}." if others else ""
        found.append({"split": split, "title": title, "about": about, "rows": shown})
    return found
