"""The groups of metrics by name. A group is one entry."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.judged import Judged
from atwu.evaluation.panel.membership import GradientNorm, Membership
from atwu.evaluation.panel.memorization import Memorization
from atwu.evaluation.panel.open_ended import OpenEnded
from atwu.evaluation.panel.overlap import Overlap
from atwu.evaluation.panel.probes import Families, Sampling
from atwu.evaluation.panel.rwku import Rwku
from atwu.evaluation.panel.scores import Scores
from atwu.evaluation.panel.session import APART, FORGET, HOLDOUT, INSTRUCTIONS, RETAIN, ROWS, RWKU, TASKS
from atwu.evaluation.panel.tasks import Tasks
from atwu.evaluation.panel.truth import Truth
from atwu.evaluation.panel.weight_attacks import Quantisation, Relearning


@dataclass(frozen=True, slots=True)
class Entry:
    """A group, what it is for, and what it needs."""

    group: type[Group]
    about: str
    needs: tuple[str, ...] = ()
    """Sets without which there is nothing to measure."""
    needs_weights: bool = True
    """Whether generations alone are not enough."""
    attack: bool = False
    """Measures what can be brought back; not asked of the models that are only compared with."""


GROUPS: Mapping[str, Entry] = {
    "memorization": Entry(Memorization, "extraction strength, exact memorization, probability", (ROWS,)),
    "scores": Entry(Scores, "AUROC of the token scores of every weighting", (FORGET,)),
    "rouge": Entry(Overlap, "ROUGE-L recall of the greedy answer", (ROWS,), needs_weights=False),
    "judge": Entry(
        Judged, "J_P, J_ICR, J_W, J_AVG over wordings; FQ, RD, UQ given --original", (ROWS,), needs_weights=False
    ),
    "truth_ratio": Entry(Truth, "truth ratio, model utility; forget quality given --retain-only", (ROWS,)),
    "membership": Entry(Membership, "loss, zlib, min-k, min-k++ and reference attacks", (FORGET, HOLDOUT)),
    "gradient_norm": Entry(GradientNorm, "membership by gradient norm; a backward pass per row", (FORGET, HOLDOUT)),
    "open_ended": Entry(OpenEnded, "repetitiveness; win rate given --original", (INSTRUCTIONS,), needs_weights=False),
    "families": Entry(Families, "RWKU's nine families of adversarial probes", (FORGET,), needs_weights=False),
    "sampling": Entry(Sampling, "best of n answers drawn at temperature 1", (FORGET,), needs_weights=False),
    "rwku": Entry(Rwku, "RWKU's own probes: FB, QA, AA, neighbours, N_delta", (RWKU,), needs_weights=False),
    "tasks": Entry(Tasks, "general tasks through lm-evaluation-harness, such as MMLU", (TASKS,)),
    "relearning": Entry(Relearning, "what a few training steps bring back", (FORGET,), attack=True),
    "quantisation": Entry(Quantisation, "what rounding to 8 and 4 bits brings back", (FORGET,), attack=True),
}

DEFAULT = ("memorization", "scores", "rouge", "rwku", "tasks")
"""Groups measured when none are named, as far as their rows are given."""
JUDGED = frozenset({"judge", "open_ended", "families", "sampling", "relearning", "quantisation"})
"""Groups that ask the judge."""
RESERVED = (FORGET, RETAIN, HOLDOUT, INSTRUCTIONS, RWKU, TASKS, "overall", "pool")
"""Names that further sets cannot have."""


def chosen(
    names: Sequence[str] | str | None, *, sets: Collection[str], weights: bool, references: bool = False
) -> list[str]:
    """The groups to run, in the table's order.

    Args:
        names: group names, "all" for every group whose sets are given, or None for those of `DEFAULT`.
        sets: names of the sets that are given.
        weights: whether the model's weights are at hand.
        references: leave out what is not asked of models that are only compared with.

    Raises:
        ValueError: an unknown name, or a group whose sets or weights are not given.
    """
    have = set(sets) | ({ROWS} if set(sets) - set(APART) else set())
    if names is None or names == "all":
        wanted = [
            name
            for name, entry in GROUPS.items()
            if set(entry.needs) <= have and (weights or not entry.needs_weights) and (names == "all" or name in DEFAULT)
        ]
    else:
        wanted = [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if name not in GROUPS:
                close = difflib.get_close_matches(name, GROUPS, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"unknown metrics {name!r}; choose from all, {', '.join(GROUPS)}.{hint}")
            missing = [need for need in GROUPS[name].needs if need not in have]
            if missing:
                raise ValueError(f"the metrics {name!r} need {' and '.join(missing)} rows, which are not given.")
            if GROUPS[name].needs_weights and not weights:
                raise ValueError(f"the metrics {name!r} need the model's weights; an endpoint only generates.")
    return [name for name in GROUPS if name in wanted and not (references and GROUPS[name].attack)]
