"""Run an unlearning request: prepare, train with the adaptive controller, measure again, and decide the verdict."""

from __future__ import annotations

import contextlib
import gc
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from atwu._cache import cache_folder, writable_folder
from atwu._command import command_line, program
from atwu._file_reading import read_object
from atwu._manifest import RECORD_NAME
from atwu.benchmarks.base import LoadedRows, evenly_spaced
from atwu.benchmarks.sources import load_rows, with_columns
from atwu.data.encode import Encoder
from atwu.data.general_rows import general_text
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.facts.fact_table import GENERAL, FactTable, join_tables, mark_unreadable
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics.key_tokens import known_notes, known_probabilities
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.teacher_forced import OriginalReader
from atwu.modeling.layers import bfloat16_weights, full_precision
from atwu.modeling.open_model import open_model
from atwu.request.answer_check import AnswerCheck
from atwu.request.asked_rows import ask_for_rows, asked_source
from atwu.request.auto_settings import LENGTH_OPTIONS, RATE_OPTION, eval_every, with_method
from atwu.request.controller import AdaptiveController
from atwu.request.earlier_requests import not_asked, recheck_requests, total_cost
from atwu.request.goal_evaluations import ControllerRows, GoalEvaluations, read_history
from atwu.request.measurement import RowEncoding, ask_in_cheap_states, ask_model, untested
from atwu.request.neighbours import find_neighbours
from atwu.request.preparation import PreparedRequest, after_loading, chosen_options, prepare
from atwu.request.request_defaults import AUTO, DEFAULT_HOLDOUT, MAX_RETAIN_INCREASE
from atwu.request.request_folder import RequestFolder
from atwu.request.row_facts import ModelReader
from atwu.request.unlearning_request import (
    UnlearningRequest,
    UnlearnResult,
    check_arguments,
    flags,
)
from atwu.request.verdict import RequestVerdict, decide
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import load_checked_tokenizer
from atwu.training.method_trainer import MethodTrainer
from atwu.training.progress import Say, logged, silent
from atwu.training.run_folder import RunFolder
from atwu.training.saving_trainer import broadcast_from_main
from atwu.training.unlearn_run import FinishedRun, ModelSource, inputs_of_unlearning, publish_run, train_run

CONTROLLER_ROWS = 24
"""Retain rows of a set of which an evaluation measures the loss, and forget rows that a check of answers asks for, at most."""


def unlearn(
    model: str | Path | ModelSource,
    forget: str | Path | LoadedRows | Iterable[Any] | None = None,
    *,
    about: str | Sequence[str] | None = None,
    kind: str | None = None,
    output: str | Path,
    retain: str | Path | LoadedRows | Iterable[Any] = AUTO,
    options: Mapping[str, Any] | None = None,
    auto_memory: bool = False,
    holdout: str | Path | LoadedRows | Iterable[Any] = DEFAULT_HOLDOUT,
    max_retain_increase: float = MAX_RETAIN_INCREASE,
    request_note: str | None = None,
    columns: Mapping[str, str] | None = None,
    overwrite: bool = False,
    say: Say = logged,
) -> UnlearnResult:
    """Unlearn a forget set from a model and decide the verdict; the same as `atwu unlearn`.

    In a distributed run the first process measures and writes, and broadcasts the results.

    Args:
        model: the original model: a folder, a Hub name, `smollm2` or a GGUF file; a `ModelSource` also says how to load it.
        forget: forget rows, or their source (`load_rows`), such as a document (.txt, .md) that is to be recited no more; or a
            .txt file with one question a line, which the model answers.
        about: in place of `forget`: a name, or several, about which the model is asked. What it says is written into the
            folder of the run (`request/rows.jsonl`), and forgotten.
        kind: what the names are, such as person; by default what the model says they are.
        output: folder to create.
        retain: retain rows, their source, or `auto`: the model's self-generated answers to general questions.
        options: options of `UnlearnConfig`; all others are chosen. A given number of steps or epochs is taken exactly; a given
            learning rate is not adapted; with both, nothing is chosen.
        auto_memory: choose between full fine-tuning, adapters and memory-saving options by the free memory, even with both.
        holdout: rows like the forget rows that the model was not trained on, or their source: `evidence` asks for them,
            too, and texts among them tell how much of a text is recited by chance.
        max_retain_increase: largest accepted increase of the retain loss, in nats/token.
        request_note: description of the request and who made it, for `evidence`.
        columns: field -> column of the given rows and row files, see `load_rows`.
        overwrite: replace a finished run at `output`.
        say: receives one line of plain text per stage, in the first process.

    Raises:
        TypeError, ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    check_arguments(
        output=output,
        options=options,
        auto_memory=auto_memory,
        max_retain_increase=max_retain_increase,
        request_note=request_note,
        columns=columns,
        overwrite=overwrite,
    )
    if isinstance(model, Path):
        model = str(model)
    source = model
    if not isinstance(source, ModelSource):
        source = ModelSource(model=source)
    asked = None
    to_ask = asked_source(forget, about=about, kind=kind)
    if to_ask is None:
        forget_set = load_rows(cast(Any, forget), columns=columns)
    else:
        if columns:
            raise ValueError("columns has no effect without rows: names and questions have none.")
        config = UnlearnConfig(**with_method(options or {}))
        tell = say
        if config.process_index != 0:
            tell = silent
        asked = broadcast_from_main(
            config, lambda: ask_for_rows(to_ask, source, config, output, overwrite=overwrite, say=tell)
        )
        forget_set = asked.forget
    return run_request(
        UnlearningRequest(
            source=source,
            forget_set=forget_set,
            asked=asked,
            output=Path(output),
            retain=_source_of(retain, columns),
            options=dict(options or {}),
            auto_memory=auto_memory,
            holdout=_source_of(holdout, columns),
            max_retain_increase=max_retain_increase,
            request_note=request_note,
        ),
        overwrite=overwrite,
        say=say,
    )


def _source_of(rows: str | Path | LoadedRows | Iterable[Any], columns: Mapping[str, str] | None) -> str:
    """Return the source of rows; those that were given as a list are stored in the cache."""
    if not isinstance(rows, str):
        return load_rows(rows, columns=columns).source
    if columns:
        return with_columns(rows, columns)
    return rows


def run_request(request: UnlearningRequest, *, overwrite: bool = False, say: Say = logged) -> UnlearnResult:
    """Run a request, or continue it from where it was interrupted."""
    config = UnlearnConfig(**with_method(request.options, request.rows))
    if not config.learning_rate:
        raise ValueError("learning_rate must be above 0: without training the model forgets nothing.")
    if config.forget_leaks and any(name in request.options for name in (RATE_OPTION, *LENGTH_OPTIONS)):
        raise ValueError(
            "forget_leaks needs an adaptive run; leave out the learning rate and the number of steps and epochs."
        )
    # Every process reads the same files, before anything changes.
    _ = request.retain_set, request.earlier
    first = config.process_index == 0
    say = say if first else silent
    for warning in request.forget_set.warnings:
        say(f"warning: {warning}")
    rows = {"retain rows": request.retain, "holdout rows": request.holdout}
    if request.asked is None:
        rows["forget rows"] = request.forget
    inputs = inputs_of_unlearning(request.source, config, rows)
    folder = RunFolder(request.output, overwrite=overwrite, inputs=inputs)
    files = RequestFolder(folder.work)
    with folder.alone() if first else contextlib.nullcontext():
        prepared = broadcast_from_main(config, lambda: prepare(request, folder, config, say=say))
        if isinstance(prepared, UnlearnResult):
            return prepared
        final, kept = UnlearnConfig(**chosen_options(request, prepared.record.choices)), _retain_rows(prepared, request)
        if folder.trained():
            finished = _recorded_run(folder.path, folder.final)
        else:
            try:
                finished = train_run(
                    request.source,
                    final,
                    folder,
                    forget=prepared.forget,
                    retain=kept,
                    model=prepared.take_model(),
                    watch=lambda trainer: [_controller(trainer, request, prepared, final, files, say)],
                    say=say,
                )
            except ValueError:  # invalid settings: another command will follow
                if first and not folder.has_results():
                    files.clear(keep_asked=request.asked is not None)
                raise
        verdict, before, said = broadcast_from_main(
            config, lambda: _measure_and_decide(request, folder, prepared, final, kept, say)
        )
        publish_run(folder, final)
        return UnlearnResult(verdict, finished, before, said)


def _recorded_run(output: Path, written: Path | None = None) -> FinishedRun:
    """Return a run that was trained before, from its record; `written` is the folder that holds it, if not `output`."""
    record = read_object((written or output) / RECORD_NAME)
    return FinishedRun(output, record["train_seconds"], record["steps"], record["resumed_from_step"])


def _controller(
    trainer: MethodTrainer,
    request: UnlearningRequest,
    prepared: PreparedRequest,
    config: UnlearnConfig,
    files: RequestFolder,
    say: Say,
) -> AdaptiveController:
    """Return the adaptive controller of the run, with the rows that it measures."""
    tokenizer = load_checked_tokenizer(request.source)
    encoder = Encoder(tokenizer, max_length=config.max_length, system=config.system)
    retained: dict[str, Sequence[Example]] = {"general questions": prepared.sets[GENERAL], "texts": general_text()}
    if request.retain != AUTO:  # self-generated answers, trained on, show little
        retained["retain"] = prepared.sets[RETAIN]
    # Sharded weights have no fingerprint to keep answers under.
    store = None
    if not trainer.sharded:
        store = GenerationStore()
    rows = ControllerRows(
        retain=tuple(
            encoder.encode_rows(evenly_spaced(kept, CONTROLLER_ROWS), what=name).rows
            for name, kept in retained.items()
            if kept
        ),
        answers=AnswerCheck(
            rows=evenly_spaced(prepared.sets[FORGET], CONTROLLER_ROWS),
            encoder=encoder,
            store=store,
        ),
        question_chance=prepared.record.question_chance,
        text_chance=prepared.record.text_chance,
    )
    batch = config.per_device_train_batch_size * config.gradient_accumulation_steps
    return AdaptiveController(
        trainer,
        GoalEvaluations(trainer, rows, request.max_retain_increase),
        every=eval_every(math.ceil(len(request.rows) / batch)),
        adapt=RATE_OPTION not in request.options,
        stop=not any(name in request.options for name in LENGTH_OPTIONS),
        forget_leaks=config.forget_leaks,
        history_file=files.history,
        say=say,
    )


def _measure_and_decide(
    request: UnlearningRequest,
    folder: RunFolder,
    prepared: PreparedRequest,
    config: UnlearnConfig,
    kept: LoadedRows | None,
    say: Say,
) -> tuple[RequestVerdict, FactTable, FactTable]:
    """Ask both models, decide the verdict, and add all three and the request to the trained result."""
    gc.collect()  # the trainer, with the state of its optimizer
    files = RequestFolder(folder.work)
    sets, before = _ask_original(request, prepared, config, files, say)
    model, tokenizer = open_model(str(folder.final), after_loading(request.source), device=config.device)
    row_encoding = RowEncoding(config.system, config.max_length)
    say("asking the unlearned model the same questions, and again with rounded weights and after examples")
    with full_precision(model):  # as its files are read
        said = ask_model(TransformersGenerator(model, tokenizer), sets, row_encoding, progress="unlearned model")
        said = join_tables((said, ask_in_cheap_states(model, tokenizer, sets, row_encoding)))
        read = ModelReader(TransformersGenerator(model, tokenizer), system=config.system, max_length=config.max_length)
        known = known_probabilities(prepared.forget.rows, read.logps)
        checks = recheck_requests(model, tokenizer, request.earlier)
    del model, read  # the original model needs the memory
    said = _read_by_original(request, config, said, sets[GENERAL])
    increase = read_history(files.history).retain_loss_increase
    verdict = decide(
        before,
        said,
        earlier=checks,
        max_retain_increase=request.max_retain_increase,
        retain_loss_increase=increase,
        not_tested=(*not_asked(request.earlier), *untested(request.rows, retain_given=request.retain != AUTO)),
        notes=(*known_notes(prepared.record.known, known), *total_cost(request.earlier, increase)),
        next_commands=_next_commands(folder.path, request, None if kept is None else kept.source, config.system),
    )
    files.write_answers("before", before)
    files.write_answers("after", said)
    shutil.copytree(files.path, RequestFolder(folder.final).path, dirs_exist_ok=True)
    verdict.write(folder.final)
    verdict.add_to_card(folder.final, name=folder.path.name)
    return verdict, before, said


def _ask_original(
    request: UnlearningRequest, prepared: PreparedRequest, config: UnlearnConfig, files: RequestFolder, say: Say
) -> tuple[Mapping[str, Sequence[Example]], FactTable]:
    """Find the neighbour set, and ask the original model about it, the facts and general questions.

    Nothing of this is needed to train, so that it waits until then.

    Returns:
        All sets that are asked about, and what the original model says.
    """
    original, tokenizer = open_model(str(request.source.model), request.source, device=config.device)
    generator = TransformersGenerator(original, tokenizer)
    retain: Sequence[Example] = ()
    if request.retain_rows is not None and config.recipe().reads_retain:
        retain = request.retain_rows
    say("looking for the neighbour set: what the original model knows about related subjects")
    with bfloat16_weights(original, config.bf16):
        neighbours = find_neighbours(
            ModelReader(generator, system=config.system, max_length=config.max_length),
            prepared.forget.rows,
            earlier=request.earlier_rows,
            retain=retain,
            among=request.related_names,
            system=config.system,
        )
    if retain:
        say(f"neighbours: {len(neighbours.retain)} of your retain rows, {len(neighbours.own)} others")
    files.write_neighbours(neighbours)
    sets = {**prepared.sets, NEIGHBOURS: neighbours.rows}
    say("asking the original model, to compare")
    return sets, ask_model(generator, sets, RowEncoding(config.system, config.max_length), progress="original model")


def _read_by_original(
    request: UnlearningRequest, config: UnlearnConfig, said: FactTable, own: Sequence[Example]
) -> FactTable:
    """Let the original model read what the unlearned one said, to find answers that cannot be read.

    Args:
        own: general questions with what the original model answers.
    """
    if not own:
        return said
    original, tokenizer = open_model(str(request.source.model), request.source, device=config.device)
    # Unlike greedy answers, means over many tokens do not turn over by rounding.
    with bfloat16_weights(original, config.bf16):
        return mark_unreadable(said, OriginalReader(original, tokenizer, config.system), own)


def _retain_rows(prepared: PreparedRequest, request: UnlearningRequest) -> LoadedRows | None:
    """Return the retain rows; generated ones are written into the cache."""
    if prepared.generated_retain is None:
        return request.retain_set
    path = writable_folder(cache_folder() / "retain") / f"{fingerprint(prepared.generated_retain)[:16]}.jsonl"
    write_rows(path, prepared.generated_retain)
    return LoadedRows(prepared.generated_retain, str(path), ())


def _next_commands(output: Path, request: UnlearningRequest, retain: str | None, system: str | None) -> tuple[str, ...]:
    """Return the commands to run next."""
    sets = flags({"forget": request.forget, "retain": retain, "system": system})
    return (
        command_line([*program(), "chat", str(output), "--compare", str(request.source.model)]),
        command_line([*program(), "evaluate", "--model", str(output), *sets, "--output", "eval.json"]),
        command_line([*program(), "evidence", str(output)]),
    )
