"""How to make the same numbers again: commands, settings that differ, full records of every method, versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from atwu.report.page.html import Html, join, tag
from atwu.report.records import Records, RunRecord
from atwu.training.card import public_record


def reproduce_section(records: Records, command: str | None) -> Html:
    """Commands, one closed box per method, and versions."""
    commands = [
        _command("The study", str(records.study["command"])) if records.study.get("command") else None,
        _command("This page", command) if command else None,
    ]
    budgets = {str(entry.get("label")): str(entry.get("budget") or "") for entry in records.study.get("variants", [])}
    if len(set(budgets.values())) == 1:  # told once, at the top of the page
        budgets = {}
    methods = [
        _method(label, records.of(label)[0], len(records.of(label)), budgets.get(label, "")) for label in records.labels
    ]
    about = str(records.study.get("about") or "").strip()
    return join(
        (
            tag("p", None, about) if about else "",
            *(found for found in commands if found is not None),
            tag("h3", None, "Settings of every method") if methods else "",
            *methods,
            _versions(records),
        )
    )


def _command(title: str, command: str) -> Html:
    return tag(
        "div",
        {"class": "command"},
        tag("h3", None, title),
        tag("pre", {"tabindex": 0}, tag("code", None, command)),
        tag("button", {"type": "button", "class": "plain copy", "hidden": True}, "Copy"),
    )


def _method(label: str, run: RunRecord, seeds: int, budget: str) -> Html:
    if run.run is None:
        record: Any = {"model": run.result.model, "evaluation": dict(run.result.settings)}
        told = "no record of its training"
    else:
        record = public_record(dict(run.run))
        told = _told(run.run)
    parts = [part for part in (told, budget) if part]
    name = f"run.json{'' if run.seed is None else f' of seed {run.seed}'}{f', one of {seeds}' if seeds > 1 else ''}"
    return tag(
        "details",
        None,
        tag(
            "summary",
            None,
            tag("span", {"class": "method"}, label),
            " ",
            tag("span", {"class": "told"}, "; ".join(parts)),
        ),
        tag("p", {"class": "note"}, name),
        tag("pre", {"tabindex": 0}, tag("code", None, json.dumps(record, indent=2, ensure_ascii=False, default=str))),
    )


def _told(run: Mapping[str, Any]) -> str:
    """The settings one looks for first."""
    recipe, config = run.get("recipe") or {}, run.get("config") or {}
    parts = [" × ".join(str(recipe[part]) for part in ("weighting", "forget_loss") if recipe.get(part))]
    if recipe.get("retain_loss"):
        parts.append(f"retain {recipe['retain_loss']}")
    if isinstance(config.get("learning_rate"), int | float):
        parts.append(f"learning rate {config['learning_rate']:.3g}")
    parts += [f"{key.replace('_', ' ')} {value:g}" for key, value in (recipe.get("values") or {}).items()]
    return ", ".join(part for part in parts if part)


def _versions(records: Records) -> Html:
    found: dict[str, list[str]] = {}
    for result in (*records.references.values(), *(run.result for run in records.runs)):
        for package, version in result.versions.items():
            if version not in found.setdefault(package, []):
                found[package].append(version)
    if not found:
        return Html("")
    told = ", ".join(f"{package} {' and '.join(versions)}" for package, versions in found.items())
    return join((tag("h3", None, "Versions"), tag("p", None, told)))
