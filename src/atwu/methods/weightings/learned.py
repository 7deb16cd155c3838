"""The learned token weighting: scores of a linear layer on the model's hidden states, and every number of how it learns.

Defaults are those measured best; `atwu.methods.configurations` holds the published ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import Weighting
from atwu.methods.component_inputs import WeightingContext
from atwu.methods.component_options import Range, setting

if TYPE_CHECKING:
    from torch import Tensor

FOLLOW_FORGET_WEIGHT = "forget_weight"
"""Value of `scorer_gamma` that means: whatever the forget weight is."""


class LearnedScores(Weighting):
    """The score of each token by a `TokenScorer` that learns while the model unlearns (the ATWU paper)."""

    formula = "learned: σ(<w, h> + b)"
    hidden_position: str = setting(
        "pred", choices=("own", "pred"), help="state that scores a token: pred (predicts it) or own (has read it)"
    )
    scorer_bias: bool = setting(True, help="learn a bias in the scorer")
    scorer_procedure: str = setting(
        "alternate",
        choices=("alternate", "joint", "frozen"),
        strict=True,
        help="alternate (every n_s steps), joint (in the model's own optimizer), frozen",
    )
    scorer_pretrain: bool = setting(
        False, strict=True, help="first train the scorer for one epoch on the starting model"
    )
    scorer_from: str | None = setting(
        None, strict=True, help="start from the scorer of this finished run on the same base model"
    )
    scorer_min_updates: int = setting(
        0, strict=True, help="at least this many scorer updates in all, for small forget sets"
    )
    scorer_prior: str = setting(
        "none",
        choices=("none", "rarity"),
        strict=True,
        help="what scores start from: none (1/2 each) or rarity among retain answers",
    )
    scorer_prior_strength: float = setting(1.0, help="factor on the prior's log odds")
    scorer_every: int = setting(5, least=1, help="n_s: scorer update every this many optimizer steps")
    scorer_learning_rate: float = setting(0.05, search=Range(0.01, 0.5), help="learning rate of the scorer's SGD")
    scorer_momentum: float = setting(0.9, help="momentum of the scorer's SGD")
    scorer_weight_decay: float = setting(1e-4, help="weight decay of the scorer's SGD")
    scorer_max_grad_norm: float = setting(1.0, help="gradient clipping of the scorer; 0 is off")
    scorer_schedule: str = setting(
        "linear",
        choices=("linear", "constant"),
        help="learning rate of the scorer: linear (to 0 over the run) or constant",
    )
    scorer_objective: str = setting(
        "matched",
        choices=("matched", "ga", "labels"),
        help="forget term of the scorer: matched (the method's loss), ga, or labels (cross entropy to forget_spans)",
    )
    scorer_gamma: str = setting("1.0", help="factor on the scorer's forget term: a number, or forget_weight")
    budget: str = setting(
        "ste", choices=("ste", "soft"), help="ste (share of tokens above 1/2, per row) or soft (mean score)"
    )
    rho: float = setting(0.2, help="budget: share of answer tokens that may carry the secret")
    lambda_budget: float = setting(10.0, help="strength of the budget")
    lambda_entropy: float = setting(1.0, help="strength of the push of scores to 0 or 1")
    lambda_l2: float = setting(1.0, help="strength of the pull of the scorer's weights to 0")

    def __post_init__(self) -> None:
        if not 0 < self.rho < 1:
            raise ValueError(f"rho is a share of tokens, between 0 and 1, got {self.rho}.")
        if self.scorer_from is not None and self.scorer_prior != "none":
            raise ValueError(
                "a scorer of an earlier run brings its own prior; give scorer_from or scorer_prior, not both."
            )
        prior = self.scorer_prior != "none" and self.scorer_prior_strength > 0
        if self.scorer_procedure == "frozen" and not (self.scorer_from or self.scorer_pretrain or prior):
            raise ValueError("a frozen scorer needs a start: scorer_from, scorer_pretrain or scorer_prior.")
        if self.scorer_procedure == "joint" and self.scorer_min_updates:
            raise ValueError(
                "the joint procedure updates the scorer at every step; scorer_min_updates has no place in it."
            )
        try:
            if not 0 <= self.gamma(0.0) < float("inf"):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"scorer_gamma must be a finite number >= 0 or 'forget_weight', got {self.scorer_gamma!r}."
            ) from None

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        labels = ("labels",) if self.scorer_objective == "labels" else ()
        return ("scorer", *(("retain",) if self.scorer_prior == "rarity" else ()), *labels)

    def gamma(self, forget_weight: float) -> float:
        """Factor on the forget term of the scorer's objective."""
        return forget_weight if self.scorer_gamma == FOLLOW_FORGET_WEIGHT else float(self.scorer_gamma)

    def weights(self, seen: WeightingContext) -> Tensor:
        if seen.scorer is None:
            return 0.5 * seen.mask.to(seen.logps.dtype)
        hidden = seen.out.hidden(seen.scorer.hidden_position)
        return seen.out.to_grid(seen.scorer(hidden, seen.score_offset).to(seen.logps.dtype))
