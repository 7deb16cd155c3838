"""The learned token scorer: one linear layer on the model's hidden states, and the objective that trains it.

Scores are trained with the model fixed: the forget loss rewards weight on tokens that the model can unlearn; three
regularizers make scores close to 0 or 1, limit their mean and shrink the parameters (ATWU paper, section on the scorer).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from atwu._file_reading import read_json, type_adapter, validated
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.errors import ModelFileError
from atwu.methods.weightings.fixed_weights import TokenCounts
from atwu.modeling.forward import HiddenPosition
from atwu.modeling.model_files import read_tensors

SCORER_WEIGHTS_NAME = "scorer.safetensors"
SCORER_CONFIG_NAME = "scorer_config.json"
_PRIOR = "prior_counts"


LABELLED_SCORE = 0.9
"""Initial score of a labelled token by the prior `labels`; an unlabelled one has 1 minus this. At 1 the scorer could not leave
its prior."""


class LabelPrior:
    """Initial scores from the labels of a row: its `forget_spans`, which a request finds by evidence of the original model."""

    def initial_scores(self, row: EncodedRow) -> FloatArray:
        """Return `LABELLED_SCORE` for labelled tokens and 1 minus it for the others; 1/2 for a row without labels."""
        if row.token_labels is None:
            return np.full(len(row.counted(row.labels)), 0.5)
        labels = np.array(row.counted(row.token_labels), dtype=np.float64)
        return np.where(labels > 0, LABELLED_SCORE, 1 - LABELLED_SCORE)


Prior = LabelPrior | TokenCounts
"""Initial scores of a token scorer: of labels, or of the rarity of tokens."""


@dataclass(frozen=True, slots=True)
class _ScorerConfig:
    """Content of `scorer_config.json`."""

    hidden_size: Annotated[int, Field(ge=1)]
    bias: bool
    hidden_position: HiddenPosition
    prior_strength: Annotated[float, Field(ge=0)] | None = None
    """None without a prior."""
    prior: Literal["rarity", "labels"] | None = None


class TokenScorer(nn.Module):
    """Token scorer `g = sigmoid(<w, h> + b)`, initially exactly 1/2 for every token.

    Args:
        bias: whether to train `b`.
        hidden_position: state that scores a token: `pred` (predicts the token) or `own` (at the token).
        prior: initial scores in place of 1/2: token counts, by their rarity, or labels.
        prior_strength: factor >= 0 on the log-odds of the prior.
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        bias: bool = True,
        hidden_position: HiddenPosition = "pred",
        prior: Prior | None = None,
        prior_strength: float = 1.0,
    ) -> None:
        super().__init__()
        self.prior = prior
        self.prior_strength = prior_strength
        if hidden_position not in ("own", "pred"):
            raise ValueError(f"hidden_position must be 'own' or 'pred', got {hidden_position!r}.")
        self.hidden_position: HiddenPosition = hidden_position
        self.linear = nn.Linear(hidden_size, 1, bias=bias, dtype=torch.float32)
        # All scores start at 1/2, whatever the seed: a random start would prefer some words before anything is learned.
        nn.init.zeros_(self.linear.weight)
        if bias:
            nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor, offset: Tensor | None = None) -> Tensor:
        """Score tokens.

        Args:
            hidden: states, shape (..., hidden_size).
            offset: log-odds of the prior, added to the logit, shape (...).
        """
        if self.prior is not None and offset is None:
            raise ValueError("this scorer has a prior; pass the offset of each row (TokenScorer.offset).")
        # The scorer reads the model and must not train it; in float32, since half precision loses its small updates.
        logits = self.linear(hidden.detach().float()).squeeze(-1)
        if offset is not None:
            logits = logits + offset
        return torch.sigmoid(logits)

    def offset(self, row: EncodedRow) -> Tensor | None:
        """Return the log-odds of the prior for the counted tokens of a row, shape (counted tokens,); None without a prior."""
        if self.prior is None:
            return None
        weights = self.prior.initial_scores(row)
        log_odds = np.log(weights) - np.log1p(-weights)
        return torch.as_tensor(self.prior_strength * log_odds, dtype=torch.float32)

    def squared_norm(self) -> Tensor:
        """`|w|^2 + b^2`, a scalar."""
        total = self.linear.weight.square().sum()
        if self.linear.bias is not None:
            total = total + self.linear.bias.square().sum()
        return total

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `scorer.safetensors` and `scorer_config.json` into an existing folder."""
        from safetensors.torch import save_file

        folder = Path(folder)
        tensors = {name: tensor.contiguous().cpu() for name, tensor in self.state_dict().items()}
        if isinstance(self.prior, TokenCounts):
            tensors[_PRIOR] = torch.tensor(self.prior.counts)
        save_file(tensors, folder / SCORER_WEIGHTS_NAME)
        config = _ScorerConfig(
            hidden_size=self.linear.in_features,
            bias=self.linear.bias is not None,
            hidden_position=self.hidden_position,
        )
        if isinstance(self.prior, LabelPrior):
            config = replace(config, prior_strength=self.prior_strength, prior="labels")
        elif self.prior is not None:
            config = replace(config, prior_strength=self.prior_strength, prior="rarity")
        (folder / SCORER_CONFIG_NAME).write_text(json.dumps(asdict(config), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> TokenScorer:
        """Load a scorer saved by `save_pretrained` or found in an unlearned checkpoint.

        Raises:
            FileNotFoundError: the folder contains no scorer.
            ValueError: a file cannot be read, or the two do not fit each other.
        """
        folder = Path(folder)
        missing = [name for name in (SCORER_CONFIG_NAME, SCORER_WEIGHTS_NAME) if not (folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{folder} contains no token scorer: {' and '.join(missing)} not found.")
        path = folder / SCORER_CONFIG_NAME
        config = validated(read_json(path), type_adapter(_ScorerConfig), what=str(path), hint="Restore the file.")
        tensors = read_tensors(folder / SCORER_WEIGHTS_NAME)
        counts = tensors.pop(_PRIOR, None)
        if counts is not None and (counts.dtype != torch.int64 or counts.ndim != 1 or (counts < 0).any()):
            raise ValueError(
                f"{folder / SCORER_WEIGHTS_NAME}: {_PRIOR} must be an int64 vector of counts >= 0; the file is damaged."
            )
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        expected: dict[str, tuple[int, ...]] = {"linear.weight": (1, config.hidden_size)}
        if config.bias:
            expected["linear.bias"] = (1,)
        if shapes != expected:
            raise ModelFileError(
                f"{folder / SCORER_WEIGHTS_NAME} has the tensors {shapes}, expected {expected} by {SCORER_CONFIG_NAME}; "
                "restore the two files."
            )
        prior: Prior | None = None
        if config.prior == "labels":
            prior = LabelPrior()
        elif counts is not None:
            prior = TokenCounts(counts.numpy())
        scorer = cls(
            config.hidden_size,
            bias=config.bias,
            hidden_position=config.hidden_position,
            prior=prior,
            prior_strength=config.prior_strength or 0.0,
        )
        scorer.load_state_dict(tensors)
        return scorer


def score_entropy(scores: Tensor) -> Tensor:
    """Binary entropy of each score in nats, in [0, ln 2]; same shape."""
    g = scores.clamp(1e-6, 1 - 1e-6)  # the logarithm, and with it the gradient, stays finite
    return -(g * g.log() + (1 - g) * (1 - g).log())


def soft_budget(mean_score: Tensor, *, rho: float) -> Tensor:
    """`(mean g - rho)^2` for the mean score of all tokens, a scalar; at g = 1/2 it lowers every score."""
    return (mean_score - rho).square()


def straight_through_budget(scores: Tensor, sequence: Tensor, *, rho: float) -> Tensor:
    """`(share of tokens with g > 1/2  -  rho)^2` per sequence, gradient as if the share were the mean score.

    Args:
        scores: shape (tokens,).
        sequence: which sequence each token belongs to, values 0..S-1, every one present, shape (tokens,).
        rho: target share in (0, 1).
    """
    # The value of `through` is `hard`, which has no gradient; its gradient is that of the scores.
    hard = (scores > 0.5).to(scores.dtype)
    through = scores + (hard - scores).detach()
    length = torch.bincount(sequence).to(scores.dtype)
    share = torch.zeros_like(length).index_add(0, sequence, through) / length  # mean of each sequence
    return (share - rho).square()


def scorer_objective(
    scores: Tensor,
    sequence: Tensor,
    *,
    forget: Tensor,
    lambda_entropy: float,
    lambda_budget: float,
    budget: str,
    rho: float,
    tokens: float,
    sequences: float,
    score_total: Tensor,
) -> Tensor:
    """Objective of one scorer step, without the L2 penalty.

    Args:
        scores: current scores with gradient, shape (tokens,).
        forget: the forget loss as a function of the scores, averaged and weighted, a scalar; values of the model are
            constants.
        budget: `soft` (pooled mean score) or `ste` (share above 1/2 per sequence, straight-through).
        tokens: token count over all processes.
        sequences: sequence count over all processes.
        score_total: sum of the scores over all processes, without gradient.
    """
    entropy = lambda_entropy * score_entropy(scores).sum() / tokens
    if budget == "soft":
        own = scores.sum()
        # The value of the sum over all processes, with the gradient of the own part.
        whole = soft_budget((own - own.detach() + score_total) / tokens, rho=rho)
        # Each process has the gradient of its own scores and its share of the value, so that the sum is correct.
        penalty = whole - whole.detach() * (1 - scores.numel() / tokens)
    else:
        penalty = straight_through_budget(scores, sequence, rho=rho).sum() / sequences
    return forget + entropy + lambda_budget * penalty


def find_scorer(folder: str | Path) -> TokenScorer | None:
    """Load the scorer of an unlearned model folder; None if it has none."""
    folder = Path(folder).expanduser()
    if not (folder / SCORER_CONFIG_NAME).is_file():
        return None
    return TokenScorer.from_pretrained(folder)
