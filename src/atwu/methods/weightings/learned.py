"""The learned token weighting: scores of a linear layer on hidden states, with all settings of its training.

Defaults are the best measured values; `atwu.methods.recipe` holds the published ones. The layer is `TokenScorer`
(`token_scorer.py`), which `atwu.methods.objective` calls; `atwu.training.scorer_training` trains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import Range, Weighting, setting
from atwu.methods.component_inputs import WeightingContext

if TYPE_CHECKING:
    from torch import Tensor


class LearnedScores(Weighting):
    """Score of each token by a `TokenScorer` that is trained during unlearning (the ATWU paper)."""

    formula = "learned: σ(<w, h> + b)"
    hidden_position: str = setting(
        "pred",
        choices=("own", "pred"),
        help="hidden state that scores a token: pred (predicts the token) or own (at the token)",
    )
    scorer_bias: bool = setting(True, help="whether the scorer has a bias")
    scorer_procedure: str = setting(
        "alternate",
        choices=("alternate", "joint", "frozen"),
        strict=True,
        help="training of the scorer: alternate (every n_s steps), joint (in the model's optimizer) or frozen",
    )
    scorer_pretrain: bool = setting(
        False, strict=True, help="train the scorer for one epoch on the original model before unlearning"
    )
    scorer_from: str | None = setting(
        None, strict=True, help="folder of a finished run on the same base model, whose scorer initializes this one"
    )
    scorer_min_updates: int = setting(
        0, least=0, strict=True, help="minimum number of scorer updates in the run, for small forget sets"
    )
    scorer_prior: str = setting(
        "none",
        choices=("none", "rarity", "labels"),
        strict=True,
        help="initial scores: none (1/2 for every token), rarity (high for tokens that are rare in retain answers) or labels "
        "(high in forget_spans, which `atwu unlearn` finds by evidence)",
    )
    scorer_prior_strength: float = setting(1.0, least=0, help="factor on the log-odds of the prior")
    scorer_every: int = setting(5, least=1, help="n_s: optimizer steps of the model per step of the scorer")
    scorer_learning_rate: float = setting(
        0.05, least=0, search=Range(0.01, 0.5), help="learning rate of the scorer's SGD"
    )
    scorer_momentum: float = setting(0.9, least=0, help="momentum of the scorer's SGD")
    scorer_weight_decay: float = setting(1e-4, least=0, help="weight decay of the scorer's SGD")
    scorer_max_grad_norm: float = setting(1.0, least=0, help="gradient clipping norm of the scorer; 0 disables it")
    scorer_schedule: str = setting(
        "linear",
        choices=("linear", "constant"),
        help="learning rate schedule of the scorer: linear (decay to 0) or constant",
    )
    scorer_objective: str = setting(
        "matched",
        choices=("matched", "ga", "labels"),
        help="forget term of the scorer objective: matched (the method's loss), ga or labels (cross entropy to forget_spans)",
    )
    scorer_gamma: str = setting(
        "1.0", help="weight of the forget term in the scorer objective: a number or forget_weight"
    )
    budget: str = setting(
        "ste",
        choices=("ste", "soft"),
        help="budget penalty: ste (share of tokens with score > 1/2, per row) or soft (mean score)",
    )
    rho: float = setting(0.2, help="budget: target share of answer tokens to forget")
    lambda_budget: float = setting(10.0, least=0, help="weight of the budget penalty")
    lambda_entropy: float = setting(1.0, least=0, help="weight of the entropy penalty, which moves scores to 0 or 1")
    lambda_l2: float = setting(1.0, least=0, help="weight of the L2 penalty on the scorer's parameters")

    def __post_init__(self) -> None:
        if not 0 < self.rho < 1:
            raise ValueError(f"rho must be between 0 and 1 (a share of tokens), got {self.rho}.")
        if self.scorer_from is not None and self.scorer_prior != "none":
            raise ValueError(
                "scorer_from and scorer_prior exclude each other (an earlier scorer has its own prior); set only one."
            )
        prior = self.scorer_prior != "none" and self.scorer_prior_strength > 0
        if self.scorer_procedure == "frozen" and not (self.scorer_from or self.scorer_pretrain or prior):
            raise ValueError("a frozen scorer needs initial scores; set scorer_from, scorer_pretrain or scorer_prior.")
        if self.scorer_procedure == "joint" and self.scorer_min_updates:
            raise ValueError("scorer_procedure='joint' updates the scorer at every step; leave out scorer_min_updates.")
        try:
            if not 0 <= self.gamma(0.0) < float("inf"):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"scorer_gamma must be a finite number >= 0 or 'forget_weight', got {self.scorer_gamma!r}."
            ) from None

    @property
    def reads_retain(self) -> bool:  # type: ignore[override]
        return self.scorer_prior == "rarity"

    @property
    def reads_labels(self) -> bool:  # type: ignore[override]
        return "labels" in (self.scorer_objective, self.scorer_prior)

    def needs(self) -> list[str]:
        return [*super().needs(), "a token scorer, trained during unlearning (--scorer-..., --configuration)"]

    def gamma(self, forget_weight: float) -> float:
        if self.scorer_gamma == "forget_weight":
            return forget_weight
        return float(self.scorer_gamma)

    def weights(self, context: WeightingContext) -> Tensor:
        """Return the scores of the `TokenScorer`, or 1/2 without one."""
        if context.scores is None:
            return 0.5 * context.mask.to(context.logps.dtype)
        return context.out.to_grid(context.scores.to(context.logps.dtype))
