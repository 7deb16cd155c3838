"""The token scorer of a run: how it starts, and the steps that train it.

Every `scorer_every`-th optimizer step is also a scorer step. It reuses the hidden states and loss terms of the whole batch
(all micro-batches) from the model step. A scorer step may make several updates on the same states. In the joint procedure
the model's optimizer makes the updates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from atwu.methods.component_inputs import LossTerms, reduce_loss, token_mean
from atwu.methods.losses.likelihood import gradient_ascent
from atwu.methods.objective import UnlearningLoss
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.fixed_weights import TokenCounts
from atwu.methods.weightings.model_based import LearnedScores
from atwu.methods.weightings.token_scorer import LabelPrior, Prior, TokenScorer, scorer_objective
from atwu.training.training_rows import UnlearningRows

SCORER_OPTIMIZER_NAME = "scorer_optimizer.safetensors"
PROGRESS_NAME = "scorer_progress.json"
# The paper does not name the optimizer; SGD with these values is that of its code. The decay acts beside `lambda_l2`.
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
MAX_GRAD_NORM = 1.0
"""Norm to which the scorer's gradient is clipped."""


def initial_scorer(settings: LearnedScores, width: int, rows: UnlearningRows) -> TokenScorer:
    """Create the scorer before its first update; the rows determine the prior."""
    if settings.scorer_from is not None:
        return scorer_of(settings.scorer_from, width)
    prior: Prior | None = None
    if settings.scorer_prior == "rarity":
        assert rows.retain is not None
        prior = TokenCounts.of(rows.retain.rows)
    elif settings.scorer_prior == "labels":
        prior = LabelPrior()
    position: Any = settings.hidden_position
    strength = settings.scorer_prior_strength
    return TokenScorer(width, bias=settings.scorer_bias, hidden_position=position, prior=prior, prior_strength=strength)


def scorer_of(folder: str, width: int) -> TokenScorer:
    return fitting_scorer(TokenScorer.from_pretrained(folder), width, what=f"the scorer in {folder}")


def check_scorer(scorer: Any, recipe: Any) -> None:
    """Check a given scorer before the model is loaded: its type, and whether the method learns weights."""
    if not isinstance(scorer, TokenScorer | None):
        raise TypeError(
            f"scorer must be an atwu.TokenScorer, got {type(scorer).__name__}; TokenScorer.from_pretrained(folder) loads one."
        )
    if scorer is not None and recipe.scores is None:
        raise ValueError(
            f"scorer needs a method with learned weights, which {recipe.name} does not have; leave it out."
        )


def fitting_scorer(scorer: TokenScorer, width: int, *, what: str) -> TokenScorer:
    """Return a scorer that reads hidden states of the model's size; `what` names it in the error for another."""
    if scorer.linear.in_features != width:
        raise ValueError(
            f"{what} reads hidden states of size {scorer.linear.in_features}, this model's have "
            f"{width}; it belongs to another base model."
        )
    return scorer


@dataclass(frozen=True, slots=True)
class _Collected:
    """Inputs of a scorer step from one micro-batch."""

    hidden: Tensor
    """(tokens, hidden)"""
    offset: Tensor | None
    """(tokens,)"""
    terms: LossTerms
    factor: Tensor | None
    """(batch, tokens)"""
    labels: Tensor | None
    """(tokens,)"""


class ScorerAlternation:
    """Train a `TokenScorer` on the hidden states and loss terms of model steps.

    Args:
        reduce: sum over processes; the identity for one process.
    """

    def __init__(
        self,
        scorer: TokenScorer,
        recipe: Recipe,
        *,
        reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ) -> None:
        assert recipe.scores is not None
        self.scorer = scorer
        self.recipe = recipe
        self.settings = recipe.scores
        self.joint = recipe.scores.scorer_procedure == "joint"
        """Whether the model's optimizer makes the updates."""
        self.updates = 0
        forget_weight = recipe.factors.forget_weight
        self._gamma = self.settings.gamma(forget_weight)
        if self.joint:  # the scorer minimizes the model's own forget term
            self._gamma = forget_weight
        self._reduce = reduce
        self._collected: list[_Collected] = []
        self.optimizer = torch.optim.SGD(
            scorer.parameters(),
            lr=self.settings.scorer_learning_rate,
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
        )

    def every(self, max_steps: int) -> int:
        """Return the optimizer steps per scorer step; with `scorer_min_updates` a run has at least one scorer step."""
        every = self.settings.scorer_every
        if self.joint:
            every = 1
        if self.settings.scorer_min_updates and max_steps > 0:
            return min(every, max_steps)
        return every

    def due(self, global_step: int, max_steps: int) -> bool:
        """Return whether the optimizer step after `global_step` finished ones is also a scorer step."""
        return self.settings.scorer_procedure != "frozen" and (global_step + 1) % self.every(max_steps) == 0

    def collect(self, result: UnlearningLoss, offset: Tensor | None = None, labels: Tensor | None = None) -> None:
        """Store the inputs of a scorer step from one micro-batch.

        Args:
            offset: added to the logits of the scores, shape (counted tokens,).
            labels: True on labelled tokens, shape (batch, tokens); required if the scorer is trained on labels.
        """
        # Without the graph of the model, which its own backward pass has freed by the time of the scorer step.
        hidden = result.outputs.hidden(self.scorer.hidden_position).detach()
        flat_labels = None
        if labels is not None:
            flat_labels = labels[result.mask].to(hidden)
        self._collected.append(_Collected(hidden, offset, result.terms.constant(), result.factor, flat_labels))

    def step(self, max_steps: int) -> Tensor:
        """Update the scorer on everything collected since the last scorer step.

        In the joint procedure only its gradient is computed, for the optimizer of the model.

        Args:
            max_steps: optimizer steps of the whole run, for the linear schedule and `scorer_min_updates`.

        Returns:
            The objective before the first update, a scalar.
        """
        objective = self._backward()
        if self.joint:
            self.updates += 1
        else:
            settings, steps = self.settings, max_steps // self.every(max_steps)
            inner = max(1, math.ceil(settings.scorer_min_updates / max(1, steps)))
            planned = max(1, steps * inner)
            for update in range(inner):
                if update:  # the gradient of the first one is computed above, with the objective that is returned
                    self._backward()
                share = 1.0
                if settings.scorer_schedule == "linear":
                    share = max(0.0, 1 - self.updates / planned)
                for group in self.optimizer.param_groups:
                    group["lr"] = settings.scorer_learning_rate * share
                self.optimizer.step()
                self.updates += 1
        self._collected.clear()
        return objective

    def _backward(self) -> Tensor:
        """Compute the objective over everything collected, and its gradient."""
        scores = [self.scorer(batch.hidden, batch.offset) for batch in self._collected]
        all_scores = torch.cat(scores)
        lengths = torch.cat([batch.terms.mask.sum(dim=1) for batch in self._collected])
        lengths = lengths[lengths > 0]  # a row without counted tokens has no share above 1/2
        sequence = torch.repeat_interleave(torch.arange(lengths.shape[0], device=lengths.device), lengths)
        # Of all processes together, since the penalties are of means over the whole optimizer step.
        totals = self._reduce(
            torch.stack(
                [
                    all_scores.detach().sum(),
                    all_scores.new_tensor(all_scores.numel()),
                    all_scores.new_tensor(lengths.shape[0]),
                ]
            )
        )
        tokens, rows = float(totals[1]), float(totals[2])
        objective = scorer_objective(
            all_scores,
            sequence,
            forget=self._gamma * self._forget_term(scores, tokens=tokens, rows=rows),
            lambda_entropy=self.settings.lambda_entropy,
            lambda_budget=self.settings.lambda_budget,
            budget=self.settings.budget,
            rho=self.settings.rho,
            tokens=tokens,
            sequences=rows,
            score_total=totals[0],
        )
        self.scorer.zero_grad()
        objective.backward()
        for parameter in self.scorer.parameters():
            if parameter.grad is not None:
                parameter.grad = self._reduce(parameter.grad)
        # The norm of the weights is equal on all processes, so it is added after the sum.
        penalty = self.settings.lambda_l2 * self.scorer.squared_norm()
        penalty.backward()
        torch.nn.utils.clip_grad_norm_(self.scorer.parameters(), MAX_GRAD_NORM)
        return (self._reduce(objective.detach()) + penalty).detach()

    def _forget_term(self, scores: list[Tensor], *, tokens: float, rows: float) -> Tensor:
        """Compute the method's forget loss as a function of the scores, or their cross entropy to the labels."""
        total = scores[0].new_zeros(())
        for batch, flat in zip(self._collected, scores, strict=True):
            if self.settings.scorer_objective == "labels":
                assert batch.labels is not None
                total = total + F.binary_cross_entropy(flat, batch.labels.to(flat), reduction="sum") / tokens
                continue
            mask = batch.terms.mask
            weights = flat.new_zeros(mask.shape).masked_scatter(mask, flat)
            # `scorer*rarity`: the new scores meet the same second weighting as in the step of the model.
            if batch.factor is not None:
                weights = weights * batch.factor
            if self.settings.scorer_objective == "ga":
                total = total + token_mean(gradient_ascent(batch.terms.logps, weights), mask, count=tokens)
                continue
            loss = self.recipe.forget_component
            values = loss.values(batch.terms, weights)
            total = total + reduce_loss(values, weights, mask, loss.reduction, tokens=tokens, rows=rows)
        return total

    def join(self, optimizer: torch.optim.Optimizer) -> None:
        """In the joint procedure, add the scorer to the model's optimizer as a parameter group."""
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if self.joint and id(self.scorer.linear.weight) not in known:
            # As published: in the joint procedure the L2 penalty is the only decay.
            group = {"params": list(self.scorer.parameters()), "weight_decay": 0.0}
            optimizer.add_param_group(group | {"lr": self.settings.scorer_learning_rate})

    def save(self, folder: str) -> None:
        """Write momentum and progress into a checkpoint; the trainer writes the scorer's weights."""
        from safetensors.torch import save_file

        buffers = {
            name: self.optimizer.state[parameter]["momentum_buffer"].cpu()
            for name, parameter in self.scorer.named_parameters()
            if self.optimizer.state.get(parameter, {}).get("momentum_buffer") is not None
        }
        save_file(buffers, Path(folder) / SCORER_OPTIMIZER_NAME)
        (Path(folder) / PROGRESS_NAME).write_text(json.dumps({"updates": self.updates}) + "\n", encoding="utf-8")

    def load(self, folder: str) -> None:
        """Restore weights, momentum and progress from a checkpoint."""
        from safetensors.torch import load_file

        self.scorer.load_state_dict(TokenScorer.from_pretrained(folder).state_dict())
        buffers = load_file(Path(folder) / SCORER_OPTIMIZER_NAME)
        for name, parameter in self.scorer.named_parameters():
            self.optimizer.state.pop(parameter, None)
            if name in buffers:
                self.optimizer.state[parameter]["momentum_buffer"] = buffers[name].to(parameter.device)
        self.updates = int(json.loads((Path(folder) / PROGRESS_NAME).read_text(encoding="utf-8"))["updates"])
