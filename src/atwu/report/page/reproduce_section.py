"""Section on how to reproduce the numbers: commands, settings, records of all methods, versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from atwu.evaluation.result import EvalResult
from atwu.report.report_records import Records, RunRecord
from atwu.training.model_card import public_command, public_record


def reproduce(records: Records, command: str | None) -> dict[str, Any]:
    """Return commands, one collapsed box per method, and versions."""
    study = public_command(str(records.study.get("command") or ""))  # several studies have one line each
    commands = {"The studies" if "\n" in study else "The study": study, "This page": public_command(command or "")}
    budgets = {str(entry.get("label")): str(entry.get("budget") or "") for entry in records.study.get("variants", [])}
    if len(set(budgets.values())) == 1:  # stated at the top of the page
        budgets = {}
    shared = shared_settings([run.result for run in records.runs] or list(records.references.values()))
    methods = [
        _method(label, records.of(label)[0], len(records.of(label)), budgets.get(label, ""), shared)
        for label in records.labels
    ]
    alike = [_box("the same for all methods", "", "", shared)] if shared else []
    references = [
        _box(role, f"evaluated with other {', '.join(own)}", "", own)
        for role, result in records.references.items()
        if (own := _own(result, shared))
    ]
    return {
        "about": str(records.study.get("about") or "").strip(),
        "commands": {title: text for title, text in commands.items() if text},
        "settings": {"Settings of every method": methods, "Settings of the evaluation": alike + references},
        "versions": _versions(records),
    }


def shared_settings(results: Sequence[EvalResult]) -> dict[str, Any]:
    """Evaluation settings shared by all results, without the fingerprints of their rows."""
    first, *others = [_settings(result) for result in results] or [{}]
    return {key: value for key, value in first.items() if all(key in s and s[key] == value for s in others)}


def _settings(result: EvalResult) -> dict[str, Any]:
    return {key: value for key, value in public_record(result.settings).items() if key != "rows"}


def _own(result: EvalResult, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluation settings that differ from the shared ones."""
    return {key: value for key, value in _settings(result).items() if key not in shared or shared[key] != value}


def _method(label: str, run: RunRecord, seeds: int, budget: str, shared: Mapping[str, Any]) -> dict[str, str]:
    record = {"model": run.result.model} if run.run is None else dict(run.run)
    told = "no record of its training" if run.run is None else _told(run.run)
    own = _own(run.result, shared)
    parts = [part for part in (told, budget) if part]
    name = f"run.json{'' if run.seed is None else f' of seed {run.seed}'}{f', one of {seeds}' if seeds > 1 else ''}"
    return _box(label, "; ".join(parts), name, public_record(record | ({"evaluation": own} if own else {})))


def _box(name: str, told: str, note: str, record: Any) -> dict[str, str]:
    text = json.dumps(record, indent=2, ensure_ascii=False, default=str)
    return {"name": name, "told": told, "note": note, "record": text}


def _told(run: Mapping[str, Any]) -> str:
    """The most important settings of a run."""
    recipe, config = run.get("recipe") or {}, run.get("config") or {}
    parts = [" × ".join(str(recipe[part]) for part in ("weighting", "forget_loss") if recipe.get(part))]
    if recipe.get("retain_loss"):
        parts.append(f"retain {recipe['retain_loss']}")
    if isinstance(config.get("learning_rate"), int | float):
        parts.append(f"learning rate {config['learning_rate']:.3g}")
    parts += [f"{key.replace('_', ' ')} {value:g}" for key, value in (recipe.get("values") or {}).items()]
    return ", ".join(part for part in parts if part)


def _versions(records: Records) -> str:
    found: dict[str, dict[str, None]] = {}
    for result in (*records.references.values(), *(run.result for run in records.runs)):
        for package, version in result.versions.items():
            found.setdefault(package, {})[version] = None
    return ", ".join(f"{package} {' and '.join(versions)}" for package, versions in found.items())
