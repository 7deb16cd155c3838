"""When and how the scorer learns: its schedule, its optimizer and its checkpoint.

Every `every`-th optimizer step is also a scorer step. It reuses the hidden states and loss terms that the model step
computed for its whole batch, all micro-batches together, and happens after the model's update. Several updates may be made
on the same states, and in the joint procedure the model's own optimizer makes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.likelihood import gradient_ascent
from atwu.methods.losses.reduction import reduced, token_mean
from atwu.methods.objective import UnlearningLoss
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.token_scorer import TokenScorer, scorer_objective

SCORER_OPTIMIZER_NAME = "scorer_optimizer.safetensors"
PROGRESS_NAME = "scorer_progress.json"

Reduce = Callable[[Tensor], Tensor]
"""Sum of a tensor over all processes."""


@dataclass(frozen=True, slots=True)
class _Collected:
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
    """Trains a `TokenScorer` from what model steps leave behind.

    Args:
        scorer: the scorer to train.
        recipe: the method, with the numbers of its learned weighting.
        reduce: sum over processes; the identity for one process.
    """

    def __init__(
        self,
        scorer: TokenScorer,
        recipe: Recipe,
        *,
        reduce: Reduce = lambda tensor: tensor,
    ) -> None:
        assert recipe.scores is not None
        self.scorer = scorer
        self.recipe = recipe
        self.how = recipe.scores
        self.updates = 0
        forget_weight = recipe.factors.forget_weight
        # In the model's own optimizer the scorer shares the model's loss.
        self._gamma = forget_weight if self.joint else self.how.gamma(forget_weight)
        self._reduce = reduce
        self._collected: list[_Collected] = []
        self.optimizer = torch.optim.SGD(
            scorer.parameters(),
            lr=self.how.scorer_learning_rate,
            momentum=self.how.scorer_momentum,
            weight_decay=self.how.scorer_weight_decay,
        )

    @property
    def joint(self) -> bool:
        """The model's own optimizer makes the updates."""
        return self.how.scorer_procedure == "joint"

    def every(self, max_steps: int) -> int:
        """Optimizer steps from one scorer step to the next; a minimum of updates needs at least one in the run."""
        every = 1 if self.joint else self.how.scorer_every
        return min(every, max_steps) if self.how.scorer_min_updates and max_steps > 0 else every

    def due(self, global_step: int, max_steps: int) -> bool:
        """Whether the optimizer step that follows `global_step` finished ones is also a scorer step."""
        return (global_step + 1) % self.every(max_steps) == 0

    def planned(self, max_steps: int) -> tuple[int, int]:
        """Scorer steps of a run, and updates in each of them."""
        steps = max_steps // self.every(max_steps)
        return steps, max(1, math.ceil(self.how.scorer_min_updates / max(1, steps)))

    @property
    def labelled(self) -> bool:
        """The scorer is shown the annotation."""
        return self.how.scorer_objective == "labels"

    def collect(self, result: UnlearningLoss, offset: Tensor | None = None, labels: Tensor | None = None) -> None:
        """Keep what a scorer step needs of one micro-batch.

        Args:
            offset: added to the logits of the scores, shape (counted tokens,).
            labels: True on secret tokens, shape (batch, tokens); needed where the scorer is shown them.
        """
        hidden = result.outputs.hidden(self.scorer.hidden_position).detach()
        shown = labels[result.mask].to(hidden) if labels is not None else None
        self._collected.append(_Collected(hidden, offset, result.terms.constant(), result.factor, shown))

    def step(self, max_steps: int) -> Tensor:
        """Update the scorer from everything collected since the last step.

        Args:
            max_steps: optimizer steps of the whole run, for the linear schedule and the minimum of updates.

        Returns:
            The objective before the first update, a scalar.
        """
        steps, inner = self.planned(max_steps)
        first = None
        for _ in range(inner):
            objective = self.gradients()
            first = objective if first is None else first
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate(steps * inner)
            self.optimizer.step()
            self.updates += 1
        self._collected.clear()
        assert first is not None
        return first

    def gradients(self) -> Tensor:
        """Compute the gradient of the objective over everything collected.

        Returns:
            The objective, a scalar.
        """
        scores = [self.scorer(part.hidden, part.offset) for part in self._collected]
        everything = torch.cat(scores)
        lengths = torch.cat([part.terms.mask.sum(dim=1) for part in self._collected])
        lengths = lengths[lengths > 0]
        sequence = torch.repeat_interleave(torch.arange(lengths.shape[0], device=lengths.device), lengths)
        totals = self._reduce(
            torch.stack(
                [
                    everything.detach().sum(),
                    everything.new_tensor(everything.numel()),
                    everything.new_tensor(lengths.shape[0]),
                ]
            )
        )
        tokens, rows = float(totals[1]), float(totals[2])
        objective = scorer_objective(
            everything,
            sequence,
            forget=self._gamma * self._forget(scores, tokens=tokens, rows=rows),
            lambda_entropy=self.how.lambda_entropy,
            lambda_budget=self.how.lambda_budget,
            budget=self.how.budget,
            rho=self.how.rho,
            tokens=tokens,
            sequences=rows,
            score_total=totals[0],
        )
        self.scorer.zero_grad()
        objective.backward()
        for parameter in self.scorer.parameters():
            if parameter.grad is not None:
                parameter.grad = self._reduce(parameter.grad)
        # The norm of the weights is the same on every process, so it enters after the sum.
        penalty = self.how.lambda_l2 * self.scorer.squared_norm()
        penalty.backward()
        if self.how.scorer_max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.scorer.parameters(), self.how.scorer_max_grad_norm)
        return (self._reduce(objective.detach()) + penalty).detach()

    def forget_collected(self) -> None:
        """Drop what was collected."""
        self._collected.clear()

    def _forget(self, scores: list[Tensor], *, tokens: float, rows: float) -> Tensor:
        """The method's forget loss as a function of the scores, or their cross entropy to the annotation."""
        total = scores[0].new_zeros(())
        for part, flat in zip(self._collected, scores, strict=True):
            if self.labelled:
                assert part.labels is not None
                total = total + F.binary_cross_entropy(flat, part.labels.to(flat), reduction="sum") / tokens
                continue
            mask = part.terms.mask
            weights = flat.new_zeros(mask.shape).masked_scatter(mask, flat)
            weights = weights if part.factor is None else weights * part.factor
            if self.how.scorer_objective == "ga":
                total = total + token_mean(gradient_ascent(part.terms.logps, weights), mask, count=tokens)
                continue
            loss = self.recipe.forgetter
            values = loss.values(part.terms, weights)
            total = total + reduced(values, weights, mask, loss.reduction, tokens=tokens, rows=rows)
        return total

    def learning_rate(self, planned_updates: int) -> float:
        """Learning rate of the next update; `linear` falls from the full rate at the first update towards 0."""
        if self.how.scorer_schedule == "constant":
            return self.how.scorer_learning_rate
        return self.how.scorer_learning_rate * max(0.0, 1 - self.updates / max(1, planned_updates))

    def save(self, folder: str | Path) -> None:
        """Write momentum buffers and progress beside the scorer's own weights."""
        from safetensors.torch import save_file

        folder = Path(folder)
        named = dict(self.scorer.named_parameters())
        buffers = {
            name: self.optimizer.state[parameter]["momentum_buffer"].cpu()
            for name, parameter in named.items()
            if self.optimizer.state.get(parameter, {}).get("momentum_buffer") is not None
        }
        save_file(buffers, folder / SCORER_OPTIMIZER_NAME)
        (folder / PROGRESS_NAME).write_text(json.dumps({"updates": self.updates}) + "\n", encoding="utf-8")

    def load(self, folder: str | Path) -> None:
        """Restore momentum and progress from a checkpoint folder; the scorer itself is there already."""
        from safetensors.torch import load_file

        folder = Path(folder)
        buffers = load_file(folder / SCORER_OPTIMIZER_NAME)
        for name, parameter in self.scorer.named_parameters():
            self.optimizer.state.pop(parameter, None)
            if name in buffers:
                self.optimizer.state[parameter]["momentum_buffer"] = buffers[name].to(parameter.device)
        self.updates = int(json.loads((folder / PROGRESS_NAME).read_text(encoding="utf-8"))["updates"])
