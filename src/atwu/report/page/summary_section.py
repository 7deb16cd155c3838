"""What a page says in words: its summary (best methods, significance, data), and how to reproduce the numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from atwu._file_reading import printable
from atwu.evaluation.result import EvalResult, format_number
from atwu.report.metric_table import MEANING, MetricKey, format_range, metric_label, seeds_of
from atwu.report.report_records import Records, format_left_out, leading_metric, left_out
from atwu.training.model_card import public_command, public_record

_TOLD = 2
"""Maximum number of methods behind the best that each get a sentence."""


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


def summary(records: Records, *, focus: str) -> Markup:
    return Markup(" ").join(_sentences(records, focus))


def _sentences(records: Records, focus: str) -> Iterator[str]:
    key = leading_metric(records)
    if key is None:
        yield "No metric with a direction was measured."
        return
    rows = ranking(records, key)
    name = metric_label(key)
    yield from _leaders(records, focus, key, rows[rows.place.notna()])
    for label, told in rows.told[rows.place.isna() & (rows.told != "")].items():
        yield f"{label} is not ranked: it has {name} for {told}."
    for word, meaning in MEANING.items():
        if out := [label for label, said in records.table.out.items() if said == word]:
            yield f"{_listed(out)} {'is' if len(out) == 1 else 'are'} {word} and not ranked: {meaning}."
    frame = records.table.frame
    if lost := list(frame.label[frame.lost != ""].unique()):
        yield f"{_listed(lost)} lost general abilities (marked in the table)."
    left = left_out(records)
    planned = dict.fromkeys(str(variant["label"]) for variant in records.study.get("variants", ()))
    if missing := [label for label in planned if label not in records.labels and label not in left]:
        yield f"No finished run of {_listed(missing)}."
    yield from (f"{text}." for text in (records.study.get("progress"), format_left_out(records)) if text)
    budget = str(records.study.get("budget") or "").strip().rstrip(".")
    yield f"Tuning: {budget}." if budget else "The tuning budget is not recorded."


def _leaders(records: Records, focus: str, key: MetricKey, ranked: pd.DataFrame) -> Iterator[str]:
    """Describe the first and second place by printed value, and the place of the highlighted method."""
    if ranked.empty:
        return
    places = ranked.place.astype(int)
    tied, name = list(places.index[places == 1]), metric_label(key)
    best = ranked.loc[tied[0]]
    if len(tied) == 1:
        around = [f"95 % interval {best.interval[1:-1].replace(', ', ' to ')}"] if best.interval else []
        around += [f"± {best.spread} over {best.seeds} seeds"] if best.spread else []
        told = f"{best.number} ({', '.join(around)})" if around else best.number
        yield _strong(tied[0]) + f" has the best {name}: {told}."
    else:
        names = Markup(", ").join(map(_strong, tied[:-1]))
        yield names + " and " + _strong(tied[-1]) + f" share the best {name}: {best.number}."
    behind = places[places > 1]
    named = list(behind.index[behind == behind.min()][:_TOLD])
    for label in [*named, *([focus] if focus in behind and focus not in named else [])]:
        start = _strong(label) + f" is number {places[label]} of {len(ranked)} with {ranked.number[label]}"
        yield start + _apart(records, tied, label, key, best.digits)


def _apart(records: Records, tied: Sequence[str], other: str, key: MetricKey, digits: int) -> str:
    """Whether the difference to the best is significant, as the end of a sentence."""
    found = records.difference(tied[0], other, key)
    interval = None if found is None else found.interval()
    if found is None or not math.isfinite(found.value) or interval is None:
        return "."
    shown, low, high = (format_number(number, digits) for number in (found.value, *interval))
    apart = interval[0] > 0 or interval[1] < 0
    verdict = "excludes zero" if apart else "does not exclude zero: not significantly different on these rows"
    to = f" to {tied[0]}" if len(tied) > 1 else ""
    first, second = ([run.seed for run in records.of(label)] for label in (tied[0], other))
    shared = ", ".join(str(seed) for seed in first if seed in second)
    over = "" if first == second else f" over the seeds that both have ({shared})"
    return f"; the paired difference{to}{over} of {shown} [{low}, {high}] {verdict}."


def _strong(label: str) -> Markup:
    return Markup("<strong>{}</strong>").format(printable(label))


def _judge(result: EvalResult) -> str:
    """Return the model or kind of the judge; empty without a judge."""
    identity = result.settings.get("judge") or {}
    model = identity.get("model") or {}
    return str(model.get("model") or model.get("kind") or identity.get("kind") or "")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def reproduce(records: Records, command: str | None) -> dict[str, Any]:
    """Return commands, one collapsed box per method, and versions."""
    study = public_command(str(records.study.get("command") or ""))  # several studies have one line each
    commands = {"The studies" if "\n" in study else "The study": study, "This page": public_command(command or "")}
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
        "versions": ", ".join(f"{package} {' and '.join(found)}" for package, found in versions.items()),
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
