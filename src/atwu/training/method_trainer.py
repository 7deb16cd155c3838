"""`MethodTrainer`: trains every unlearning method with one loss, on transformers' `Trainer`."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.trainer_callback import TrainerCallback

from atwu._cache import cache_folder
from atwu.data.encode import Encoder
from atwu.data.pairing import PairedDataset, collate_pairs
from atwu.methods.component_inputs import NormalizationCounts
from atwu.methods.objective import UnlearningLoss, micro_batch_loss
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.layers import eval_mode, text_config, train_only_down_projections, unwrap
from atwu.training.change_cleaning import ChangeCleaning
from atwu.training.config import UnlearnConfig, check_trainer_arguments
from atwu.training.gradient_changes import (
    ComponentCollapse,
    GradientChange,
    GradientRectification,
    gaussian_noise,
    loss_at_perturbed_weights,
    sam_perturbation,
)
from atwu.training.load_to_train import (
    LoadedModel,
    ModelSource,
    check_saved_adapter,
    load_checked_tokenizer,
    load_to_train,
    trained_layers,
)
from atwu.training.precompute import (
    OriginalModel,
    PrecomputedTables,
    count_labelled_rows,
    digests_of_inputs,
    precomputed_tables,
    row_auroc,
)
from atwu.training.progress import AtStart, Say, logged
from atwu.training.row_sets import RowsInput, check_lengths, warn_about_rows
from atwu.training.scorer_training import ScorerAlternation, check_scorer, fitting_scorer, initial_scorer
from atwu.training.token_trainer import TokenTrainer
from atwu.training.training_rows import OwnSamples, UnlearningRows, unlearning_rows


class RetainWeight:
    """The retain weight of a run in which it changes; part of checkpoints."""

    _NAME = "retain_multiplier.json"

    def __init__(self, start: float) -> None:
        self.value = start

    def save(self, folder: str) -> None:
        Path(folder, self._NAME).write_text(json.dumps(self.value) + "\n", encoding="utf-8")

    def load(self, folder: str) -> None:
        self.value = json.loads(Path(folder, self._NAME).read_text(encoding="utf-8"))


class MethodTrainer(TokenTrainer):
    """Trainer that unlearns a forget set and preserves a retain set.

    The loss is already divided by the token and row counts of the whole optimizer step (all micro-batches, all
    processes), so batch 8 x 1 accumulation step equals 1 x 8. Logged per optimizer step: `loss`, `forget_loss`,
    where the method has them `retain_loss`, `preserve_loss` and `replacement_loss`, `mean_score` (mean token weight),
    `selected` (share of tokens with weight above 1/2), `score_auroc` (AUROC of the weights against forget_spans, mean over
    labelled rows), on scorer steps `scorer_loss`, with `rectify_gradient` the added share of the retain gradient,
    `rectified`, with `collapse_components` the collapsed share of the forget gradient, `collapsed`, and `retain_weight` if
    it changes.

    Args:
        model: the original model: its name (as for `--model`), the causal language model, or the result of
            `load_to_train`.
        args: the configuration; by default `UnlearnConfig()`.
        forget_dataset: forget rows, of any kind that `encode_dataset` takes; or the result of `unlearning_rows`.
        retain_dataset: retain rows; required unless neither the retain loss nor the weighting uses them.
        processing_class: the model's tokenizer; by default loaded with a named model.
        scorer: initial scorer, instead of an untrained one.
        say: receives status messages, one line each.
        callbacks: transformers callbacks.

    Raises:
        TypeError: arguments of transformers' `Trainer` that do not apply; the message names the right one.
        ValueError: rows that the method cannot use.
    """

    args: UnlearnConfig
    command = "unlearn"
    remedy = "Lower the learning rate or forget_weight, or use a bounded forget loss such as satga_plus."

    def __init__(
        self,
        model: str | Path | nn.Module | LoadedModel,
        args: UnlearnConfig | None = None,
        *,
        forget_dataset: RowsInput | UnlearningRows | None = None,
        retain_dataset: RowsInput | None = None,
        processing_class: Any = None,
        scorer: TokenScorer | None = None,
        say: Say = logged,
        callbacks: list[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        # What can be refused without weights is refused first: loading a model may take minutes.
        args = check_trainer_arguments(args, forget_dataset, kwargs)
        self.recipe = args.recipe()
        for component in self.recipe.components:
            component.check()
        check_scorer(scorer, self.recipe)
        if args.world_size > 1 and (args.perturbs_weights or args.rectify_gradient or args.collapse_components):
            raise ValueError(
                "sam_radius, weight_noise, rectify_gradient and collapse_components work in a single process only; train "
                "with one."
            )
        if args.world_size > 1 and args.clean_change:
            raise ValueError("clean_change works in a single process only; train with one, or leave it out.")
        samples = bool(self.recipe.forget_component.sampled_readings())
        if samples and args.world_size > 1:
            raise ValueError(f"method {self.recipe.name!r} samples answers in a single process only; train with one.")
        source = None
        if isinstance(model, str | Path):
            source = ModelSource(model=str(model))
            check_saved_adapter(source, args)
            if processing_class is None:
                processing_class = load_checked_tokenizer(source)
        if processing_class is None:
            raise ValueError("a model that is given as an object needs the tokenizer; pass it as processing_class.")
        if isinstance(forget_dataset, UnlearningRows):
            rows = forget_dataset
        else:
            rows = unlearning_rows(cast(RowsInput, forget_dataset), retain_dataset, args, tokenizer=processing_class)
            warn_about_rows(rows.forget, rows.retain)
        self.refusal_ids = self.recipe.forget_component.target_token_ids(processing_class)
        # Rows that only the weighting reads are not trained on.
        retain = None
        if rows.retain is not None and self.recipe.retain_component is not None:
            retain = rows.retain.rows
        loaded = cast("nn.Module | LoadedModel", model)
        if source is not None:
            loaded = load_to_train(source, args, say)
        super().__init__(
            loaded,
            args,
            train_dataset=PairedDataset(
                rows.forget.rows,
                retain,
                args.seed,
                rows.alternates,
                rows.forms,
                rows.closest,
                args.retain_per_forget,
                rows.retain_alternates,
                waiting=rows.forget.waiting,
            ),
            data_collator=collate_pairs,
            processing_class=processing_class,
            callbacks=callbacks,
            say=say,
            **kwargs,
        )
        # Now that the model is known: by name, it was loaded above.
        check_lengths(self.loaded.model, *rows.encoded.values(), *rows.prompted.values(), rows.refused)
        layers = trained_layers(self.recipe, self.loaded.model)
        if layers is not None:
            train_only_down_projections(unwrap(self.loaded.model), layers)
        self.rows, self.sets = rows, rows.sets
        self.scorer: TokenScorer | None = None
        """The token scorer, for methods with learned weights."""
        self.alternation: ScorerAlternation | None = None
        scores = self.recipe.scores
        if scores is not None:
            if self.sharded and scores.scorer_procedure == "joint":
                raise ValueError(
                    "scorer_procedure='joint' does not work with a sharded model; use scorer_procedure='alternate'."
                )
            width = text_config(self.loaded.model).hidden_size
            if scorer is None:
                scorer = initial_scorer(scores, width, rows)
            else:
                scorer = fitting_scorer(scorer, width, what="the given scorer")
            self.scorer = scorer.to(args.device)
            self.alternation = ScorerAlternation(self.scorer, self.recipe, reduce=self.sum_over_processes)
            if scores.scorer_pretrain:
                # Not here: a run that continues from a checkpoint has a scorer already.
                self.add_callback(AtStart(self.pretrain_scorer))
        self.retain_weight: RetainWeight | None = None
        """The retain weight, if it is not constant."""
        if self.recipe.retain_component is not None and self.recipe.retain_component.changes_weight:
            self.retain_weight = RetainWeight(self.recipe.factors.retain_weight)
        self._retain_loss = torch.zeros((), device=args.device)
        self.draw_damaged = False
        """Draw retain rows that training damages more often (`EpochSampler.observe`)."""
        self._row_losses = torch.zeros(2, len(retain or ()), device=args.device)
        """Sum and number of the losses of each retain row in the current optimizer step."""
        if samples:
            answers = OwnSamples(self, processing_class)
            self.stateful.append(answers)
            self.add_callback(answers)
        self.stateful += filter(None, (self.alternation, self.retain_weight))
        self.gradient_change: GradientChange | None = None
        """Change of the forget gradient; the configuration refuses two."""
        if args.rectify_gradient:
            rectification = GradientRectification(self.loaded.model, args.rectify_gradient)
            self.gradient_change = rectification
            self.stateful.append(rectification)
        if args.collapse_components:
            self.gradient_change = ComponentCollapse(self.loaded.model, args.collapse_components)
        self.cleaning: ChangeCleaning | None = None
        """Cleaning of the change since now, so before a checkpoint is loaded."""
        if args.clean_change and rows.retain is not None:
            self.cleaning = ChangeCleaning(self.loaded.model, strength=args.clean_change, rows=rows.retain.rows)
        self._cleaned = False

    def record_entries(self) -> dict[str, Any]:
        return {"method": self.recipe.name, "recipe": self.recipe.as_plain()}

    def digests(self) -> dict[str, str]:
        return digests_of_inputs(self.recipe)

    @functools.cached_property
    def precomputed(self) -> PrecomputedTables:
        """Tables indexed by row; computed once, from the original model."""
        args = self.args
        precision = None
        if args.bf16:
            precision = "bfloat16"
        elif args.fp16:
            precision = "float16"
        start = OriginalModel(
            unwrap(self.loaded.model),
            cache_folder(args.cache_dir) / "references",
            self.accelerator.autocast,
            precision,
            progress=not args.disable_tqdm and args.process_index == 0,
            fingerprint=self.loaded.fingerprint,
            stays=not self.sharded,
        )
        # The main process computes and writes the cache; the others then read it.
        with args.main_process_first(desc="precomputed reference values"):
            return precomputed_tables(
                start,
                self.rows,
                cast(PairedDataset, self.train_dataset),
                args,
                recipe=self.recipe,
                scorer=self.scorer,
                encoder=Encoder(self.processing_class, max_length=args.max_length, system=args.system),
                refusal_ids=self.refusal_ids,
                say=self.say,
            )

    def _prepare_run(self) -> None:
        _ = self.precomputed  # before the first step, and before the model is sharded

    def _train(self, *args: Any, **kwargs: Any) -> Any:
        self._cleaned = False
        result = super()._train(*args, **kwargs)
        # The controller of a request has done it, with as much strength as its checks allow.
        if self.cleaning is not None and not self._cleaned:
            self.clean_change(self.cleaning)
        return result

    def clean_change(self, cleaning: ChangeCleaning, share: float = 1.0) -> None:
        """Clean the change of the weights with a share of the strength; `train` then does not do it again."""
        self._cleaned = True
        size, effect = cleaning.clean(share)
        self.say(f"cleaned the weight change: {size:.0%} of it is left, and {effect:.0%} of its effect on retain rows")

    def pretrain_scorer(self) -> None:
        """Train the scorer on one pass over the forget set with the original model, with an update per micro-batch."""
        assert self.scorer is not None
        # One pass at a constant rate: the schedule and the minimum number of updates are those of the run that follows.
        once: dict[str, Any] = {"scorer_procedure": "alternate", "scorer_schedule": "constant", "scorer_min_updates": 0}
        recipe = self.recipe.forget_only()
        recipe = dataclasses.replace(
            recipe,
            weighting_components=tuple(
                dataclasses.replace(weighting, **once) if weighting is recipe.scores else weighting
                for weighting in recipe.weighting_components
            ),
        )
        alternation = ScorerAlternation(self.scorer, recipe, reduce=self.sum_over_processes)
        model: Any = self.model
        with eval_mode(model), torch.no_grad():
            for batch in self.get_train_dataloader():
                inputs = self._prepare_inputs(batch)
                self._collect(alternation, self.micro_batch_loss(model, inputs, recipe), inputs)
                with torch.enable_grad():
                    alternation.step(max_steps=0)

    def _collect(self, alternation: ScorerAlternation, result: UnlearningLoss, inputs: Mapping[str, Any]) -> None:
        labels = None
        if alternation.settings.scorer_objective == "labels":
            labels, _ = self.precomputed.labels(inputs)
        alternation.collect(result, self.precomputed.offset(inputs), labels)

    # Loss

    def _count(self, batches: Sequence[Any]) -> dict[str, float]:
        forget_loss = self.recipe.forget_component
        masks = [TokenBatch.of(batch[forget_loss.trained_answer]).mask for batch in batches]
        # Each divisor that a loss may use; `get_batch_samples` sums them over processes.
        counts = {
            "forget_tokens": float(sum(mask.sum() for mask in masks)),
            "averaged_tokens": float(sum(forget_loss.averaged(mask).sum() for mask in masks)),
            "forget_rows": float(sum(len(batch["rows"]) for batch in batches)),
        }
        if self.recipe.retain_component is not None:
            counts["retain_tokens"] = float(sum(TokenBatch.of(batch["retain"]).mask.sum() for batch in batches))
            counts["retain_rows"] = float(sum(len(batch["retain_rows"]) for batch in batches))
        if forget_loss.reduction == "selected":
            counts["selected"] = sum(self.precomputed.selected(batch) for batch in batches)
        if self._scores_tokens:
            counts["labelled_rows"] = sum(count_labelled_rows(*self.precomputed.labels(batch)) for batch in batches)
        return counts

    @property
    def _scores_tokens(self) -> bool:
        """Whether the weights can be compared with labels."""
        return self.rows.forget.rows[0].token_labels is not None and self.recipe.weighting not in ("uniform", "labels")

    def micro_batch_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        recipe: Recipe,
        batch_counts: NormalizationCounts | None = None,
    ) -> UnlearningLoss:
        return micro_batch_loss(
            model,
            inputs,
            recipe,
            scorer=self.scorer,
            inputs=self.precomputed.loss_inputs(model, inputs),
            batch_counts=batch_counts,
        )

    def _token_loss(self, model: nn.Module, inputs: Any, batch_counts: NormalizationCounts) -> Tensor:
        recipe = self.recipe
        if self.retain_weight is not None:  # the weight of this step, not that which the run began with
            factors = dataclasses.replace(recipe.factors, retain_weight=self.retain_weight.value)
            recipe = dataclasses.replace(recipe, factors=factors)
        result = self.micro_batch_loss(model, inputs, recipe, batch_counts)
        # An evaluation is no optimizer step and has no counts of one.
        tokens = batch_counts.forget_tokens or float(result.mask.sum())
        for name in ("forget", "retain", "preserve", "replacement"):
            term = getattr(result, name)
            if term is not None:
                self.add_logged(f"{name}_loss", term)
        self.add_logged("mean_score", result.token_weights.sum() / tokens)
        self.add_logged("selected", (result.token_weights > 0.5).sum() / tokens)
        if self._scores_tokens and batch_counts.labelled_rows:
            agreement = row_auroc(result.token_weights, *self.precomputed.labels(inputs))
            self.add_logged("score_auroc", agreement.sum() / batch_counts.labelled_rows)
        if not model.training:  # an evaluation logs the same terms, and changes neither scorer, sampler nor gradients
            return result.loss
        alternation = self._due_alternation()
        if alternation is not None:
            self._collect(alternation, result, inputs)
        if result.retain is not None:
            # A sum is the loss of the step: each micro-batch is divided by the counts of all of them.
            self._retain_loss += result.retain.detach().to(self._retain_loss)
            if self.draw_damaged and result.retain_per_row is not None:
                losses = result.retain_per_row.to(self._row_losses)
                # A row may be drawn twice in a step, so its losses are counted, too.
                self._row_losses.index_add_(1, inputs["retain_rows"], torch.stack([losses, torch.ones_like(losses)]))
        if self.gradient_change is not None and result.kept is not None:
            self.gradient_change.collect(result.kept)
        if self.args.perturbs_weights:
            return self._perturbed_loss(model, inputs, recipe, result, batch_counts)
        return result.loss

    def _due_alternation(self) -> ScorerAlternation | None:
        if self.alternation is None or not self.alternation.due(self.state.global_step, self.state.max_steps):
            return None
        return self.alternation

    def _perturbed_loss(
        self,
        model: nn.Module,
        inputs: Any,
        recipe: Recipe,
        result: UnlearningLoss,
        batch_counts: NormalizationCounts,
    ) -> Tensor:
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        # Only the forget loss is perturbed: the retain loss is to hold at the weights that are saved.
        if self.args.sam_radius:
            moves: Iterable[Tensor] = sam_perturbation(result.forget, trained, radius=self.args.sam_radius)
        else:
            # Micro-batches of a step have rows of their own, so each gets other noise; a resumed run draws the same.
            drawn = (self.args.seed, self.state.global_step, *inputs["rows"].tolist())
            moves = gaussian_noise(trained, deviation=self.args.weight_noise, seed=drawn)
        alone = recipe.forget_only()
        return loss_at_perturbed_weights(
            result.without_forget,
            lambda: recipe.factors.forget_weight * self.micro_batch_loss(model, inputs, alone, batch_counts).forget,
            trained,
            moves,
        )

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Accumulate the gradients of one micro-batch; after the last one of an optimizer step, also do what follows it."""
        loss: Tensor = super().training_step(*args, **kwargs)
        if not self.accelerator.sync_gradients:  # further micro-batches of this optimizer step follow
            return loss
        if self.gradient_change is not None:
            self.add_logged(self.gradient_change.logged, torch.tensor(self.gradient_change.change()))
        # Logged terms are summed over processes; these are the same in all of them.
        retain_loss = self.recipe.retain_component
        if self.retain_weight is not None and retain_loss is not None:
            weight, retain = self.retain_weight.value, float(self.sum_over_processes(self._retain_loss))
            self.add_logged("retain_weight", torch.tensor(weight / self.args.world_size))
            self.retain_weight.value = retain_loss.next_weight(weight, retain=retain, epoch=self.state.epoch or 0)
        self._retain_loss.zero_()
        if self.draw_damaged:
            total, count = self.sum_over_processes(self._row_losses).cpu()
            self.sampler.observe({row: float(total[row] / count[row]) for row in count.nonzero().flatten().tolist()})
            self._row_losses.zero_()
        alternation = self._due_alternation()
        if alternation is not None:
            self.add_logged("scorer_loss", alternation.step(self.state.max_steps) / self.args.world_size)
        return loss

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Create the Trainer's optimizer; in the joint procedure the scorer is another parameter group."""
        optimizer = super().create_optimizer(*args, **kwargs)
        if self.alternation is not None:
            self.alternation.join(optimizer)
        return optimizer

    # Checkpoints

    def _saved_parameters(self) -> Iterator[Tensor]:
        yield from super()._saved_parameters()
        if self.scorer is not None:
            yield from self.scorer.parameters()

    def write_weights(self, model: Any, folder: Path) -> None:
        super().write_weights(model, folder)
        if self.scorer is not None and self.args.should_save:
            self.scorer.save_pretrained(folder)
