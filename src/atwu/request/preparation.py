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

    stands: Literal["nothing to forget", "begun", "trained", "judged"]
    """How far the request is."""
    before: EvalResult
    """The starting model."""
    sets: Mapping[str, Sequence[Example]]
    """What is measured."""
    kept: Sequence[Example] | None
    """Rows to keep that were made; None where they were given, or the method needs none."""
    request: RequestRecord | None
    """None where there is nothing to forget."""
    verdict: RequestVerdict | None = None
    """Where there is nothing to forget, or it is judged already."""
    after: EvalResult | None = None
    """The model that it left, where it is judged already."""


def prepare(
    asked: UnlearningRequest, folder: RequestFolder, config: UnlearnConfig, *, overwrite: bool, say: Say
) -> PreparedRequest:
    """Take up what was begun, or look at the model and write down what stands before training starts.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    key, since = asked.key(config), asked.since
    check_holdout(asked.holdout_rows, asked.rows, source=asked.holdout)
    if asked.given is not None:
        check_no_overlap(asked.given, asked.rows, source=asked.retain, why="would keep what is to be forgotten")
        if since is not None:
            check_no_overlap(
                asked.given, since.rows, source=asked.retain, why="would teach again what an earlier request removed"
            )
    if folder.taken_up(key, overwrite=overwrite, judged=since is not None):
        return _taken_up(asked, folder, say)
    recipe, place = config.recipe(), DeviceInfo.of(config.device)
    fitted = fitting(asked, config, place)
    network, tokenizer = open_model(str(asked.source.model), asked.source, device=config.device)
    say(f"model {asked.source.model}: {network.num_parameters() / 1e6:.3g}M parameters on {config.device}")
    if since is not None and since.fingerprint not in (None, found := model_fingerprint(network)):
        raise ValueError(
            f"{asked.source.model} is not the model that the last request left (its weights have the hash {found}, the "
            f"ledger says {since.fingerprint}); leave --model out, or give that model."
        )
    choices = choose(
        asked.options,
        recipe=recipe,
        rows=len(asked.rows),
        hidden=int(network.config.get_text_config().hidden_size),
        self_generated_answers=asked.given is None,
        place=place,
        fitted=fitted,
        auto_memory=asked.auto_memory,
    )
    for choice in choices:
        say(f"  {choice}")
    training = UnlearnConfig(**chosen_options(asked, choices))
    check_training(asked.source, training)
    made: Sequence[Example] | None = None
    kept: Sequence[Example] = ()
    if "retain" in recipe.needs:
        whole = training.recipe().retain_loss == "nll"  # which learns where rows end
        if asked.given is None:
            away = () if since is None else since.rows
            made = build_retain(network, tokenizer, (*asked.rows, *away), whole=whole, system=config.system).rows
            say("rows to keep: the model's own answers to general questions (--retain FILE for rows of your own)")
        elif whole and (note := short_answers(asked.given)) is not None:
            say(note)
        kept = asked.given or made or ()
    sets = measured_sets(network, tokenizer, asked.rows, kept, asked.holdout_rows, system=config.system)
    say(f"measuring the model on {sum(map(len, sets.values()))} rows")
    before = measure_model(network, tokenizer, sets, Reading(config.system, config.max_length), name="before")
    del network
    gc.collect()
    shown = answers_before(before, sets)
    if not clearly_known(before) and not any(name in asked.options for name in (RATE_OPTION, *LENGTH_OPTIONS)):
        verdict = decide_verdict(before, None, answers=shown, limit=asked.max_retain_increase, rise=None)
        return PreparedRequest("nothing to forget", before, sets, made, None, verdict)
    request = RequestRecord(
        made=utc_now(),
        about=asked.about,
        command=asked.command(),
        key=key,
        model=str(asked.source.model),
        forget=RowsUsed.of(asked.forget, asked.rows, each=True),
        retain=RowsUsed.of(asked.retain, tuple(kept)) if kept else None,
        holdout=RowsUsed.of(asked.holdout, asked.holdout_rows),
        max_retain_increase=asked.max_retain_increase,
        system=config.system,
        max_length=config.max_length,
        choices=choices,
        thresholds=ThresholdsSet(asked.limits.name, asked.limits.sha256, asked.limits.text),
        shown=shown,
        ledger=None if since is None else _from(folder, since.ledger),
    )
    folder.begin(request, before, sets[GENERAL], made)
    return PreparedRequest("begun", before, sets, made, request)


def fitting(asked: UnlearningRequest, config: UnlearnConfig, place: DeviceInfo) -> StrategyEstimate:
    """The first way of training that fits, found before weights are read.

    Raises:
        ValueError: none does.
    """
    given = dict(asked.options) | {"per_device_train_batch_size": batch_size(asked.options, len(asked.rows))}
    lengths = batch_of(asked.rows, asked.kept, UnlearnConfig(**given), load_checked_tokenizer(asked.source))
    chooses = asked.auto_memory or RATE_OPTION not in given or not any(name in given for name in LENGTH_OPTIONS)
    where: dict[str, Any] = {"device": place.device.type, "free": place.memory}
    return first_that_fits(strategy_estimates(asked.source, given, lengths, chosen=chooses, **where), **where)


def _taken_up(asked: UnlearningRequest, folder: RequestFolder, say: Say) -> PreparedRequest:
    """What stood, read back."""
    request, before = folder.request(), folder.result("before")
    general, made = folder.rows("general"), folder.rows("retain")
    kept = () if request.retain is None else asked.given or made or ()
    say(f"going on with the request of {request.made}, as it was prepared then")
    for choice in request.choices:
        say(f"  {choice}")
    sets = sets_of(asked.rows, kept, asked.holdout_rows, general or ())
    if folder.judged():
        verdict, after = read_request_verdict(folder.output), folder.result("after")
        return PreparedRequest("judged", before, sets, made, request, verdict, after)
    return PreparedRequest("trained" if folder.trained() else "begun", before, sets, made, request)


def chosen_options(asked: UnlearningRequest, choices: Sequence[Choice]) -> dict[str, Any]:
    """Options of the run: what was chosen, and what was given."""
    return {**{choice.name: choice.value for choice in choices}, **asked.options}


def after_loading(source: ModelSource) -> ModelLoadArgs:
    """How the model that a run left is read; adapters name their base."""
    return ModelLoadArgs(dtype=source.dtype, trust_remote_code=source.trust_remote_code)


def _from(folder: RequestFolder, ledger: str) -> str:
    """The folder of a ledger, from the output; links are followed on both sides."""
    return os.path.relpath(os.path.realpath(Path(ledger).expanduser()), folder.output)


def utc_now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
