"""What a page says beside its tables: notes to the ranking, key facts, and how to reproduce the numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from atwu.evaluation.result import EvalResult
from atwu.report.metric_table import MetricKey, format_range, metric_label, seeds_of
from atwu.report.report_records import NO_BUDGET, Records, format_left_out, leading_metric, left_out
from atwu.training.model_card import public_command, public_record


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
    entries = [
        ("methods" if len(seeds) != 1 else "method", str(len(seeds))),
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
    for label, told in places.told[places.place.isna() & (places.told != "")].items():
        notes.append(f"{label} is not ranked: it has {metric_label(key)} for {told}.")
    notes += [f"{sentence}." for sentence in records.table.not_ranked()]
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
    """Return commands, one collapsed box per method, and versions."""
    study = public_command(str(records.study.get("command") or ""))
    commands = {"The study": study, "This page": public_command(command or "")}
    budgets = {str(entry.get("label")): str(entry.get("budget") or "") for entry in records.study.get("variants", [])}
    if len(set(budgets.values())) == 1:  # stated at the top of the page
        budgets = {}
    shared = shared_settings([run.result for run in records.runs] or list(records.references.values()))
    methods = []
    for label in records.labels:
        run, *others = records.of(label)
        own = _own(run.result, shared)
        record = {"model": run.result.model} if run.run is None else dict(run.run)
        told = "no record of its training" if run.run is None else _recipe_text(run.run)
        note = f"run.json{'' if run.seed is None else f' of seed {run.seed}'}"
        note += f", one of {1 + len(others)}" if others else ""
        about = "; ".join(filter(None, (told, budgets.get(label))))
        methods.append(_box(label, about, note, public_record(record | ({"evaluation": own} if own else {}))))
    alike = [_box("the same for all methods", "", "", shared)] if shared else []
    references = [
        _box(role, f"evaluated with other {', '.join(own)}", "", own)
        for role, result in records.references.items()
        if (own := _own(result, shared))
    ]
    versions: dict[str, dict[str, None]] = {}
    for _, result in records.single_results:
        for package, version in result.versions.items():
            versions.setdefault(package, {})[version] = None
    return {
        "about": str(records.study.get("about") or "").strip(),
        "commands": {title: text for title, text in commands.items() if text},
        "settings": {"Settings of every method": methods, "Settings of the evaluation": alike + references},
        "versions": ", ".join(f"{package} {' and '.join(numbers)}" for package, numbers in versions.items()),
    }


def shared_settings(results: Sequence[EvalResult]) -> dict[str, Any]:
    """Evaluation settings shared by all results, without the fingerprints of their rows."""
    first, *others = [public_settings(result) for result in results] or [{}]
    return {key: value for key, value in first.items() if all(key in s and s[key] == value for s in others)}


def public_settings(result: EvalResult) -> dict[str, Any]:
    """Evaluation settings without the fingerprints of their rows and private parts of paths."""
    return {key: value for key, value in public_record(result.settings).items() if key != "rows"}


def _own(result: EvalResult, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluation settings that differ from the shared ones."""
    return {key: value for key, value in public_settings(result).items() if key not in shared or shared[key] != value}


def _box(name: str, told: str, note: str, record: Any) -> dict[str, str]:
    text = json.dumps(record, indent=2, ensure_ascii=False, default=str)
    return {"name": name, "told": told, "note": note, "record": text}


def _recipe_text(run: Mapping[str, Any]) -> str:
    recipe, config = run.get("recipe") or {}, run.get("config") or {}
    parts = [" × ".join(str(recipe[part]) for part in ("weighting", "forget_loss") if recipe.get(part))]
    if recipe.get("retain_loss"):
        parts.append(f"retain {recipe['retain_loss']}")
    if isinstance(config.get("learning_rate"), int | float):
        parts.append(f"learning rate {config['learning_rate']:.3g}")
    parts += [f"{key.replace('_', ' ')} {value:g}" for key, value in (recipe.get("values") or {}).items()]
    return ", ".join(part for part in parts if part)
