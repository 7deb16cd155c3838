"""Trace token weights during training: word scores of some rows, and their AUROC against labels.

A callback reads the model between optimizer steps; it does not change the run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers.trainer_callback import TrainerCallback

from atwu._file_reading import read_object
from atwu._files import write_json
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.metrics.score_auroc import score_auroc
from atwu.evaluation.teacher_forced import read_tokens
from atwu.evaluation.weighting_scores import (
    SIMPLE_NOUNS,
    ScoreContext,
    auxiliary_models_of,
    scored_weightings,
    token_scores,
)
from atwu.evaluation.word_scores import Trace, TracedRow, word_scores


class WeightTrace(TrainerCallback):
    """Record token weights at evenly spaced optimizer steps, including the first and the last.

    Args:
        trainer: The `UnlearnTrainer` to trace; `supports` must be true for its weighting.
        path: File for intermediate records; a resumed run continues it. The finished trace is written to `finished`.
        shown: Number of rows of each kind that keep word scores; the others only count for the AUROC.
    """

    def __init__(
        self,
        trainer: Any,
        path: Path,
        tokenizer: Any,
        *,
        forget: Sequence[Example],
        holdout: Sequence[Example] = (),
        retain: Sequence[Example] = (),
        shown: int = 8,
        points: int = 20,
    ) -> None:
        self._trainer, self._path, self._points = trainer, path, points
        self.finished = path.with_suffix(".finished")
        self._weighting = trainer.recipe.weighting
        self._examples = {"forget": list(forget), "holdout": list(holdout)}
        encoder = Encoder(tokenizer, max_length=trainer.args.max_length, system=trainer.args.system)
        self._encoded: dict[str, Sequence[EncodedRow]] = {
            name: encoder.encode_rows(rows, what=name).rows for name, rows in self._examples.items() if rows
        }
        auxiliary = auxiliary_models_of(trainer.recipe.settings)
        self._auxiliary = {
            name: auxiliary.logps(rows, device=trainer.args.device)  # constant during the run
            for name, rows in self._encoded.items()
            if auxiliary is not None
        }
        self._retain: Sequence[EncodedRow] | None = None
        if retain:
            self._retain = encoder.encode_rows(retain, what="retain").rows
        self._retain_text = retain
        self._shown = shown
        self._records: list[dict[str, Any]] = []

    @staticmethod
    def supports(weighting: str) -> bool:
        return weighting in scored_weightings() and weighting != "labels"

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        count = min(self._points, max(1, state.max_steps))
        self._when = {round(step) for step in np.linspace(0, state.max_steps, count + 1)}
        # A run that resumes from a checkpoint repeats the steps behind it.
        if self._path.is_file():
            stored = read_object(self._path)["looks"]
            self._records = [record for record in stored if record["step"] <= state.global_step]
        self._record(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero and state.global_step in self._when:
            self._record(state.global_step)
        self._save(state, control)

    # With the save strategy "epoch", transformers asks for a checkpoint here and not at a step.
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._save(state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            trace = self.trace()
            write_json(self.finished, {"schema": trace.schema} | dataclasses.asdict(trace))

    def _save(self, state: Any, control: Any) -> None:
        """Write the records just before a checkpoint from which the run may resume."""
        if state.is_world_process_zero and control.should_save:
            write_json(self._path, {"looks": self._records})

    def _record(self, step: int) -> None:
        # A resumed run begins at a step that it may have recorded.
        if any(record["step"] == step for record in self._records):
            return
        begun = time.perf_counter()
        record: dict[str, Any] = {"step": step, "auroc": {}, "scores": {}}
        for name, encoded in self._encoded.items():
            examples = self._examples[name]
            tokens = read_tokens(self._trainer.model, encoded, scorer=self._trainer.scorer)
            context = ScoreContext(
                tokens,
                encoded,
                examples,
                retain=self._retain,
                retain_text=self._retain_text,
                auxiliary=self._auxiliary.get(name),
                noun_finder=str(self._trainer.recipe.settings.get("noun_finder", SIMPLE_NOUNS)),
            )
            scores = token_scores(context, [self._weighting])[self._weighting]
            words = [
                word_scores(example.answer, row.offsets, values)
                for example, row, values in zip(examples[: self._shown], tokens, scores, strict=False)
            ]
            # Three digits, since the scores are only displayed.
            record["scores"][name] = [
                [None if word.score is None else round(word.score, 3) for word in row] for row in words
            ]
            values = [value for value in score_auroc(scores, tokens) if value is not None]
            record["auroc"][name] = None
            if values:
                record["auroc"][name] = round(float(np.mean(values)), 4)
        record["seconds"] = round(time.perf_counter() - begun, 3)
        self._records.append(record)

    def trace(self) -> Trace:
        rows = [
            TracedRow(
                set=name,
                question=example.question,
                answer=example.answer,
                forget_spans=example.forget_spans,
                words=tuple((word.start, word.end) for word in word_scores(example.answer, (), ())),
                scores=tuple(tuple(record["scores"][name][place]) for record in self._records),
            )
            for name in self._encoded
            for place, example in enumerate(self._examples[name][: self._shown])
        ]
        return Trace(
            weighting=self._weighting,
            steps=tuple(record["step"] for record in self._records),
            rows=tuple(rows),
            auroc={name: tuple(record["auroc"][name] for record in self._records) for name in self._encoded},
            seconds=round(sum(record["seconds"] for record in self._records), 3),
        )
