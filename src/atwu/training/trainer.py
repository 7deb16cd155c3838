"""`MethodTrainer`: every method of the table through one loss, on transformers' `Trainer`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.trainer_callback import TrainerCallback

from atwu.data.collate import PairCollator
from atwu.data.pairing import PairedDataset
from atwu.methods.alternation import ScorerAlternation
from atwu.methods.objective import UnlearningLoss, recipe_loss
from atwu.methods.recipe import Recipe
from atwu.methods.seen import Denominators
from atwu.methods.weightings.agreement import labelled_rows, row_auroc
from atwu.methods.weightings.scorer import TokenScorer
from atwu.modeling.abilities import abilities_of, can_stop_at
from atwu.modeling.batches import TokenBatch
from atwu.modeling.layers import decoder_layers, train_only_down_projections
from atwu.modeling.reference import Wanted
from atwu.modeling.single_pass import unwrap
from atwu.training.base import TokenTrainer
from atwu.training.config import UnlearnConfig
from atwu.training.model import LoadedModel, ModelSource, checked_tokenizer, load_to_train, trained_layers, with_lora
from atwu.training.prepare import LookUps, fixed_tables, prior_offsets, read_besides, starting_scorer, text_table
from atwu.training.progress import Say, logged
from atwu.training.references import StartingModel, prepare_references, reference_folder
from atwu.training.rows import Rows, UnlearningRows, planned_epochs, unlearning_rows, warn_of


class MethodTrainer(TokenTrainer):
    """Unlearn a forget set while keeping a retain set.

    The loss is already divided by the token and row counts of the whole optimizer step (all micro-batches, all processes), so
    batch 8 x 1 accumulation step equals 1 x 8. Logged per optimizer step: `loss`, `forget_loss`, `retain_loss`, `mean_score`
    (mean token weight), `selected` (share of tokens with weight above 1/2), `score_auroc` (agreement of the weights with
    forget_spans, mean over rows, where rows have them) and, on scorer steps, `scorer_loss`.

    Args:
        model: the causal language model to change, still in its starting state: its name (as `--model` takes it), the model,
            or what `load_to_train` gives.
        args: the run's configuration; by default that of the documentation.
        forget_dataset: rows to remove, of any kind that `encode_dataset` takes; or everything that `unlearning_rows` made.
        retain_dataset: rows to keep; required unless neither the retain loss nor the weighting looks at them.
        processing_class: the model's tokenizer; by default the one that lies with a named model.
        peft_config: a `LoraConfig`, whose rank, alpha, dropout and target modules are taken, instead of `lora_*` of `args`.
        scorer: start from this scorer instead of an untrained one.
        say: receives one line of plain text per decision worth knowing.
        callbacks: transformers callbacks.

    Raises:
        TypeError: arguments of transformers' `Trainer` that mean something else here; names the right one.
        ValueError: rows that the method cannot use, or a setting of `peft_config` that has no counterpart.
    """

    args: UnlearnConfig
    command = "unlearn"
    remedy = "Lower the learning rate or forget_weight, or use a bounded forget loss such as satga_plus."

    def __init__(
        self,
        model: str | nn.Module | LoadedModel,
        args: UnlearnConfig | None = None,
        *,
        forget_dataset: Rows | UnlearningRows | None = None,
        retain_dataset: Rows | None = None,
        processing_class: Any = None,
        peft_config: Any = None,
        scorer: TokenScorer | None = None,
        say: Say = logged,
        callbacks: list[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        args = _checked(args, forget_dataset, kwargs)
        if peft_config is not None:
            args = with_lora(args, peft_config)
        self.recipe = args.recipe()
        for part in self.recipe.parts:
            part.check()
        source = ModelSource(model=model) if isinstance(model, str) else None
        if source is not None and processing_class is None:
            processing_class = checked_tokenizer(source)
        if isinstance(forget_dataset, UnlearningRows):
            rows = forget_dataset
        else:
            rows = unlearning_rows(cast(Rows, forget_dataset), retain_dataset, args, tokenizer=processing_class)
            warn_of(rows.forget, rows.retain)
        self._refusal_ids = self.recipe.forgetter.aim(processing_class)
        seed = args.data_seed if args.data_seed is not None else args.seed
        pad_id = getattr(processing_class, "pad_token_id", None)
        kept = rows.retain.rows if rows.retain is not None and self.recipe.retainer is not None else None
        super().__init__(
            cast("nn.Module | LoadedModel", model) if source is None else load_to_train(source, args, say),
            args,
            train_dataset=PairedDataset(rows.forget.rows, kept, seed, rows.alternates),
            data_collator=PairCollator(0 if pad_id is None else pad_id),
            processing_class=processing_class,
            callbacks=callbacks,
            say=say,
            **kwargs,
        )
        if (layers := trained_layers(self.recipe, self.loaded.model)) is not None:
            train_only_down_projections(unwrap(self.loaded.model), layers)
        self._rows, self.sets = rows, rows.sets
        self._known: LookUps | None = None
        self.scorer: TokenScorer | None = None
        """The token scorer, for methods with learned weights."""
        self.alternation: ScorerAlternation | None = None
        if (scores := self.recipe.scores) is not None:
            width = self.loaded.model.config.get_text_config().hidden_size  # type: ignore[union-attr, operator]
            self.scorer = (scorer or starting_scorer(scores, width, rows)).to(args.device)
            if self.sharded and scores.scorer_procedure == "joint":
                raise ValueError("a sharded model's optimizer takes no scorer; use scorer_procedure='alternate'.")
            if scores.scorer_procedure != "frozen":
                self.alternation = ScorerAlternation(self.scorer, self.recipe, reduce=self._sum_over_processes)
                self.companions.append(self.alternation)
            self.add_callback(_ScorerStep(self))

    def recorded(self) -> dict[str, Any]:
        """The method and its parts."""
        return {"method": self.recipe.name, "recipe": self.recipe.as_plain()}

    def inputs(self) -> dict[str, str]:
        """Digests of its scorer and auxiliary models, and of its method."""
        return read_besides(self.recipe)

    # Before the first step

    def _prepare_run(self) -> None:
        if self._known is None:
            with self.args.main_process_first(desc="starting model's numbers"):
                self._prepare()

    def _prepare(self) -> None:
        start = StartingModel(
            unwrap(self.model),  # type: ignore[arg-type]
            reference_folder(self.args.cache_dir),
            self.accelerator.autocast,
            "bfloat16" if self.args.bf16 else "float16" if self.args.fp16 else None,
            progress=not self.args.disable_tqdm and self.args.process_index == 0,
            fingerprint=self.loaded.fingerprint,
            stays=not self.sharded,
        )
        wanted = self.recipe.wanted(len(decoder_layers(start.model)) if self.recipe.layered else 0)
        pairs, drawn = cast(PairedDataset, self.train_dataset), None
        if "retain" in wanted and not self.args.dataloader_drop_last:
            drawn = pairs.drawn(planned_epochs(self.args, len(pairs)))
        forget = self._rows.forget.rows
        with self._read_whole(start.model, wanted) if self.sharded else nullcontext():
            fixed = fixed_tables(self.recipe, self._rows, start)
            references = prepare_references(
                start, wanted, self._rows.encoded, mode=self.args.reference, drawn=drawn, say=self._say
            )
        offsets = prior_offsets(self.scorer, forget)
        self._known = LookUps(references, fixed, text_table(forget), offsets, self._refusal_ids)

    @contextmanager
    def _read_whole(self, model: nn.Module, wanted: Mapping[str, Wanted]) -> Iterator[None]:
        """The starting model on the device, where it is read before it is sharded."""
        waits, device = next(model.parameters()).device, self.args.device
        if not wanted and not {"starting_logps", "auxiliary_models"}.intersection(self.recipe.needs):
            yield
            return
        model.to(device)
        # In every process, also in those that find in the cache what the first one read: a sharded model runs in all at once.
        abilities_of(model, device)
        for layer in {what.layer for what in wanted.values()} - {None}:
            can_stop_at(model, cast(int, layer), device)
        yield
        model.to(waits)

    @property
    def _look_ups(self) -> LookUps:
        assert self._known is not None, "made by train"
        return self._known

    def pretrain_scorer(self) -> None:
        """One pass over the forget set on the starting model, an update of the scorer after every micro-batch."""
        once: dict[str, Any] = {"scorer_procedure": "alternate", "scorer_schedule": "constant", "scorer_min_updates": 0}
        weighters = tuple(
            dataclasses.replace(weighter, **once) if weighter is self.recipe.scores else weighter
            for weighter in self.recipe.weighters
        )
        recipe = dataclasses.replace(self.recipe, retain_loss="none", retainer=None, weighters=weighters)
        alternation = ScorerAlternation(cast(TokenScorer, self.scorer), recipe, reduce=self._sum_over_processes)
        model: Any = self.model
        was_training = model.training
        model.eval()
        with torch.no_grad():
            for batch in self.get_train_dataloader():
                inputs = self._prepare_inputs(batch)
                self._collect(alternation, self._loss(model, inputs, recipe, None), inputs)
                with torch.enable_grad():
                    alternation.step(max_steps=0)
        model.train(was_training)

    # Loss

    def _count(self, batches: Sequence[Any]) -> dict[str, float]:
        counts = {
            "forget_tokens": sum(_counted(batch[self.recipe.forgetter.learns]) for batch in batches),
            "forget_rows": float(sum(len(batch["rows"]) for batch in batches)),
        }
        if self.recipe.retainer is not None:
            counts["retain_tokens"] = sum(_counted(batch["retain"]) for batch in batches)
            counts["retain_rows"] = counts["forget_rows"]
        if self.recipe.forgetter.reduction == "selected":
            counts["selected"] = sum(self._look_ups.selected(batch) for batch in batches)
        if self._scores_tokens:
            counts["labelled_rows"] = sum(labelled_rows(*self._look_ups.labels(batch)) for batch in batches)
        return counts

    @property
    def _scores_tokens(self) -> bool:
        """Whether the weighting says anything that could agree with labels."""
        return self._rows.forget.rows[0].token_labels is not None and self.recipe.weighting not in ("uniform", "labels")

    def _loss(
        self, model: nn.Module, inputs: Mapping[str, Any], recipe: Recipe, denominators: Denominators | None
    ) -> UnlearningLoss:
        layout: Any = self.args.layout
        return recipe_loss(
            model,
            inputs["forget"],
            inputs.get("retain"),
            recipe,
            alternate=inputs.get("alternate"),
            scorer=self.scorer,
            given=self._look_ups.given(model, inputs, layout=layout),
            denominators=denominators,
            layout=layout,
        )

    def _token_loss(self, model: nn.Module, inputs: Any, denominators: Denominators) -> Tensor:
        result = self._loss(model, inputs, self.recipe, denominators)
        tokens = denominators.forget_tokens or float(result.mask.sum())
        self._add_part("forget_loss", result.forget)
        if result.retain is not None:
            self._add_part("retain_loss", result.retain)
        self._add_part("mean_score", result.token_weights.sum() / tokens)
        self._add_part("selected", (result.token_weights > 0.5).sum() / tokens)
        if self._scores_tokens and denominators.labelled_rows:
            agreement = row_auroc(result.token_weights, *self._look_ups.labels(inputs))
            self._add_part("score_auroc", agreement.sum() / denominators.labelled_rows)
        if model.training and (scoring := self._due()) is not None:
            self._collect(scoring, result, inputs)
        return result.loss

    # Scorer

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's optimizer, with the scorer as a second group in the joint procedure."""
        optimizer = super().create_optimizer(*args, **kwargs)
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        learned = list(self.scorer.parameters()) if self.scorer is not None else []
        training = self.alternation
        if training is not None and training.joint and not known & {id(parameter) for parameter in learned}:
            group = {"params": learned, "weight_decay": 0.0}
            optimizer.add_param_group(group | {"lr": training.how.scorer_learning_rate})
        return optimizer

    def _collect(self, training: ScorerAlternation, result: UnlearningLoss, inputs: Mapping[str, Any]) -> None:
        labels = self._look_ups.labels(inputs)[0] if training.labelled else None
        training.collect(result, self._look_ups.offset(inputs), labels)

    def _due(self) -> ScorerAlternation | None:
        """The scorer's training, if the optimizer step under way is also a scorer step."""
        training = self.alternation
        return training if training is not None and training.due(self.state.global_step, self.state.max_steps) else None

    def _scorer_step(self) -> None:
        """After the model's step."""
        if (training := self._due()) is None:
            return
        if training.joint:
            training.updates += 1
            return
        # Every process has the same value; logged parts are summed over processes.
        self._add_part("scorer_loss", training.step(self.state.max_steps) / self.args.world_size)

    def _joint_gradients(self) -> None:
        """Before the model's step, which is then the scorer's too."""
        if self.alternation is not None and self.alternation.joint:
            self._add_part("scorer_loss", self.alternation.gradients() / self.args.world_size)
            self.alternation.forget_collected()

    # Checkpoints

    def _saved_parameters(self) -> Iterator[Tensor]:
        yield from super()._saved_parameters()
        if self.scorer is not None:
            yield from self.scorer.parameters()

    def write_weights(self, model: Any, folder: Path) -> None:
        """Also the scorer's."""
        super().write_weights(model, folder)
        if self.scorer is not None and self.args.should_save:
            self.scorer.save_pretrained(folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.scorer is not None:
            self.scorer.load_state_dict(TokenScorer.from_pretrained(checkpoint).state_dict())


class _ScorerStep(TrainerCallback):
    """Calls the scorer's steps around the model's optimizer step."""

    def __init__(self, trainer: MethodTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        scores = self._trainer.recipe.scores
        if scores is not None and scores.scorer_pretrain and state.global_step == 0:
            self._trainer.pretrain_scorer()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer._joint_gradients()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer._scorer_step()


def _counted(batch: Mapping[str, Tensor]) -> float:
    return float(TokenBatch.of(batch).mask.sum())


def _checked(args: Any, forget: Any, further: Mapping[str, Any]) -> UnlearnConfig:
    """The configuration; what belongs to transformers' `Trainer` and not here is refused by the name that does."""
    if args is not None and not isinstance(args, UnlearnConfig):
        raise TypeError(
            f"args must be an UnlearnConfig, which has every field of TrainingArguments, got {type(args).__name__}."
        )
    for name, right in (("train_dataset", "forget_dataset and retain_dataset"), ("tokenizer", "processing_class")):
        if name in further:
            raise TypeError(f"UnlearnTrainer takes {right} instead of {name}.")
    if forget is None:
        raise TypeError("UnlearnTrainer needs forget_dataset: the rows to remove.")
    return args or UnlearnConfig()
