"""One request from start to end: prepare, unlearn under watch, measure again, and judge."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._cache import cache_folder, place_for
from atwu.benchmarks.sources import LoadedRows, load_rows
from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.encode import Encoder
from atwu.data.render import with_system
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.evaluation.metrics.key_tokens import key_token_recall
from atwu.evaluation.result import EvalResult
from atwu.modeling.open_model import open_model
from atwu.request.auto_settings import LENGTH_OPTIONS, RATE_OPTION, eval_every
from atwu.request.controller import AdaptiveController, ControllerRows, Limits, read_history
from atwu.request.measurement import Reading, measure_model
from atwu.request.preparation import PreparedRequest, after_loading, chosen_options, prepare
from atwu.request.request_folder import RequestFolder
from atwu.request.unlearning_request import AUTO, DEFAULT_HOLDOUT, MAX_RETAIN_INCREASE, UnlearningRequest, flags
from atwu.request.verdict import (
    GENERAL,
    OTHER_PROMPTS,
    TEXTS,
    RequestVerdict,
    answers_after,
    decide_verdict,
    holdout_limit,
    training_goal,
)
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import load_checked_tokenizer
from atwu.training.method_trainer import MethodTrainer
from atwu.training.progress import Say, logged, silent
from atwu.training.sharding import broadcast_from_main
from atwu.training.unlearn_run import FinishedRun, ModelSource, run_unlearn

if TYPE_CHECKING:
    import pandas as pd


CONTROLLER_ROWS = 24
"""Rows of a set that are looked at while training."""


@dataclass(frozen=True, slots=True)
class UnlearnResult:
    """What a request left."""

    verdict: RequestVerdict
    run: FinishedRun | None
    """None if there was nothing to do."""
    before: EvalResult
    """The starting model, on the rows of the request."""
    after: EvalResult | None
    """The model that it left, on the same rows; None if there was nothing to do."""

    @property
    def good(self) -> bool:
        """Whether the request is honoured."""
        return self.verdict.good

    def summary(self) -> str:
        """The verdict with its numbers, for a terminal."""
        return self.verdict.text()

    def to_pandas(self) -> pd.DataFrame:
        """One row per measure and set, before and after."""
        return self.verdict.to_pandas()

    def _repr_html_(self) -> str:
        return self.verdict._repr_html_()


def unlearn(
    model: str | ModelSource,
    forget: str,
    *,
    output: str | Path,
    retain: str = AUTO,
    options: Mapping[str, Any] | None = None,
    auto_memory: bool = False,
    holdout: str = DEFAULT_HOLDOUT,
    max_retain_increase: float = MAX_RETAIN_INCREASE,
    thresholds: str | Path | None = None,
    about: str | None = None,
    overwrite: bool = False,
    say: Say = logged,
) -> UnlearnResult:
    """Unlearn rows from a model, and say what became of it; the same as `atwu unlearn`.

    Of several processes the first one measures and writes, and tells the others.

    Args:
        model: the starting model: a folder, a Hub name, `smollm2`, a GGUF file; or with how it is read.
        forget: source of the rows to remove (`load_rows`).
        output: folder to create.
        retain: source of the rows to keep, or `auto`: the model's own answers to general questions.
        options: of `UnlearnConfig`; all others are chosen. With a number of steps or epochs, exactly these are taken; with a
            learning rate, it stays; with both, nothing is chosen.
        auto_memory: let memory choose between all weights, adapters and what spares memory, even with both.
        holdout: source of rows like the forget rows that no model saw.
        max_retain_increase: most that the loss of rows that should stay may rise, in nats per token.
        thresholds: YAML with the limits that `evidence` compares with, written down before training; by default those that
            are shipped.
        about: who asks for what, in words, for `evidence`.
        overwrite: replace a finished run that is there.
        say: receives one line of plain text per stage, in the first process.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    return run_request(
        UnlearningRequest(
            source=model if isinstance(model, ModelSource) else ModelSource(model=model),
            forget_set=load_rows(forget),
            output=Path(output),
            retain=retain,
            options=dict(options or {}),
            auto_memory=auto_memory,
            holdout=holdout,
            max_retain_increase=max_retain_increase,
            thresholds=thresholds,
            about=about,
        ),
        overwrite=overwrite,
        say=say,
    )


def run_request(
    request: UnlearningRequest, *, overwrite: bool = False, begin: Callable[[], object] | None = None, say: Say = logged
) -> UnlearnResult:
    """Do what was asked, from where it stands.

    Args:
        begin: called in the first process once the request is known to be sound, before anything is trained.
    """
    config, folder = UnlearnConfig(**request.options), RequestFolder(request.output)
    if not config.learning_rate:
        raise ValueError("learning_rate must be above 0: a frozen model forgets nothing.")
    # Read before anything is done, in every process the same.
    _ = request.retain_set, request.threshold_limits
    first = config.process_index == 0
    say = say if first else silent
    with folder.alone() if first else contextlib.nullcontext():

        def prepared_here() -> PreparedRequest:
            found = prepare(request, folder, config, overwrite=overwrite, say=say)
            if begin is not None:
                begin()
            return found

        prepared = broadcast_from_main(config, prepared_here)
        if prepared.stage == "nothing to forget":
            assert prepared.verdict is not None
            return UnlearnResult(prepared.verdict, None, prepared.before, None)
        assert prepared.record is not None
        final, kept = UnlearnConfig(**chosen_options(request, prepared.record.choices)), _kept(prepared, request)
        if prepared.stage != "begun":
            record = folder.run()
            finished = FinishedRun(folder.output, record["train_seconds"], record["steps"], record["resumed_from_step"])
        else:
            try:
                finished = run_unlearn(
                    request.source,
                    final,
                    forget=request.forget_set,
                    retain=kept,
                    output=request.output,
                    overwrite=overwrite,
                    watch=lambda trainer: [_watch(trainer, request, prepared, final, folder, say)],
                    say=say,
                )
            except ValueError:  # of the settings, which another command will change
                if first and not folder.has_something_to_lose():
                    folder.discard()
                raise
        if prepared.stage == "judged":
            assert prepared.verdict is not None
            return UnlearnResult(prepared.verdict, finished, prepared.before, prepared.after)
        verdict, after = broadcast_from_main(config, lambda: _judge(request, folder, prepared, final, kept, say))
        return UnlearnResult(verdict, finished, prepared.before, after)


def _watch(
    trainer: MethodTrainer,
    request: UnlearningRequest,
    prepared: PreparedRequest,
    config: UnlearnConfig,
    folder: RequestFolder,
    say: Say,
) -> AdaptiveController:
    """What steers the run."""
    given = () if request.retain == AUTO else (RETAIN,)  # own answers that are trained on say little
    names = (FORGET, OTHER_PROMPTS, GENERAL, TEXTS, *given)
    seen = {name: evenly_spaced(prepared.sets[name], CONTROLLER_ROWS) for name in names if prepared.sets[name]}
    batch, before = config.per_device_train_batch_size * config.gradient_accumulation_steps, prepared.before
    return AdaptiveController(
        trainer,
        _watched(seen, load_checked_tokenizer(request.source), config),
        Limits(
            training_goal(before, "key_token_probability"),
            holdout_limit(before, "key_token_accuracy") or 0.0,
            holdout_limit(before, "key_token_recall") or 0.0,  # where no row is a question, nothing is said
            request.max_retain_increase,
        ),
        every=eval_every(math.ceil(len(request.rows) / batch)),
        adapt=RATE_OPTION not in request.options,
        stop=not any(name in request.options for name in LENGTH_OPTIONS),
        history_file=folder.history,
        say=say,
    )


def _judge(
    request: UnlearningRequest,
    folder: RequestFolder,
    prepared: PreparedRequest,
    config: UnlearnConfig,
    kept: LoadedRows | None,
    say: Say,
) -> tuple[RequestVerdict, EvalResult]:
    """Measure what the run left, and write the verdict."""
    assert prepared.record is not None
    model, tokenizer = open_model(str(folder.output), after_loading(request.source), device=config.device)
    say("measuring the unlearned model on the same rows")
    after = measure_model(model, tokenizer, prepared.sets, Reading(config.system, config.max_length), name="after")
    verdict = decide_verdict(
        prepared.before,
        after,
        answers=answers_after(prepared.record.sample_answers, after, prepared.sets),
        limit=request.max_retain_increase,
        rise=read_history(folder.history).retain_loss_increase,
        then=_then(folder.output, request, None if kept is None else kept.source, config.system),
    )
    verdict.write(folder.output)
    folder.close(after)
    return verdict, after


def _kept(prepared: PreparedRequest, request: UnlearningRequest) -> LoadedRows | None:
    """The rows to keep; those that were made are written into the cache."""
    if prepared.generated_retain is None:
        return request.retain_set
    path = place_for(cache_folder() / "retain") / f"{fingerprint(prepared.generated_retain)[:16]}.jsonl"
    write_rows(path, prepared.generated_retain)
    return LoadedRows(prepared.generated_retain, str(path), ())


def _watched(seen: Mapping[str, Sequence[Example]], tokenizer: Any, config: UnlearnConfig) -> ControllerRows:
    """What looks are taken at: the sets to forget, and those that should stay."""
    encoder = Encoder(tokenizer, max_length=config.max_length, system=config.system)
    encoded = {name: encoder.encode_rows(rows, what=name).rows for name, rows in seen.items()}
    leaving = [name for name in (FORGET, OTHER_PROMPTS) if name in seen]

    def said(model: Any) -> float:
        return max(_said(model, tokenizer, seen[name], config) for name in leaving)

    return ControllerRows(
        tuple((seen[name], encoded[name]) for name in leaving),
        tuple(rows for name, rows in encoded.items() if name not in leaving),
        said,
    )


def _then(output: Path, request: UnlearningRequest, retain: str | None, system: str | None) -> tuple[str, ...]:
    """Commands that look further."""
    sets = flags({"forget": request.forget, "retain": retain, "system": system})
    return (
        shlex.join(["atwu", "chat", str(output), "--beside", str(request.source.model)]),
        shlex.join(["atwu", "evaluate", "--model", str(output), *sets, "--output", "eval.json"]),
        shlex.join(["atwu", "evidence", str(output)]),
    )


def _said(model: Any, tokenizer: Any, rows: Sequence[Example], config: UnlearnConfig) -> float:
    """Mean share of telling words in a model's greedy answers; 0 where no row is a question."""
    request = [row for row in rows if row.messages]
    made = generate_all(
        TransformersGenerator(model, tokenizer),
        [Prompt(with_system(row.messages, config.system)) for row in request],
        Decoding(),
    )
    shares = [key_token_recall(row, answer.text) for row, answer in zip(request, made, strict=True)]
    known = [share for share in shares if share is not None]
    return sum(known) / max(len(known), 1)
