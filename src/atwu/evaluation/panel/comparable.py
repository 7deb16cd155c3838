"""Whether two results may be put side by side: the same rows, and the same settings as far as they matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atwu.evaluation.result import EvalResult

_GENERATED = ("rouge", "judge", "families", "sampling", "relearning", "quantisation")
_ASKED = ("judge", "families", "sampling", "open_ended", "relearning", "quantisation")

MATTERS: Mapping[str, tuple[str, ...]] = {
    "max_new_tokens": _GENERATED,
    "paraphrases": ("judge", "relearning", "quantisation"),
    "demonstrations": ("judge",),
    "samples": ("sampling",),
    "relearn_rows": ("relearning",),
    "relearn_steps": ("relearning",),
    "relearn_learning_rate": ("relearning",),
    "min_k": ("membership",),
    "rwku_flavours": ("rwku",),
    "task_limit": ("tasks",),
    "seed": ("judge", "families", "sampling", "relearning"),
    "judge": _ASKED,
}
"""Setting -> the groups whose numbers it changes."""
EVERYWHERE = ("max_length", "system", "dtype", "backend")
"""Settings that change every number; `batch_tokens` changes none, and tasks have names of their own."""


def check_comparable(settings: Mapping[str, Any], other: EvalResult, *, role: str) -> None:
    """Check that another model was measured on the same rows in the same way, in the groups that both have.

    Args:
        settings: of the one evaluation.
        other: result of the other.
        role: what the other is to the first, for the message.

    Raises:
        ValueError: it was not; names what differs.
    """
    theirs = other.settings
    shared = set(settings["metrics"]) & set(theirs.get("metrics", ()))
    compared = [*EVERYWHERE, *(key for key, groups in MATTERS.items() if shared & set(groups))]
    different = [
        f"{key} ({theirs.get(key)!r} there, {settings.get(key)!r} here)"
        for key in compared
        if theirs.get(key) != settings.get(key)
    ]
    rows = theirs.get("rows", {})
    different += [f"the {split} rows" for split, value in settings["rows"].items() if rows.get(split, value) != value]
    if different:
        raise ValueError(
            f"the {role} result ({other.model}) cannot be compared with: it differs in {'; '.join(different)}. "
            "Evaluate it again with the same rows and options."
        )
