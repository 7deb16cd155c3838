"""Models that no longer work, and models that were not changed: each wins half of the metrics by that, and is not ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.result import EvalResult
from atwu.report.table_values import REFERENCE_MODELS, cell_of

DESTROYED, UNTOUCHED, UNCHANGED = "destroyed", "untouched", "unchanged"
MEANING = {
    DESTROYED: "less than half of what should stay is left, by every measure of it",
    UNTOUCHED: "the forget rows are as well known as before, by every measure of them",
    UNCHANGED: "its weights are those of a model that is compared with",
}
KEPT = ("extraction_strength", "probability", "rouge_l_recall", "J_AVG")
KNOWN = ("extraction_strength", "probability", "rouge_l_recall", "J_P")
"""Measures of what is known of retain rows, and of forget rows."""
HALF, SAME = 0.5, 0.95
"""Share of the starting model's value below which what should stay is gone, and above which nothing was forgotten."""


def standing(result: EvalResult, original: EvalResult | None) -> str:
    """`destroyed`, `untouched`, or empty for a model that takes part, and where the starting model was not measured."""
    if original is None:
        return ""
    left = list(_shares(result, original, RETAIN, KEPT))
    if left and max(left) < HALF:
        return DESTROYED
    known = list(_shares(result, original, FORGET, KNOWN))
    return UNTOUCHED if known and min(known) > SAME else ""


def standings(results: Mapping[str, EvalResult]) -> dict[str, str]:
    """What is said of the models that take no part, by name."""
    given = {results[role].fingerprint for role in REFERENCE_MODELS if role in results}
    found = {
        label: UNCHANGED if result.fingerprint in given else standing(result, results.get("original"))
        for label, result in results.items()
        if label not in REFERENCE_MODELS
    }
    return {label: word for label, word in found.items() if word}


def standing_note(out: Mapping[str, str]) -> list[str]:
    """A sentence without its full stop for every kind of model that takes no part."""
    kinds = {word: [label for label, said in out.items() if said == word] for word in MEANING}
    return [
        f"Not ranked, since {word} ({MEANING[word]}): {', '.join(labels)}" for word, labels in kinds.items() if labels
    ]


def _shares(result: EvalResult, original: EvalResult, split: str, names: Sequence[str]) -> Iterator[float]:
    """Values as shares of the starting model's, where that one has any."""
    for name in names:
        now, before = cell_of(result, (split, name)), cell_of(original, (split, name))
        if now is not None and before is not None and (before.value or 0.0) > 0:
            yield float(now.value or 0.0) / float(before.value or 1.0)
