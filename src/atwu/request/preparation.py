"""What stands before training starts: settings chosen, rows to keep made, the model measured, and all of it written down."""

from __future__ import annotations

import datetime
import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from atwu.data.schema import Example
from atwu.evaluation.result import EvalResult
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.auto_settings import LENGTH_OPTIONS, RATE_OPTION, Choice, DeviceInfo, batch_size, choose
from atwu.request.measurement import Reading, check_holdout, measure_model, measured_sets, sets_of
from atwu.request.memory_strategy import StrategyEstimate, batch_of, first_that_fits, strategy_estimates
from atwu.request.neighbour_rows import check_no_overlap
from atwu.request.request_folder import RequestFolder, RequestRecord, RowsUsed, ThresholdsSet
from atwu.request.retain_set import build_retain, short_answers
from atwu.request.unlearning_request import UnlearningRequest
from atwu.request.verdict import (
    GENERAL,
    RequestVerdict,
    answers_before,
    clearly_known,
    decide_verdict,
    read_request_verdict,
)
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource, check_training, load_checked_tokenizer
from atwu.training.progress import Say


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """What stands before training starts."""

    stage: Literal["nothing to forget", "begun", "trained", "judged"]
    """How far the request is."""
    before: EvalResult
    """The starting model."""
    sets: Mapping[str, Sequence[Example]]
    """What is measured."""
    generated_retain: Sequence[Example] | None
    """Rows to keep that were made; None where they were given, or the method needs none."""
    record: RequestRecord | None
    """None where there is nothing to forget."""
    verdict: RequestVerdict | None = None
    """Where there is nothing to forget, or it is judged already."""
    after: EvalResult | None = None
    """The model that it left, where it is judged already."""


def prepare(
    request: UnlearningRequest, folder: RequestFolder, config: UnlearnConfig, *, overwrite: bool, say: Say
) -> PreparedRequest:
    """Take up what was begun, or look at the model and write down what stands before training starts.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    key, since = request.key(config), request.ledger_context
    check_holdout(request.holdout_rows, request.rows, source=request.holdout)
    if request.retain_rows is not None:
        check_no_overlap(request.retain_rows, request.rows, source=request.retain, why="would keep what is to be forgotten")
        if since is not None:
            check_no_overlap(
                request.retain_rows, since.earlier_rows, source=request.retain, why="would teach again what an earlier request removed"
            )
    if folder.taken_up(key, overwrite=overwrite, judged=since is not None):
        return _taken_up(request, folder, say)
    recipe, place = config.recipe(), DeviceInfo.of(config.device)
    fitted = fitting(request, config, place)
    network, tokenizer = open_model(str(request.source.model), request.source, device=config.device)
    say(f"model {request.source.model}: {network.num_parameters() / 1e6:.3g}M parameters on {config.device}")
    if since is not None and since.model_fingerprint not in (None, found := model_fingerprint(network)):
        raise ValueError(
            f"{request.source.model} is not the model that the last request left (its weights have the hash {found}, the "
            f"ledger says {since.model_fingerprint}); leave --model out, or give that model."
        )
    choices = choose(
        request.options,
        recipe=recipe,
        rows=len(request.rows),
        hidden=int(network.config.get_text_config().hidden_size),
        self_generated_answers=request.retain_rows is None,
        place=place,
        fitted=fitted,
        auto_memory=request.auto_memory,
    )
    for choice in choices:
        say(f"  {choice}")
    training = UnlearnConfig(**chosen_options(request, choices))
    check_training(request.source, training)
    made: Sequence[Example] | None = None
    kept: Sequence[Example] = ()
    if "retain" in recipe.needs:
        whole = training.recipe().retain_loss == "nll"  # which learns where rows end
        if request.retain_rows is None:
            away = () if since is None else since.earlier_rows
            made = build_retain(network, tokenizer, (*request.rows, *away), whole=whole, system=config.system).rows
            say("rows to keep: the model's own answers to general questions (--retain FILE for rows of your own)")
        elif whole and (note := short_answers(request.retain_rows)) is not None:
            say(note)
        kept = request.retain_rows or made or ()
    sets = measured_sets(network, tokenizer, request.rows, kept, request.holdout_rows, system=config.system)
    say(f"measuring the model on {sum(map(len, sets.values()))} rows")
    before = measure_model(network, tokenizer, sets, Reading(config.system, config.max_length), name="before")
    del network
    gc.collect()
    shown = answers_before(before, sets)
    if not clearly_known(before) and not any(name in request.options for name in (RATE_OPTION, *LENGTH_OPTIONS)):
        verdict = decide_verdict(before, None, answers=shown, limit=request.max_retain_increase, rise=None)
        return PreparedRequest("nothing to forget", before, sets, made, None, verdict)
    record = RequestRecord(
        prepared_at=utc_now(),
        about=request.about,
        command=request.command(),
        key=key,
        model=str(request.source.model),
        forget=RowsUsed.of(request.forget, request.rows, each=True),
        retain=RowsUsed.of(request.retain, tuple(kept)) if kept else None,
        holdout=RowsUsed.of(request.holdout, request.holdout_rows),
        max_retain_increase=request.max_retain_increase,
        system=config.system,
        max_length=config.max_length,
        choices=choices,
        thresholds=ThresholdsSet(request.threshold_limits.name, request.threshold_limits.sha256, request.threshold_limits.text),
        sample_answers=shown,
        ledger=None if since is None else _from(folder, since.ledger),
    )
    folder.begin(record, before, sets[GENERAL], made)
    return PreparedRequest("begun", before, sets, made, record)


def fitting(request: UnlearningRequest, config: UnlearnConfig, place: DeviceInfo) -> StrategyEstimate:
    """The first way of training that fits, found before weights are read.

    Raises:
        ValueError: none does.
    """
    given = dict(request.options) | {"per_device_train_batch_size": batch_size(request.options, len(request.rows))}
    lengths = batch_of(request.rows, request.retain_set, UnlearnConfig(**given), load_checked_tokenizer(request.source))
    chooses = request.auto_memory or RATE_OPTION not in given or not any(name in given for name in LENGTH_OPTIONS)
    where: dict[str, Any] = {"device": place.device.type, "free": place.memory}
    return first_that_fits(strategy_estimates(request.source, given, lengths, chosen=chooses, **where), **where)


def _taken_up(request: UnlearningRequest, folder: RequestFolder, say: Say) -> PreparedRequest:
    """What stood, read back."""
    record, before = folder.request(), folder.result("before")
    general, made = folder.rows("general"), folder.rows("retain")
    kept = () if record.retain is None else request.retain_rows or made or ()
    say(f"going on with the request of {record.prepared_at}, as it was prepared then")
    for choice in record.choices:
        say(f"  {choice}")
    sets = sets_of(request.rows, kept, request.holdout_rows, general or ())
    if folder.judged():
        verdict, after = read_request_verdict(folder.output), folder.result("after")
        return PreparedRequest("judged", before, sets, made, record, verdict, after)
    return PreparedRequest("trained" if folder.trained() else "begun", before, sets, made, record)


def chosen_options(request: UnlearningRequest, choices: Sequence[Choice]) -> dict[str, Any]:
    """Options of the run: what was chosen, and what was given."""
    return {**{choice.name: choice.value for choice in choices}, **request.options}


def after_loading(source: ModelSource) -> ModelLoadArgs:
    """How the model that a run left is read; adapters name their base."""
    return ModelLoadArgs(dtype=source.dtype, trust_remote_code=source.trust_remote_code)


def _from(folder: RequestFolder, ledger: str) -> str:
    """The folder of a ledger, from the output; links are followed on both sides."""
    return os.path.relpath(os.path.realpath(Path(ledger).expanduser()), folder.output)


def utc_now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
