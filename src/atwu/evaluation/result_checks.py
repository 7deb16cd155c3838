"""Provenance of a result, whether it can be compared with another, and the warnings about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atwu._cache import short_hash
from atwu.data.row_parsing import fingerprint as rows_fingerprint
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.generations import Generator
from atwu.evaluation.questions import question_prompts
from atwu.evaluation.registry import EvaluateConfig, all_metrics
from atwu.evaluation.result import EvalResult
from atwu.judge.verdicts import Judge

COMMON_SETTINGS = ("max_length", "system", "dtype", "backend")
"""Settings that change the values of every metric."""
FEW_CLUSTERS = 20
"""With fewer subjects, the width of an interval is itself uncertain."""


def provenance(
    config: EvaluateConfig,
    judge: Judge,
    sets: Mapping[str, Sequence[Example]],
    metrics: Sequence[str],
    *,
    model: Any | None,
    tokenizer: Any | None,
    generator: Generator | None,
) -> dict[str, Any]:
    """Return all settings, the judge and fingerprints of the rows, as plain JSON."""
    backend, dtype, template = "transformers", None, None
    if generator is not None:
        name, slash, _ = generator.identity.partition("/")
        # The identity of another package's generator is any text.
        backend = "other"
        if slash:
            backend = name
    if model is not None:
        dtype = str(model.dtype).removeprefix("torch.")
    if tokenizer is not None:
        template = short_hash(tokenizer.chat_template)
    chosen_settings = {
        "metrics": list(metrics),
        **config.values,
        "dtype": dtype,
        "backend": backend,
        "chat_template": template,
        "judge": dict(judge.identity),
        "rows": {split: rows_fingerprint(rows) for split, rows in sets.items()},
        "questions_per_row": {
            split: sorted({len(question_prompts(row, config.paraphrases)) for row in rows if row.messages})
            for split, rows in sets.items()
            if any(row.messages for row in rows)
        },
    }
    # As a result file gives them back: lists in place of tuples.
    plain: dict[str, Any] = json.loads(json.dumps(chosen_settings))
    return plain


def check_comparable(settings: Mapping[str, Any], other: EvalResult, *, role: str) -> None:
    """Check that another model was measured on the same rows with the same settings, for the metrics that both have."""
    theirs = other.settings
    # Settings of a metric that only one of the two has change nothing that is compared.
    matter = list(COMMON_SETTINGS)
    for name, metric in all_metrics().items():
        if name in settings["metrics"] and name in theirs.get("metrics", ()):
            matter += [*metric.uses, *(setting.name for setting in metric.settings if setting.compared)]
            matter += ["judge"] * metric.judged
    different = [
        f"{key} ({theirs.get(key)!r} instead of {settings.get(key)!r})"
        for key in dict.fromkeys(matter)
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
    mine, theirs = (side.get("chat_template") for side in (settings, other.settings))
    if mine is None or theirs is None or mine == theirs:
        return None
    return (
        f"the {role} model ({other.model}) was asked with another chat template, so differences from it are also due to "
        "the template; pass --chat-template FILE, which replaces it for all models."
    )


def find_degraded(result: EvalResult, original: EvalResult | None) -> Iterator[tuple[str, str, str]]:
    """Yield set, metric and warning for each number that shows a degraded model."""
    for metric in all_metrics().values():
        for column in metric.columns:
            if column.lost is None:
                continue
            for split, values in result.sets.items():
                for name, value in values.items():
                    if not column.on(split) or column.field(name) is None or value.value is None:
                        continue
                    before = None
                    if original is not None and name in original.sets.get(split, {}):
                        before = original.sets[split][name].value
                    sentence = column.lost(name, value.value, before)
                    if sentence is not None:
                        yield split, name, sentence


def warnings(result: EvalResult, original: EvalResult | None, retain_only: EvalResult | None = None) -> Iterator[str]:
    """Yield every warning about a result, one sentence each."""
    measured = result.settings.get("metrics", ())
    # A reference without the metric leaves values out, which would look as if the model had none.
    for role, other in (("original", original), ("retain-only", retain_only)):
        for name, metric in all_metrics().items():
            needed, missing = metric.needs_reference or ("", "")
            wanted = metric.reference_metrics or (name,)
            if other is None or needed != role or name not in measured:
                continue
            if not set(wanted) & set(other.settings.get("metrics", wanted)):
                yield f"{missing} not computed: the {role} result lacks the metric {' and '.join(wanted)}."
    for _, _, sentence in find_degraded(result, original):
        yield sentence
    for metric in all_metrics().values():
        yield from metric.warnings(result, original)
    for split, metrics in result.sets.items():
        for name, value in metrics.items():
            if value.unscored:
                yield f"{split}: {value.unscored} answers have no verdict in {name}; they are left out of its value."
    # A row without a subject has its ID in place of it.
    measured_rows = {split: result.rows[split] for split in (FORGET, RETAIN) if split in result.rows}
    without_subjects = [
        split for split, rows in measured_rows.items() if len(rows.ids) > 1 and rows.subjects == rows.ids
    ]
    if without_subjects:
        yield (
            f"{' and '.join(without_subjects)}: rows have no subjects, so intervals treat them as independent; they are too "
            "narrow if several rows are about the same subject (add a column 'subject')."
        )
    for split in (FORGET, RETAIN):
        if split in without_subjects:
            continue
        clusters = max((value.clusters for value in result.sets.get(split, {}).values()), default=0)
        if 1 < clusters < FEW_CLUSTERS:
            yield f"{split}: intervals are based on only {clusters} subjects, so they are wide and cover 95 % only roughly."
        elif clusters == 1:
            yield f"{split}: all rows are about one subject, so there are no intervals."
