"""When and how the scorer learns: its schedule, its optimizer and its checkpoint.

Every `every`-th optimizer step is also a scorer step. It reuses the hidden states and log-probabilities that the model step
computed for its whole batch, all micro-batches together, and happens after the model's update.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from atwu.losses.likelihood import gradient_ascent
from atwu.methods import Recipe
from atwu.objective import UnlearningLoss
from atwu.training.config import UnlearnConfig
from atwu.weighting.scorer import TokenScorer, scorer_objective

STATE_NAME = "scorer_optimizer.safetensors"
PROGRESS_NAME = "scorer_progress.json"

Reduce = Callable[[Tensor], Tensor]
"""Sum of a tensor over all processes."""


@dataclass(frozen=True, slots=True)
class _Collected:
    hidden: Tensor
    """(tokens, hidden)"""
    logps: Tensor
    """(tokens,)"""
    lengths: Tensor
    """Counted tokens of each sequence, (sequences,)."""


class ScorerAlternation:
    """Trains a `TokenScorer` from what model steps leave behind.

    Args:
        scorer: the scorer to train.
        recipe: the method, for the forget term of the scorer's objective.
        config: scorer settings.
        reduce: sum over processes; the identity for one process.
    """

    def __init__(
        self, scorer: TokenScorer, recipe: Recipe, config: UnlearnConfig, *, reduce: Reduce = lambda tensor: tensor
    ) -> None:
        self.scorer = scorer
        self.config = config
        self.updates = 0
        self._forget_loss = gradient_ascent if config.scorer_objective == "ga" else recipe.forget_values
        self._reduce = reduce
        self._collected: list[_Collected] = []
        self.optimizer = torch.optim.SGD(
            scorer.parameters(),
            lr=config.scorer_learning_rate,
            momentum=config.scorer_momentum,
            weight_decay=config.scorer_weight_decay,
        )

    def due(self, global_step: int) -> bool:
        """Whether the optimizer step that follows `global_step` finished ones is also a scorer step."""
        return (global_step + 1) % self.config.scorer_every == 0

    def collect(self, result: UnlearningLoss) -> None:
        """Keep what a scorer step needs of one micro-batch."""
        mask = result.mask
        kept = mask.any(dim=1)
        self._collected.append(
            _Collected(
                result.outputs.hidden(self.scorer.hidden_position).detach(),
                result.logps.detach()[mask],
                mask.sum(dim=1)[kept],
            )
        )

    def step(self, planned_updates: int) -> Tensor:
        """Update the scorer once from everything collected since the last step.

        Args:
            planned_updates: scorer updates of the whole run, for the linear schedule.

        Returns:
            The objective before the update, a scalar.
        """
        hidden = torch.cat([part.hidden for part in self._collected])
        logps = torch.cat([part.logps for part in self._collected]).float()
        lengths = torch.cat([part.lengths for part in self._collected])
        self._collected.clear()
        sequence = torch.repeat_interleave(torch.arange(lengths.shape[0], device=lengths.device), lengths)
        scores = self.scorer(hidden)
        totals = torch.stack(
            [scores.detach().sum(), scores.new_tensor(scores.numel()), scores.new_tensor(lengths.shape[0])]
        )
        totals = self._reduce(totals)
        objective = scorer_objective(
            scores,
            logps,
            sequence,
            forget_loss=self._forget_loss,
            gamma=self.config.scorer_factor(),
            lambda_entropy=self.config.lambda_entropy,
            lambda_budget=float(self.config.lambda_budget or 0.0),
            budget=str(self.config.budget),
            rho=self.config.rho,
            tokens=float(totals[1]),
            sequences=float(totals[2]),
            score_total=totals[0],
        )
        self.optimizer.zero_grad()
        objective.backward()
        for parameter in self.scorer.parameters():
            if parameter.grad is not None:
                parameter.grad = self._reduce(parameter.grad)
        # The norm of the weights is the same on every process, so it enters after the sum.
        penalty = self.config.lambda_l2 * self.scorer.squared_norm()
        penalty.backward()
        if self.config.scorer_max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.scorer.parameters(), self.config.scorer_max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(planned_updates)
        self.optimizer.step()
        self.updates += 1
        return (self._reduce(objective.detach()) + penalty).detach()

    def learning_rate(self, planned_updates: int) -> float:
        """Learning rate of the next update; `linear` falls from the full rate at the first update towards 0."""
        if self.config.scorer_schedule == "constant":
            return self.config.scorer_learning_rate
        return self.config.scorer_learning_rate * max(0.0, 1 - self.updates / max(1, planned_updates))

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
        save_file(buffers, folder / STATE_NAME)
        (folder / PROGRESS_NAME).write_text(json.dumps({"updates": self.updates}) + "\n", encoding="utf-8")

    def load(self, folder: str | Path) -> None:
        """Restore scorer, momentum and progress from a checkpoint folder."""
        from safetensors.torch import load_file

        folder = Path(folder)
        saved = TokenScorer.from_pretrained(folder)
        self.scorer.load_state_dict(saved.state_dict())
        buffers = load_file(folder / STATE_NAME)
        for name, parameter in self.scorer.named_parameters():
            self.optimizer.state.pop(parameter, None)
            if name in buffers:
                self.optimizer.state[parameter]["momentum_buffer"] = buffers[name].to(parameter.device)
        self.updates = int(json.loads((folder / PROGRESS_NAME).read_text(encoding="utf-8"))["updates"])
