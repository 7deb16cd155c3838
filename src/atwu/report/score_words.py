"""Compute word scores for a model and rows, ready for the heat map."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation import weighting_scores
from atwu.evaluation.teacher_forced import read_tokens
from atwu.evaluation.weighting_scores import AuxiliaryModels, ScoreContext, find_auxiliary_models
from atwu.evaluation.word_scores import word_scores
from atwu.methods.weightings.token_scorer import TokenScorer, find_scorer
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.heatmap import HeatMap
from atwu.report.scored_row import ScoredRow
from atwu.training.training_rows import RowsInput, text_rows

logger = logging.getLogger(__name__)


def heat_map(
    model: str,
    rows: RowsInput,
    *,
    scores: Sequence[str] | None = None,
    retain: RowsInput | None = None,
    system: str | None = None,
    device: Any = None,
) -> HeatMap:
    """Show in colour which words of the answers a method weights; the same as `atwu tokens`.

    Args:
        model: the folder of a run (with its scorer), any other model, or a Hub name.
        rows: rows of any kind that `UnlearnTrainer` takes.
        scores: as for `atwu tokens --score`; by default all that the model allows, except labels.
        retain: retain rows, needed by `rarity` and similar weightings.
        system: system prompt for conversations without one.
        device: device of the model; by default the best available.

    Raises:
        ValueError: an unknown score, or one that needs a missing scorer, labels or retain rows.
    """
    examples = text_rows(rows, what="forget").examples or ()
    scored = score_rows(
        *open_model(model, ModelLoadArgs(), device=device),
        examples,
        scorer=find_scorer(model),
        auxiliary=find_auxiliary_models(model),
        retain=None if retain is None else text_rows(retain, what="retain").examples,
        scores=None if scores is None else {name: name for name in scores},
        system=system,
    )
    return HeatMap(scored)


def score_rows(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    scorer: TokenScorer | None = None,
    scores: Mapping[str, str] | None = None,
    retain: Sequence[Example] | None = None,
    auxiliary: AuxiliaryModels | None = None,
    max_length: int = 512,
    system: str | None = None,
    progress: str | None = None,
) -> list[ScoredRow]:
    """Score the words of every answer.

    Args:
        scores: displayed label -> name of a weighting; by default every score that can be computed, except labels.
        retain: retain rows, for the scores that count tokens of retain answers.
        auxiliary: SU-LLM's two models, for its selection.

    Raises:
        ValueError: an unknown score, or one that needs a missing scorer, labels or retain rows.
    """
    there = weighting_scores.met_needs(
        scorer=scorer is not None,
        labels=all(example.forget_spans is not None for example in examples),
        retain=bool(retain),
        auxiliary=auxiliary is not None,
    )
    if scores is None:
        scores = {name: name for name in weighting_scores.available(there) if name != "labels"}
    weighting_scores.check_scores(scores.values(), there)  # before the model is run
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    encoded = encoder.encode_rows(examples, what="rows")
    for warning in encoded.warnings:
        logger.warning(warning)
    rows = read_tokens(model, encoded.rows, scorer=scorer, progress=progress)
    kept = encoder.encode_rows(retain, what="retain").rows if retain else None
    asked = auxiliary if "model_difference" in scores.values() else None
    said = None if asked is None else asked.logps(encoded.rows, device=next(model.parameters()).device)
    context = ScoreContext(rows, encoded.rows, examples, retain=kept, retain_text=retain, auxiliary=said)
    found = weighting_scores.token_scores(context, dict.fromkeys(scores.values()))
    return [
        ScoredRow(
            question=example.question,
            answer=example.answer,
            words={
                label: tuple(word_scores(example.answer, row.offsets, found[name][index]))
                for label, name in scores.items()
            },
            forget_spans=example.forget_spans,
            index=index,
        )
        for index, (example, row) in enumerate(zip(examples, rows, strict=True))
    ]


def side_by_side(parts: Sequence[Sequence[ScoredRow]]) -> list[ScoredRow]:
    """Merge the scores of several models on the same rows."""
    return [
        replace(rows[0], words={label: words for row in rows for label, words in row.words.items()})
        for rows in zip(*parts, strict=True)
    ]
