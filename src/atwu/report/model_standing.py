"""Exclude destroyed and unchanged models from the ranking, because each wins half of the metrics trivially."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.result import EvalResult
from atwu.report.table_values import REFERENCE_MODELS, cell_of

DESTROYED, UNTOUCHED, REFERENCE_COPY = "destroyed", "untouched", "unchanged"
MEANING = {
    DESTROYED: "less than half of the retained knowledge is left, by every metric of it",
    UNTOUCHED: "the forget set is known as well as before, by every metric of it",
    REFERENCE_COPY: "its weights are those of a reference model",
}
RETAIN_METRICS = ("extraction_strength", "probability", "rouge_l_recall", "J_AVG")
FORGET_METRICS = ("extraction_strength", "probability", "rouge_l_recall", "J_P")
"""Metrics of knowledge of the retain set, and of the forget set."""
DESTROYED_SHARE, UNTOUCHED_SHARE = 0.5, 0.95
"""Share of the original model's value below which retained knowledge counts as lost, and above which nothing counts
as forgotten."""


def standing(result: EvalResult, original: EvalResult | None) -> str:
    """Return `destroyed`, `untouched`, or an empty text for a ranked model, and if the original model was not
    evaluated."""
    if original is None:
        return ""
    left = list(_shares(result, original, RETAIN, RETAIN_METRICS))
    if left and max(left) < DESTROYED_SHARE:
        return DESTROYED
    known = list(_shares(result, original, FORGET, FORGET_METRICS))
    return UNTOUCHED if known and min(known) > UNTOUCHED_SHARE else ""


def standings(results: Mapping[str, EvalResult]) -> dict[str, str]:
    """Return the status of models that are not ranked, by name."""
    given = {results[role].fingerprint for role in REFERENCE_MODELS if role in results}
    found = {
        label: REFERENCE_COPY if result.fingerprint in given else standing(result, results.get("original"))
        for label, result in results.items()
        if label not in REFERENCE_MODELS
    }
    return {label: word for label, word in found.items() if word}


def standing_note(out: Mapping[str, str]) -> list[str]:
    """Return a sentence without its full stop for every kind of unranked model."""
    kinds = {word: [label for label, said in out.items() if said == word] for word in MEANING}
    return [
        f"Not ranked, because {word} ({MEANING[word]}): {', '.join(labels)}" for word, labels in kinds.items() if labels
    ]


def _shares(result: EvalResult, original: EvalResult, split: str, names: Sequence[str]) -> Iterator[float]:
    """Values as shares of the original model's values, where those are above 0."""
    for name in names:
        now, before = cell_of(result, (split, name)), cell_of(original, (split, name))
        if now is not None and before is not None and (before.value or 0.0) > 0:
            yield float(now.value or 0.0) / float(before.value or 1.0)
