"""Provenance of a result, and checks that two results were measured on the same rows with the same settings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from atwu._cache import short_hash
from atwu.data.row_parsing import fingerprint as rows_fingerprint
from atwu.data.schema import Example
from atwu.evaluation.evaluate_config import EvaluateConfig
from atwu.evaluation.generations import Generator
from atwu.evaluation.questions.prompts import question_and_paraphrases
from atwu.evaluation.registry import all_metrics
from atwu.evaluation.result import EvalResult
from atwu.evaluation.sets import Sets
from atwu.judge.verdicts import Judge

COMMON_SETTINGS = ("max_length", "system", "dtype", "backend")
"""Settings that change the values of every metric."""


def provenance(
    config: EvaluateConfig,
    judge: Judge,
    sets: Sets,
    metrics: Sequence[str],
    *,
    model: Any | None,
    tokenizer: Any | None,
    generator: Generator | None,
) -> dict[str, Any]:
    """Return all settings, the judge and fingerprints of the rows, as plain JSON."""
    chosen_settings = {
        "metrics": list(metrics),
        **config.values,
        "dtype": None if model is None else str(model.dtype).removeprefix("torch."),
        "backend": "transformers" if generator is None else _backend(generator),
        "chat_template": None if tokenizer is None else short_hash(tokenizer.chat_template),
        "judge": dict(judge.identity),
        "rows": {split: rows_fingerprint(rows) for split, rows in sets.items()},
        "questions_per_row": {
            split: counts for split, rows in sets.items() if (counts := _questions_per_row(rows, config.paraphrases))
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(chosen_settings))
    return plain


def _questions_per_row(rows: Sequence[Example], most: int) -> list[int]:
    """Return the distinct numbers of questions per row (the original question and its paraphrases)."""
    return sorted({len(question_and_paraphrases(row, most)) for row in rows if row.messages})


def _backend(generator: Generator) -> str:
    name, found, _ = generator.identity.partition("/")
    return name if found else "other"


def check_comparable(settings: Mapping[str, Any], other: EvalResult, *, role: str) -> None:
    """Check that another model was measured on the same rows with the same settings, for the metrics that both have."""
    theirs = other.settings
    shared = set(settings["metrics"]) & set(theirs.get("metrics", ()))
    different = [
        f"{key} ({theirs.get(key)!r} instead of {settings.get(key)!r})"
        for key in dict.fromkeys([*COMMON_SETTINGS, *_matter_to(shared)])
        if theirs.get(key) != settings.get(key)
    ]
    rows = theirs.get("rows", {})
    different += [f"the {split} rows" for split, value in settings["rows"].items() if rows.get(split, value) != value]
    if different:
        raise ValueError(
            f"the {role} result ({other.model}) is not comparable; it differs in {'; '.join(different)}. "
            "Evaluate it again with the same rows and options."
        )


def different_template(settings: Mapping[str, Any], other: EvalResult, *, role: str) -> str | None:
    """Return a warning if another model was measured with another chat template; None where one of them is unknown."""
    mine, theirs = (each.get("chat_template") for each in (settings, other.settings))
    if mine is None or theirs is None or mine == theirs:
        return None
    return (
        f"the {role} model ({other.model}) was asked with another chat template, so differences from it are also due to "
        "the template; pass --chat-template FILE, which replaces it for all models."
    )


def _matter_to(names: Collection[str]) -> Iterator[str]:
    """Yield the settings that change the values of the given metrics."""
    for name, metric in all_metrics().items():
        if name in names:
            yield from metric.uses
            yield from (setting.name for setting in metric.settings if setting.compared)
            if metric.judged:
                yield "judge"
