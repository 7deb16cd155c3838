"""`UnlearnTrainer`: every method of the table through one loss, on transformers' `Trainer`."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.trainer_callback import TrainerCallback

from atwu.data.collate import PairCollator
from atwu.data.pairing import PairedDataset
from atwu.methods.alternation import ScorerAlternation
from atwu.methods.objective import UnlearningLoss, recipe_loss
from atwu.methods.recipe import Recipe
from atwu.methods.seen import Denominators, Given
from atwu.methods.weightings.agreement import labelled_rows, row_auroc
from atwu.methods.weightings.scorer import CONFIG_NAME, TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.layers import decoder_layers, train_only_down_projections
from atwu.modeling.reference import TokenTable
from atwu.modeling.single_pass import unwrap
from atwu.training.base import TokenTrainer
from atwu.training.config import UnlearnConfig
from atwu.training.model import trained_layers, with_adapters
from atwu.training.prepare import fixed_tables, prior_offsets, starting_scorer
from atwu.training.references import References, StartingModel, prepare_references, reference_folder
from atwu.training.rows import Rows, planned_epochs, text_table, unlearning_rows

logger = logging.getLogger(__name__)


class UnlearnTrainer(TokenTrainer):
    """Unlearn a forget set while keeping a retain set.

    The loss is already divided by the token and row counts of the whole optimizer step (all micro-batches, all processes), so
    batch 8 x 1 accumulation step equals 1 x 8. Logged per optimizer step: `loss`, `forget_loss`, `retain_loss`, `mean_score`
    (mean token weight), `selected` (share of tokens with weight above 1/2), `score_auroc` (agreement of the weights with
    forget_spans, mean over rows, where rows have them) and, on scorer steps, `scorer_loss`.

    Args:
        model: the causal language model to change, still in its starting state.
        args: the run's configuration.
        forget_dataset: rows to remove.
        retain_dataset: rows to keep; required unless neither the retain loss nor the weighting looks at them.
        processing_class: the model's tokenizer.
        scorer: start from this scorer instead of an untrained one.
        fingerprint: of the starting model, if it is known already.
        say: receives one line of plain text per decision worth knowing.
        callbacks: transformers callbacks.
    """

    args: UnlearnConfig
    remedy = "Lower the learning rate or forget_weight, or use a bounded forget loss such as satga_plus."

    def __init__(
        self,
        model: nn.Module,
        args: UnlearnConfig,
        *,
        forget_dataset: Rows,
        retain_dataset: Rows | None = None,
        processing_class: Any = None,
        scorer: TokenScorer | None = None,
        fingerprint: str | None = None,
        say: Callable[[str], None] = logger.info,
        callbacks: list[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        self.recipe = args.recipe()
        for part in self.recipe.parts:
            part.check()
        rows = unlearning_rows(
            args, self.recipe, forget=forget_dataset, retain=retain_dataset, tokenizer=processing_class
        )
        self._refusal_ids = self.recipe.forgetter.aim(processing_class)
        model = with_adapters(model, args)
        if (layers := trained_layers(self.recipe, model)) is not None:
            train_only_down_projections(unwrap(model), layers)
        seed = args.data_seed if args.data_seed is not None else args.seed
        pad_id = getattr(processing_class, "pad_token_id", None)
        kept = rows.retain.rows if rows.retain is not None and self.recipe.retainer is not None else None
        super().__init__(
            model,
            args,
            train_dataset=PairedDataset(rows.forget.rows, kept, seed, rows.alternates),
            data_collator=PairCollator(0 if pad_id is None else pad_id),
            processing_class=processing_class,
            callbacks=callbacks,
            **kwargs,
        )
        self._rows, self._say = rows, say
        self._fingerprint = fingerprint
        self._references: References | None = None
        self._fixed: dict[str, TokenTable] = {}
        self._text = text_table(rows.forget.rows)
        self._offsets: TokenTable | None = None
        self.scorer: TokenScorer | None = None
        """The token scorer, for methods with learned weights."""
        self.alternation: ScorerAlternation | None = None
        if (scores := self.recipe.scores) is not None:
            width = model.config.get_text_config().hidden_size  # type: ignore[union-attr, operator]
            self.scorer = (scorer or starting_scorer(scores, width, rows)).to(args.device)
            self._offsets = prior_offsets(self.scorer, rows.forget.rows)
            if scores.scorer_procedure != "frozen":
                self.alternation = self._alternation(self.recipe)
            self.add_callback(_ScorerStep(self))

    # Before the first step

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Prepare what the run looks up, then train as transformers' `Trainer` does."""
        if self._references is None:
            with self.args.main_process_first(desc="starting model's numbers"):
                self._prepare()
        return super().train(*args, **kwargs)

    def _prepare(self) -> None:
        folder = reference_folder(self.args.cache_dir)
        start = StartingModel(
            unwrap(self.model),  # type: ignore[arg-type]
            folder,
            self.accelerator.autocast,
            "bfloat16" if self.args.bf16 else "float16" if self.args.fp16 else None,
            progress=not self.args.disable_tqdm and self.args.process_index == 0,
            fingerprint=self._fingerprint,
        )
        wanted = self.recipe.wanted(len(decoder_layers(start.model)) if self.recipe.layered else 0)
        sets = {"forget": self._rows.forget.rows}
        if self._rows.retain is not None:
            sets["retain"] = self._rows.retain.rows
        if self._rows.alternates is not None:
            sets["alternate"] = self._rows.alternates.rows
        self._fixed = fixed_tables(self.recipe, self._rows, start, cache=folder)
        if (self.is_fsdp_enabled or self.is_deepspeed_enabled) and wanted:
            raise ValueError(
                f"method {self.recipe.name!r} compares with the starting model, which sharded training (FSDP, DeepSpeed) "
                "does not support yet; use data parallelism or LoRA on one device."
            )
        self._references = prepare_references(
            start,
            wanted,
            sets,
            mode=self.args.reference,
            drawn=self._drawn() if "retain" in wanted and not self.args.dataloader_drop_last else None,
            say=self._say,
        )

    def _drawn(self) -> set[int]:
        """Retain rows that the run will draw."""
        rows: Any = self.train_dataset
        epochs = planned_epochs(self.args, len(rows))
        keys = range(epochs * len(rows)) if rows.retain is not None else ()
        return {rows[key].retain_index for key in keys}

    def _alternation(self, recipe: Recipe) -> ScorerAlternation:
        assert self.scorer is not None
        return ScorerAlternation(self.scorer, recipe, reduce=self._sum_over_processes)

    def pretrain_scorer(self) -> None:
        """One pass over the forget set on the starting model, an update of the scorer after every micro-batch."""
        once: dict[str, Any] = {"scorer_procedure": "alternate", "scorer_schedule": "constant", "scorer_min_updates": 0}
        weighters = tuple(
            dataclasses.replace(weighter, **once) if weighter is self.recipe.scores else weighter
            for weighter in self.recipe.weighters
        )
        recipe = dataclasses.replace(self.recipe, retain_loss="none", retainer=None, weighters=weighters)
        alternation = self._alternation(recipe)
        model: Any = self.model
        was_training = model.training
        model.eval()
        with torch.no_grad():
            for batch in self.get_train_dataloader():
                result = self._loss(model, self._prepare_inputs(batch), recipe, None)
                alternation.collect(result, self._score_offset(batch))
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
            counts["selected"] = sum(self._selected(batch) for batch in batches)
        if self._scores_tokens:
            counts["labelled_rows"] = sum(labelled_rows(*self._labels(batch)) for batch in batches)
        return counts

    @property
    def _scores_tokens(self) -> bool:
        """Whether the weighting says anything that could agree with labels."""
        return self._rows.forget.rows[0].token_labels is not None and self.recipe.weighting not in ("uniform", "labels")

    def _selected(self, batch: Mapping[str, Any]) -> float:
        (table,) = self._fixed.values()
        return float(table.rows(batch["rows"]).sum())

    def _labels(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Secret-token labels and mask of the answers' text, without the terminal token, on the shifted axis."""
        mask = TokenBatch.of(batch["forget"]).mask
        text = torch.zeros_like(mask).masked_scatter(mask, self._text.rows(batch["rows"]).to(mask.device))
        return batch["forget"]["token_labels"][:, 1:] > 0, text

    def _given(self, model: nn.Module, inputs: Mapping[str, Any]) -> Given:
        assert self._references is not None
        device = inputs["rows"].device
        return Given(
            self._references.of(model, inputs, device, layout=self.args.layout),  # type: ignore[arg-type]
            {name: table.rows(inputs["rows"]).to(device) for name, table in self._fixed.items()},
            score_offset=self._score_offset(inputs),
            refusal_ids=self._refusal_ids,
        )

    def _score_offset(self, inputs: Mapping[str, Any]) -> Tensor | None:
        return None if self._offsets is None else self._offsets.rows(inputs["rows"]).to(self.args.device)

    def _loss(
        self, model: nn.Module, inputs: Mapping[str, Any], recipe: Recipe, denominators: Denominators | None
    ) -> UnlearningLoss:
        return recipe_loss(
            model,
            inputs["forget"],
            inputs.get("retain"),
            recipe,
            alternate=inputs.get("alternate"),
            scorer=self.scorer,
            given=self._given(model, inputs),
            denominators=denominators,
            layout=self.args.layout,  # type: ignore[arg-type]
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
            agreement = row_auroc(result.token_weights, *self._labels(inputs))
            self._add_part("score_auroc", agreement.sum() / denominators.labelled_rows)
        if model.training and (scoring := self._due()) is not None:
            scoring.collect(result, self._score_offset(inputs))
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

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.scorer is not None and self.args.should_save:
            self.scorer.save_pretrained(Path(output_dir or str(self.args.output_dir)))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.alternation is not None and self.args.should_save:
            self.alternation.save(output_dir)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or self.scorer is None or not Path(checkpoint, CONFIG_NAME).is_file():
            return
        self.scorer.load_state_dict(TokenScorer.from_pretrained(checkpoint).state_dict())
        if self.alternation is not None:
            self.alternation.load(checkpoint)


class _ScorerStep(TrainerCallback):
    """Calls the scorer's steps around the model's optimizer step."""

    def __init__(self, trainer: UnlearnTrainer) -> None:
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
