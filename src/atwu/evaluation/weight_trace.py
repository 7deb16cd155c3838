"""What a run's token weights look like while it trains: word scores of some rows, and their agreement with the labels.

Watches from outside (a callback that reads the model between optimizer steps) and changes no number of the run.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import ConfigDict
from transformers.trainer_callback import TrainerCallback

from atwu._file_reading import read_declared
from atwu._files import write_json
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.auxiliary_logps import auxiliary_models_of
from atwu.evaluation.metrics.score_auroc import score_auroc
from atwu.evaluation.result import STRICT
from atwu.evaluation.teacher_forced import read_tokens
from atwu.evaluation.weighting_scores import ScoreContext, scored_weightings, token_scores
from atwu.evaluation.word_scores import word_scores

TRACE_NAME = "trace.json"
TRACE_SCHEMA: Final = "atwu.trace/1"


@dataclass(frozen=True, slots=True)
class TracedRow:
    """Word scores of one row over the run."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    set: str
    """`forget`, or `holdout` for a row that no model was trained on."""
    question: str
    answer: str
    forget_spans: tuple[tuple[int, int], ...] | None
    words: tuple[tuple[int, int], ...]
    """Character range of every word of `answer`."""
    scores: tuple[tuple[float | None, ...], ...]
    """One per word, for every traced step; None where no token overlaps the word."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A run's token weights over time."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    weighting: str
    """Its name."""
    steps: tuple[int, ...]
    """Optimizer steps done when it was looked; the first is 0."""
    rows: tuple[TracedRow, ...]
    auroc: Mapping[str, tuple[float | None, ...]]
    """`forget` and `holdout` -> mean AUROC within rows, for every traced step."""
    seconds: float = 0.0
    """Time that looking took, which is part of the run's training time."""
    schema: Literal["atwu.trace/1"] = TRACE_SCHEMA


def read_trace(path: str | Path) -> Trace:
    """Read what `WeightTrace` wrote.

    Raises:
        ValueError: it is not such a file.
    """
    return read_declared(path, Trace, TRACE_SCHEMA, what="trace", made_by="atwu study run")


class WeightTrace(TrainerCallback):
    """Looks at the weights at evenly spaced optimizer steps, the first and the last included.

    Args:
        trainer: the `UnlearnTrainer` it belongs to; its method's weighting must be one that this `watches`.
        path: file to write; a run that is resumed goes on with what is there. The finished trace is beside it, in `finished`.
        shown: how many rows of each kind keep their words; the others count for the AUROC only.
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
            name: auxiliary.logps(rows, device=trainer.args.device)  # which do not change while the run goes on
            for name, rows in self._encoded.items()
            if auxiliary is not None
        }
        self._retain = encoder.encode_rows(retain, what="retain").rows if retain else None
        self._retain_text = retain
        self._shown = shown
        self._looks: list[dict[str, Any]] = []

    @staticmethod
    def watches(weighting: str) -> bool:
        """Whether a weighting has a score to look at."""
        return weighting in scored_weightings() and weighting != "labels"

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        count = min(self._points, max(1, state.max_steps))
        self._when = {round(step) for step in np.linspace(0, state.max_steps, count + 1)}
        if self._path.is_file():
            kept = json.loads(self._path.read_text(encoding="utf-8"))["looks"]
            self._looks = [look for look in kept if look["step"] <= state.global_step]
        self._look(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero and state.global_step in self._when:
            self._look(state.global_step)
        self._keep(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._keep(state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.write(self.finished)

    def _keep(self, state: Any, control: Any) -> None:
        """Write down what was seen, just before a checkpoint is saved from which the run may be resumed."""
        if state.is_world_process_zero and control.should_save:
            write_json(self._path, {"looks": self._looks})

    def _look(self, step: int) -> None:
        if any(look["step"] == step for look in self._looks):
            return
        begun = time.perf_counter()
        look: dict[str, Any] = {"step": step, "auroc": {}, "scores": {}}
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
            )
            found = token_scores(context, [self._weighting])[self._weighting]
            words = [
                word_scores(example.answer, row.offsets, values)
                for example, row, values in zip(examples[: self._shown], tokens, found, strict=False)
            ]
            look["scores"][name] = [
                [None if word.score is None else round(word.score, 3) for word in row] for row in words
            ]
            values = [value for value in score_auroc(found, tokens).values if value is not None]
            look["auroc"][name] = round(float(np.mean(values)), 4) if values else None
        look["seconds"] = round(time.perf_counter() - begun, 3)
        self._looks.append(look)

    def write(self, path: str | Path) -> None:
        """Write the finished trace."""
        found = self.trace()
        write_json(path, {"schema": found.schema} | dataclasses.asdict(found))

    def trace(self) -> Trace:
        """What was seen."""
        rows = [
            TracedRow(
                set=name,
                question=example.question,
                answer=example.answer,
                forget_spans=example.forget_spans,
                words=tuple((word.start, word.end) for word in word_scores(example.answer, (), ())),
                scores=tuple(tuple(look["scores"][name][place]) for look in self._looks),
            )
            for name in self._encoded
            for place, example in enumerate(self._examples[name][: self._shown])
        ]
        return Trace(
            weighting=self._weighting,
            steps=tuple(look["step"] for look in self._looks),
            rows=tuple(rows),
            auroc={name: tuple(look["auroc"][name] for look in self._looks) for name in self._encoded},
            seconds=round(sum(look["seconds"] for look in self._looks), 3),
        )
