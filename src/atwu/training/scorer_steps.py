"""Token scorer of a run: its initialization, and its training steps around those of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.trainer_callback import TrainerCallback

from atwu.methods.alternation import ScorerAlternation
from atwu.methods.objective import UnlearningLoss
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.learned import LearnedScores
from atwu.methods.weightings.rarity import TokenCounts
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.modes import eval_mode
from atwu.training.precompute import PrecomputedTables
from atwu.training.training_rows import UnlearningRows


class MethodRun(Protocol):
    """What callbacks of a method read of its trainer (`MethodTrainer`)."""

    args: Any
    model: Any
    state: Any
    """State of transformers' `Trainer`."""
    recipe: Recipe

    @property
    def sharded(self) -> bool:
        """Whether the weights are sharded."""

    @property
    def precomputed(self) -> PrecomputedTables:
        """Tables indexed by row."""

    def get_train_dataloader(self) -> Any:
        """Batches of one epoch."""

    def _prepare_inputs(self, inputs: Any) -> Any:
        """Move a batch to the device."""

    def micro_batch_loss(self, model: nn.Module, inputs: Mapping[str, Any], recipe: Recipe) -> UnlearningLoss:
        """Compute the loss of one micro-batch under a recipe."""

    def sum_over_processes(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes."""

    def add_part(self, name: str, value: Tensor) -> None:
        """Add to a value that is logged per optimizer step."""


def initial_scorer(how: LearnedScores, width: int, rows: UnlearningRows) -> TokenScorer:
    """Create the scorer before its first update; the rows determine the prior."""
    if how.scorer_from is not None:
        return scorer_of(how.scorer_from, width)
    prior = None
    if how.scorer_prior == "rarity":
        assert rows.retain is not None
        prior = TokenCounts.of(rows.retain.rows)
    position: Any = how.hidden_position
    return TokenScorer(
        width,
        bias=how.scorer_bias,
        hidden_position=position,
        prior=prior,
        prior_strength=how.scorer_prior_strength,
    )


def scorer_of(folder: str, width: int) -> TokenScorer:
    """Load the scorer of an earlier run, for a model of the given hidden size."""
    scorer = TokenScorer.from_pretrained(folder)
    if scorer.linear.in_features != width:
        raise ValueError(
            f"the scorer in {folder} reads hidden states of size {scorer.linear.in_features}, this model's have "
            f"{width}; it belongs to another base model."
        )
    return scorer


class ScorerSteps(TrainerCallback):
    """Callback that trains a run's scorer on data from the model's steps.

    Args:
        scorer: scorer to train, unless the procedure is `frozen`.

    Raises:
        ValueError: the joint procedure with a sharded model.
    """

    def __init__(self, trainer: MethodRun, scorer: TokenScorer) -> None:
        assert trainer.recipe.scores is not None
        self._trainer, self._scorer, self._how = trainer, scorer, trainer.recipe.scores
        if trainer.sharded and self._how.scorer_procedure == "joint":
            raise ValueError(
                "scorer_procedure='joint' does not work with a sharded model; use scorer_procedure='alternate'."
            )
        self.alternation = None if self._how.scorer_procedure == "frozen" else self._alternation(trainer.recipe)

    def _alternation(self, recipe: Recipe) -> ScorerAlternation:
        return ScorerAlternation(self._scorer, recipe, reduce=self._trainer.sum_over_processes)

    # Before the first step

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._how.scorer_pretrain and state.global_step == 0:
            self.pretrain()

    def pretrain(self) -> None:
        """Train on one pass over the forget set with the original model, with an update after every micro-batch."""
        once: dict[str, Any] = {"scorer_procedure": "alternate", "scorer_schedule": "constant", "scorer_min_updates": 0}
        trainer, recipe = self._trainer, self._trainer.recipe
        weighting_components = tuple(
            dataclasses.replace(weighting, **once) if weighting is self._how else weighting
            for weighting in recipe.weighting_components
        )
        recipe = dataclasses.replace(
            recipe,
            retain_loss="none",
            retain_component=None,
            preserve="none",
            preserve_component=None,
            weighting_components=weighting_components,
        )
        training, model = self._alternation(recipe), trainer.model
        with eval_mode(model), torch.no_grad():
            for batch in trainer.get_train_dataloader():
                inputs = trainer._prepare_inputs(batch)
                self._keep(training, trainer.micro_batch_loss(model, inputs, recipe), inputs)
                with torch.enable_grad():
                    training.step(max_steps=0)

    def join(self, optimizer: torch.optim.Optimizer) -> None:
        """In the joint procedure, add the scorer to the model's optimizer as a parameter group."""
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if self.alternation is not None and self.alternation.joint and id(self._scorer.linear.weight) not in known:
            group = {"params": list(self._scorer.parameters()), "weight_decay": 0.0}
            optimizer.add_param_group(group | {"lr": self._how.scorer_learning_rate})

    # Every step

    def collect(self, result: UnlearningLoss, inputs: Mapping[str, Any]) -> None:
        """Store what a scorer step needs of a micro-batch, if the current optimizer step is one."""
        if (training := self._due()) is not None:
            self._keep(training, result, inputs)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.alternation is not None and self.alternation.joint:
            self._log(self.alternation.gradients())
            self.alternation.forget_collected()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if (training := self._due()) is None:
            return
        if training.joint:
            training.updates += 1
        else:
            self._log(training.step(state.max_steps))

    def _due(self) -> ScorerAlternation | None:
        """Return the training of the scorer if the current optimizer step is a scorer step."""
        state, training = self._trainer.state, self.alternation
        return training if training is not None and training.due(state.global_step, state.max_steps) else None

    def _keep(self, training: ScorerAlternation, result: UnlearningLoss, inputs: Mapping[str, Any]) -> None:
        precomputed = self._trainer.precomputed
        training.collect(
            result, precomputed.offset(inputs), precomputed.labels(inputs)[0] if training.labelled else None
        )

    def _log(self, objective: torch.Tensor) -> None:
        # The value is the same in all processes; logged terms are summed over processes.
        self._trainer.add_part("scorer_loss", objective / self._trainer.args.world_size)

    # Checkpoints; the scorer's weights are saved by the trainer

    def save(self, folder: str) -> None:
        """Write the training state of the scorer into a checkpoint."""
        if self.alternation is not None:
            self.alternation.save(folder)

    def load(self, folder: str) -> None:
        """Restore scorer and training state from a checkpoint."""
        self._scorer.load_state_dict(TokenScorer.from_pretrained(folder).state_dict())
        if self.alternation is not None:
            self.alternation.load(folder)
