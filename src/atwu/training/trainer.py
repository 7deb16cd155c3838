"""`UnlearnTrainer`: every method of the table through one loss, on transformers' `Trainer`."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers.trainer_callback import TrainerCallback

from atwu.data.collate import PairCollator
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.pairing import PairedDataset
from atwu.data.rows import parse_row
from atwu.data.schema import Example
from atwu.modeling.batches import TokenBatch
from atwu.objective import Denominators, recipe_loss
from atwu.training.alternate import ScorerAlternation
from atwu.training.base import TokenTrainer
from atwu.training.config import UnlearnConfig
from atwu.weighting.scorer import TokenScorer

Rows = Iterable[Example] | Iterable[Mapping[str, Any]] | Sequence[EncodedRow]


def encode_dataset(rows: Rows, tokenizer: Any, *, what: str, max_length: int) -> tuple[EncodedRow, ...]:
    """Encode rows of any accepted kind; what had to be changed is said in a warning.

    Args:
        rows: `Example`s, mappings with the columns of the data formats (a Hub data set is one), or rows already encoded.
        tokenizer: a fast tokenizer; not needed for encoded rows.
        what: name of the set in messages.
        max_length: longest row in tokens.

    Raises:
        ValueError: no rows, a malformed row, or no tokenizer.
    """
    listed = list(rows)
    if not listed:
        raise ValueError(f"the {what} set is empty; give at least one row.")
    if all(isinstance(row, EncodedRow) for row in listed):
        return tuple(listed)  # type: ignore[arg-type]
    if tokenizer is None:
        raise ValueError(f"the {what} set holds text; give the tokenizer as processing_class.")
    examples = [
        row if isinstance(row, Example) else parse_row(row, where=f"{what} set, row {index + 1}")  # type: ignore[arg-type]
        for index, row in enumerate(listed)
    ]
    encoded = Encoder(tokenizer, max_length=max_length).encode_rows(examples, what=what)
    for warning in encoded.warnings:
        warnings.warn(warning, stacklevel=2)
    return encoded.rows


def without_labels(rows: Sequence[EncodedRow]) -> tuple[EncodedRow, ...]:
    """Rows without secret-token labels, for a set where nothing uses them or only some rows have them."""
    return tuple(dataclasses.replace(row, token_labels=None) for row in rows)


class UnlearnTrainer(TokenTrainer):
    """Unlearn a forget set while keeping a retain set.

    The loss is already divided by the token counts of the whole optimizer step (all micro-batches, all processes), so batch
    8 x 1 accumulation step equals 1 x 8. Logged per optimizer step: `loss`, `forget_loss`, `retain_loss`, `mean_score`
    (mean token weight), `selected` (share of tokens with weight above 1/2) and, on scorer steps, `scorer_loss`.

    Args:
        model: the causal language model to change.
        args: the run's configuration.
        forget_dataset: rows to remove.
        retain_dataset: rows to keep; required unless the method has no retain loss.
        processing_class: the model's tokenizer.
        scorer: start from this scorer instead of an untrained one.
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
        callbacks: list[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        self.recipe = args.recipe()
        if self.recipe.needs_retain and retain_dataset is None:
            raise ValueError(f"method {self.recipe.name!r} needs a retain_dataset; give one or set retain_loss='none'.")
        forget = encode_dataset(forget_dataset, processing_class, what="forget", max_length=args.max_length)
        if missing := sum(row.token_labels is None for row in forget):
            if self.recipe.weighter.needs_labels:
                raise ValueError(
                    f"weighting {self.recipe.weighting!r} needs forget_spans; {missing} of {len(forget)} rows have none."
                )
            forget = without_labels(forget)
        retain = None
        if self.recipe.needs_retain and retain_dataset is not None:
            retain = encode_dataset(retain_dataset, processing_class, what="retain", max_length=args.max_length)
            retain = without_labels(retain)
        seed = args.data_seed if args.data_seed is not None else args.seed
        pad_id = getattr(processing_class, "pad_token_id", None)
        super().__init__(
            model,
            args,
            train_dataset=PairedDataset(forget, retain, seed),
            data_collator=PairCollator(0 if pad_id is None else pad_id),
            processing_class=processing_class,
            callbacks=callbacks,
            **kwargs,
        )
        self.alternation: ScorerAlternation | None = None
        if self.recipe.weighter.needs_scorer:
            scorer = scorer or TokenScorer(
                model.config.get_text_config().hidden_size,  # type: ignore[union-attr, operator]
                bias=bool(args.scorer_bias),
                hidden_position=args.hidden_position,  # type: ignore[arg-type]
            )
            self.alternation = ScorerAlternation(
                scorer.to(args.device), self.recipe, args, reduce=self._sum_over_processes
            )
            self.add_callback(_ScorerStep(self))

    @property
    def scorer(self) -> TokenScorer | None:
        """The token scorer, for methods with learned weights."""
        return self.alternation.scorer if self.alternation is not None else None

    def _count(self, batches: Sequence[Any]) -> dict[str, float]:
        counts = {"forget_tokens": sum(_counted(batch["forget"]) for batch in batches)}
        if self.recipe.needs_retain:
            counts["retain_tokens"] = sum(_counted(batch["retain"]) for batch in batches)
        if self.recipe.forgetter.over_selected:
            counts["selected"] = sum(_selected(batch["forget"]) for batch in batches)
        return counts

    def _token_loss(self, model: nn.Module, inputs: Any, denominators: Denominators) -> Tensor:
        result = recipe_loss(
            model,
            inputs["forget"],
            inputs.get("retain"),
            self.recipe,
            scorer=self.scorer,
            denominators=denominators,
            layout=self.args.layout,  # type: ignore[arg-type]
        )
        tokens = denominators.forget_tokens or float(result.mask.sum())
        self._add_part("forget_loss", result.forget)
        if result.retain is not None:
            self._add_part("retain_loss", result.retain)
        self._add_part("mean_score", result.token_weights.sum() / tokens)
        self._add_part("selected", (result.token_weights > 0.5).sum() / tokens)
        if self.alternation is not None and model.training and self.alternation.due(self.state.global_step):
            self.alternation.collect(result)
        return result.loss

    def _scorer_step(self) -> None:
        if self.alternation is not None and self.alternation.due(self.state.global_step):
            planned = self.state.max_steps // self.args.scorer_every
            # Every process has the same value; logged parts are summed over processes.
            self._add_part("scorer_loss", self.alternation.step(planned) / self.args.world_size)

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
        if self.alternation is not None and checkpoint is not None:
            self.alternation.load(checkpoint)


class _ScorerStep(TrainerCallback):
    """Calls the scorer step right after the model's optimizer step."""

    def __init__(self, trainer: UnlearnTrainer) -> None:
        self._trainer = trainer

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer._scorer_step()


def _counted(batch: Mapping[str, Tensor]) -> float:
    return float(TokenBatch.of(batch).mask.sum())


def _selected(batch: Mapping[str, Tensor]) -> float:
    return float((batch["token_labels"][:, 1:] * TokenBatch.of(batch).mask).sum())
