"""What a run has before its first step: the scorer it starts with, and what steps look up by row."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from atwu._cache import short_hash
from atwu._files import file_digest
from atwu.data.encode import EncodedRow
from atwu.methods.part import FixedWeighting
from atwu.methods.recipe import Recipe
from atwu.methods.seen import BeforeTraining, FloatArray, Given
from atwu.methods.weightings.combine import Combination, combined
from atwu.methods.weightings.learned import LearnedScores
from atwu.methods.weightings.rarity import TokenCounts
from atwu.methods.weightings.scorer import CONFIG_NAME, WEIGHTS_NAME, TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import LayoutChoice
from atwu.modeling.load import load_model
from atwu.modeling.named import model_source
from atwu.modeling.reference import TokenTable, Wanted
from atwu.training.references import References, StartingModel
from atwu.training.rows import UnlearningRows

AUXILIARY = ("auxiliary_forget", "auxiliary_retain")


@dataclass(frozen=True, slots=True)
class LookUps:
    """What a step looks up by row."""

    references: References
    fixed: Mapping[str, TokenTable]
    """Weights that never change, by name of the weighting."""
    text: TokenTable
    """True on counted tokens of the answers' text, False on terminal tokens."""
    offsets: TokenTable | None
    """What the scorer's prior adds to its logits."""
    refusal_ids: tuple[int, ...]
    """Tokens of the refusal that the forget loss aims at."""

    def given(self, model: nn.Module, inputs: Mapping[str, Any], *, layout: LayoutChoice) -> Given:
        """What the loss of a micro-batch needs besides the rows."""
        rows, device = inputs["rows"], inputs["rows"].device
        return Given(
            self.references.of(model, inputs, device, layout=layout),
            {name: table.rows(rows).to(device) for name, table in self.fixed.items()},
            score_offset=self.offset(inputs),
            refusal_ids=self.refusal_ids,
        )

    def offset(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """What is added to the logits of a micro-batch's scores, (tokens,)."""
        rows = inputs["rows"]
        return None if self.offsets is None else self.offsets.rows(rows).to(rows.device)

    def labels(self, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Secret-token labels and mask of the answers' text, without the terminal token, on the shifted axis."""
        mask = TokenBatch.of(inputs["forget"]).mask
        text = torch.zeros_like(mask).masked_scatter(mask, self.text.rows(inputs["rows"]).to(mask.device))
        return inputs["forget"]["token_labels"][:, 1:] > 0, text

    def selected(self, inputs: Mapping[str, Any]) -> float:
        """Tokens that the one fixed weighting selects."""
        (table,) = self.fixed.values()
        return float(table.rows(inputs["rows"]).sum())


def read_besides(recipe: Recipe) -> dict[str, str]:
    """What tells one from another: what a run reads besides its model and rows, and what its method is."""
    plain, folders = recipe.as_plain(), {"scorer_from", *AUXILIARY}
    # What lies in a folder counts, not where it is.
    plain["settings"] = {name: value for name, value in recipe.settings.items() if name not in folders}
    found = {"recipe": short_hash(plain)}
    if "scorer_from" in recipe.settings:
        folder = Path(recipe.settings["scorer_from"])
        found["scorer_from"] = file_digest(*(folder / name for name in (WEIGHTS_NAME, CONFIG_NAME)))
    return found | {name: _model_digest(recipe.settings[name]) for name in AUXILIARY if name in recipe.settings}


def _model_digest(name: str) -> str:
    """Digest of the weights in a folder; of a model on the Hub name and commit."""
    from transformers.utils.hub import cached_file, extract_commit_hash

    source = model_source(name)
    if files := sorted(Path(source).glob("*.safetensors")):
        return file_digest(*files)
    return f"{source}@{extract_commit_hash(cached_file(source, 'config.json'), None)}"


def text_table(rows: Sequence[EncodedRow]) -> TokenTable:
    """True on counted tokens of the answers' text, False on terminal tokens."""
    marks, lengths = bytearray(), array("q")
    for row in rows:
        counted = row.counted(row.answer_offsets)
        marks.extend(offset is not None for offset in counted)
        lengths.append(len(counted))
    return TokenTable(torch.frombuffer(marks, dtype=torch.bool), lengths)


def fixed_tables(recipe: Recipe, rows: UnlearningRows, start: StartingModel) -> dict[str, TokenTable]:
    """One table per fixed weighting of the recipe, by its name; two that are combined give one, by the name of both."""
    given = BeforeTraining(
        forget=rows.forget.rows,
        retain=None if rows.retain is None else rows.retain.rows,
        forget_text=rows.forget.examples,
        retain_text=None if rows.retain is None else rows.retain.examples,
        ref_logps=lambda: _per_row(start.read(rows.forget.rows, Wanted(logps=True), what="forget")["logps"]),
        logps_of=lambda folder: _logps_of_model(folder, rows.forget.rows, start),
    )
    found = {
        name: weighter.once(given)
        for name, weighter in zip(recipe.weighting_names, recipe.weighters, strict=True)
        if isinstance(weighter, FixedWeighting)
    }
    if recipe.combination is not None and len(found) == 2:
        return {recipe.weighting: _table(_row_by_row(*found.values(), how=recipe.combination))}
    return {name: _table(rows) for name, rows in found.items()}


def _row_by_row(first: Iterable[FloatArray], second: Iterable[FloatArray], *, how: Combination) -> Iterator[FloatArray]:
    """Two fixed weightings as one."""
    for pair in zip(first, second, strict=True):
        one, other = (torch.as_tensor(weights)[None] for weights in pair)
        yield combined(one, other, torch.ones_like(one, dtype=torch.bool), how=how)[0].numpy()


def _table(rows: Iterable[FloatArray]) -> TokenTable:
    flat, lengths = bytearray(), array("q")
    for row in rows:
        flat += np.asarray(row, dtype=np.float32).tobytes()
        lengths.append(len(row))
    return TokenTable(torch.frombuffer(flat, dtype=torch.float32), lengths)


def _logps_of_model(name: str, rows: Sequence[EncodedRow], start: StartingModel) -> list[FloatArray]:
    """Log-probabilities of each row's counted tokens under another model, which is loaded and dropped."""
    model = load_model(name).to(next(start.model.parameters()).device)
    vocabulary = int(start.model.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]
    largest = max(max(row.input_ids) for row in rows)
    if vocabulary != (own := int(model.config.get_text_config().vocab_size)) or largest >= own:
        raise ValueError(
            f"{name} has a vocabulary of {own}, the model about to unlearn one of {vocabulary}; "
            "auxiliary models share its tokenizer."
        )
    other = StartingModel(model, start.folder, nullcontext, progress=start.progress, name=Path(name).name, adapted=True)
    return _per_row(other.read(rows, Wanted(logps=True), what="forget")["logps"])


def _per_row(table: TokenTable) -> list[FloatArray]:
    """The rows of a table of one number per token."""
    return [table.rows([index]).double().numpy() for index in range(len(table))]


def starting_scorer(how: LearnedScores, width: int, rows: UnlearningRows) -> TokenScorer:
    """The scorer before its first update; the rows give the prior.

    Raises:
        FileNotFoundError: `scorer_from` holds no scorer.
        ValueError: it belongs to a model of another width.
    """
    if how.scorer_from is not None:
        scorer = TokenScorer.from_pretrained(how.scorer_from)
        check_width(how.scorer_from, scorer, width)
        return scorer
    prior = None
    if how.scorer_prior == "rarity":
        assert rows.retain is not None
        prior = TokenCounts.of(rows.retain.rows)
    return TokenScorer(
        width,
        bias=how.scorer_bias,
        hidden_position=how.hidden_position,  # type: ignore[arg-type]
        prior=prior,
        prior_strength=how.scorer_prior_strength,
    )


def check_width(folder: str, scorer: TokenScorer, width: int) -> None:
    """Refuse a scorer that reads hidden states of another width than the model's.

    Raises:
        ValueError: naming both.
    """
    if scorer.linear.in_features != width:
        raise ValueError(
            f"the scorer in {folder} reads hidden states of width {scorer.linear.in_features}, "
            f"this model's have {width}; it belongs to another base model."
        )


def prior_offsets(scorer: TokenScorer | None, rows: Sequence[EncodedRow]) -> TokenTable | None:
    """What the scorer's prior adds to the logit of each counted token, or None without a prior."""
    if scorer is None or scorer.prior is None:
        return None
    return _table(offset.numpy() for row in rows if (offset := scorer.offset(row)) is not None)
