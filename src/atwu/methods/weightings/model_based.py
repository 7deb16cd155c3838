"""Token weights of every step: from the model's next-token distribution, or learned; and the combination of two weightings.

Weights of the distribution have no gradient. Values outside the mask, NaN included, have no effect on a combination and become
0 there. Importing this module does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from atwu.methods.component import Range, Weighting, number, setting
from atwu.methods.component_inputs import WeightingContext

if TYPE_CHECKING:
    from torch import Tensor

Combination = Literal["product", "mean_of_ranks"]


class Uniform(Weighting):
    """Weight 1 for every token."""

    formula = "1"
    reads_head = False
    is_score = False

    def weights(self, context: WeightingContext) -> Tensor:
        return context.logps.new_ones(context.logps.shape)


class Saturation(Weighting):
    """`p^beta`: smaller for tokens that are already forgotten (WGA, Wang et al. 2025)."""

    formula = "p^β"
    beta: float = number(
        1.0, symbol="β", search=Range(0.1, 5.0), help="saturation exponent; larger stops earlier on a forgotten token"
    )

    def weights(self, context: WeightingContext) -> Tensor:
        return _power(context.logps, self.beta)


def _power(logps: Tensor, exponent: float) -> Tensor:
    return (exponent * logps.detach()).exp()


def _power_of_rest(logps: Tensor, exponent: float) -> Tensor:
    # 1 - p as -expm1(log p): exact where p is close to 1. Rounding can lift p above 1, and a power of that is no number.
    return (-logps.detach().expm1()).clamp(min=0).pow(exponent)


def _beta2() -> float:
    exponent: float = number(
        1.0, symbol="β2", search=Range(0.1, 5.0), help="importance exponent; larger concentrates on unlikely tokens"
    )
    return exponent


class Importance(Weighting):
    """`(1 - p)^beta2`: larger for less likely tokens (Yang et al. 2025)."""

    formula = "(1 - p)^β2"
    beta2: float = _beta2()

    def weights(self, context: WeightingContext) -> Tensor:
        return _power_of_rest(context.logps, self.beta2)


class SatImp(Weighting):
    """`p^beta1 (1 - p)^beta2`, largest at p = beta1 / (beta1 + beta2) (SatImp, Yang et al. 2025)."""

    formula = "p^β1 (1 - p)^β2"
    beta1: float = number(5.0, symbol="β1", search=Range(1.0, 10.0, log=False), help="SatImp's saturation exponent")
    beta2: float = _beta2()

    def weights(self, context: WeightingContext) -> Tensor:
        return _power(context.logps, self.beta1) * _power_of_rest(context.logps, self.beta2)


class Entropy(Weighting):
    """`n H_t / sum H`: share of each token in the entropy of its row, 1 for all if that is 0 (ETW, Koh et al. 2026)."""

    formula = "n H / Σ H, at temperature τ"
    temperature: float = number(
        1.0,
        symbol="τ",
        search=Range(0.1, 4.0),
        positive=True,
        help="temperature of the entropy weights; large values approach uniform weights",
    )

    @property
    def entropy_temperature(self) -> float:  # type: ignore[override]
        return self.temperature

    def weights(self, context: WeightingContext) -> Tensor:
        import torch

        mask = context.mask
        entropy = context.entropy.detach() * mask
        total, count = entropy.sum(-1, keepdim=True), mask.sum(-1, keepdim=True)
        # `where` computes both branches, so the one that is not taken must not divide by 0.
        smallest = torch.finfo(entropy.dtype).tiny
        return torch.where(total > 0, count * entropy / total.clamp(min=smallest), 1.0) * mask


class LearnedScores(Weighting):
    """Score of each token by a linear layer on hidden states that is trained during unlearning (the ATWU paper).

    Defaults are the best measured values; `atwu.methods.recipe` holds the published ones. The layer is `TokenScorer`
    (`token_scorer.py`), which `atwu.methods.objective` calls; `atwu.training.scorer_training` trains it.
    """

    formula = "learned: σ(<w, h> + b)"
    hidden_position: str = setting(
        "pred",
        choices=("own", "pred"),
        help="hidden state that scores a token: pred (predicts the token) or own (at the token)",
    )
    scorer_bias: bool = setting(True, help="whether the scorer has a bias")
    # Frozen scores still follow the model: they are computed from its current hidden states.
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
    # Ten epochs on the 40 rows of TOFU forget01 have two scorer steps: the paper names this as the reason for weak results.
    scorer_min_updates: int = setting(
        0, least=0, strict=True, help="minimum number of scorer updates in the run, for small forget sets"
    )
    # With few updates the prior decides: on 24 rows the scores had an AUROC of 0.74 with `rarity`, 0.34 without, and 0.71 when
    # they began as those of an earlier run (benchmarks/results/small-forget-sets.md).
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
    # The published code decays the rate to 0 over the planned updates; the paper has no schedule.
    scorer_schedule: str = setting(
        "linear",
        choices=("linear", "constant"),
        help="learning rate schedule of the scorer: linear (decay to 0) or constant",
    )
    # `ga`, without saturation, is what an early script of the authors trained the scorer with.
    scorer_objective: str = setting(
        "matched",
        choices=("matched", "ga", "labels"),
        help="forget term of the scorer objective: matched (the method's loss), ga or labels (cross entropy to forget_spans)",
    )
    # In the paper's formula the scorer minimizes gamma times the forget loss, in its code the forget loss alone.
    scorer_gamma: str = setting(
        "1.0", help="weight of the forget term in the scorer objective: a number or forget_weight"
    )
    # At the initial scores of 1/2 the two act in opposite directions: `soft` lowers every score at once, `ste` first raises
    # them until a share rho of the tokens exceeds 1/2.
    budget: str = setting(
        "ste",
        choices=("ste", "soft"),
        help="budget penalty: ste (share of tokens with score > 1/2, per row) or soft (mean score)",
    )
    # The paper never states rho; 0.2 is in every run script of its code.
    rho: float = setting(0.2, help="budget: target share of answer tokens to forget")
    # 10 in the paper's ablations and in its code for models of 1B; the presets for 8B and RWKU have 15.
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


def combine_weights(first: Tensor, second: Tensor, mask: Tensor, *, how: Combination) -> Tensor:
    """Combine two weightings of a whole batch; all arguments have shape (batch, tokens)."""
    if how == "product":
        return product(first, second, mask)
    return mean_of_ranks(first, second, mask)


def product(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """`first * second`: large only if both are. Both receive a gradient."""
    import torch

    # Mask both factors first: otherwise a NaN outside the mask would reach the gradient.
    return torch.where(mask, first, 0) * torch.where(mask, second, 0)


def mean_of_ranks(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Mean of the two ranks of each token within its row: only the order of each weighting matters, not its scale.

    Rank r among n counted tokens becomes `(r - 1/2) / n`; tied tokens get their mean rank; the mean of a row is 1/2.

    Returns:
        Weights in (0, 1) on the mask, without gradient, shape (batch, tokens), float32 or wider.
    """
    return (_scaled_ranks(first.detach(), mask) + _scaled_ranks(second.detach(), mask)) / 2


def _scaled_ranks(values: Tensor, mask: Tensor) -> Tensor:
    import torch

    dtype = torch.promote_types(values.dtype, torch.float32)
    # Infinite values sort behind all counted tokens, so that a row's ranks do not depend on its padding.
    padded = torch.where(mask, values.to(dtype), torch.inf).contiguous()
    ordered = padded.sort(dim=-1).values
    count = mask.sum(-1, keepdim=True)
    below = torch.searchsorted(ordered, padded)
    # A counted token may have an infinite weight itself; it ties with the padding, which is not counted.
    up_to = torch.minimum(torch.searchsorted(ordered, padded, right=True), count)
    # Tokens with smaller values have the ranks up to `below`, ties those up to `up_to`: mid-rank - 1/2 = (below + up_to) / 2.
    ranks = (below + up_to).to(dtype) / (2 * count.clamp(min=1)).to(dtype)
    return torch.where(mask, ranks, 0)
