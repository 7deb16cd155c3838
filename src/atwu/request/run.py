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
from atwu.benchmarks.spread import spread
from atwu.data.encode import Encoder
from atwu.data.render import with_system
from atwu.data.rows import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.evaluation.metrics.telling import telling_said
from atwu.evaluation.result import EvalResult
from atwu.modeling.opening import open_model
from atwu.request.asked import AUTO, INVENTED, RETAIN_LIMIT, Asked, flags
from atwu.request.choose import LENGTH, RATE, look_every
from atwu.request.measure import Reading, measure
from atwu.request.prepare import Prepared, after_loading, chosen, prepare
from atwu.request.record import RequestFolder
from atwu.request.verdict import HELD, REWORDED, TEXTS, RequestVerdict, answered_again, decide, goal, upper
from atwu.request.watch import Limits, Watch, WatchedRows, read_course
from atwu.training.config import UnlearnConfig
from atwu.training.model import checked_tokenizer
from atwu.training.progress import Say, logged, silent
from atwu.training.run import FinishedRun, ModelSource, run_unlearn
from atwu.training.sharding import from_first
from atwu.training.trainer import MethodTrainer

if TYPE_CHECKING:
    import pandas as pd


WATCHED = 24
"""Rows of a set that are looked at while training."""


@dataclass(frozen=True, slots=True)
class Outcome:
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
    fit: bool = False,
    unseen: str = INVENTED,
    retain_limit: float = RETAIN_LIMIT,
    thresholds: str | Path | None = None,
    about: str | None = None,
    overwrite: bool = False,
    say: Say = logged,
) -> Outcome:
    """Unlearn rows from a model, and say what became of it; the same as `atwu unlearn`.

    Of several processes the first one measures and writes, and tells the others.

    Args:
        model: the starting model: a folder, a Hub name, `smollm2`, a GGUF file; or with how it is read.
        forget: source of the rows to remove (`load_rows`).
        output: folder to create.
        retain: source of the rows to keep, or `auto`: the model's own answers to general questions.
        options: of `UnlearnConfig`; all others are chosen. With a number of steps or epochs, exactly these are taken; with a
            learning rate, it stays; with both, nothing is chosen.
        fit: let memory choose between all weights, adapters and what spares memory, even with both.
        unseen: source of rows like the forget rows that no model saw.
        retain_limit: most that the loss of rows that should stay may rise, in nats per token.
        thresholds: YAML with the limits that `evidence` compares with, written down before training; by default those that
            are shipped.
        about: who asks for what, in words, for `evidence`.
        overwrite: replace a finished run that is there.
        say: receives one line of plain text per stage, in the first process.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    return carry_out(
        Asked(
            source=model if isinstance(model, ModelSource) else ModelSource(model=model),
            removed=load_rows(forget),
            output=Path(output),
            retain=retain,
            options=dict(options or {}),
            fit=fit,
            unseen=unseen,
            retain_limit=retain_limit,
            thresholds=thresholds,
            about=about,
        ),
        overwrite=overwrite,
        say=say,
    )


def carry_out(
    asked: Asked, *, overwrite: bool = False, begin: Callable[[], object] | None = None, say: Say = logged
) -> Outcome:
    """Do what was asked, from where it stands.

    Args:
        begin: called in the first process once the request is known to be sound, before anything is trained.
    """
    config, folder = UnlearnConfig(**asked.options), RequestFolder(asked.output)
    if not config.learning_rate:
        raise ValueError("learning_rate must be above 0: a frozen model forgets nothing.")
    # Read before anything is done, in every process the same.
    _ = asked.kept, asked.limits
    first = config.process_index == 0
    say = say if first else silent
    with folder.alone() if first else contextlib.nullcontext():

        def prepared_here() -> Prepared:
            found = prepare(asked, folder, config, overwrite=overwrite, say=say)
            if begin is not None:
                begin()
            return found

        prepared = from_first(config, prepared_here)
        if prepared.stands == "nothing to forget":
            assert prepared.verdict is not None
            return Outcome(prepared.verdict, None, prepared.before, None)
        assert prepared.request is not None
        final, kept = UnlearnConfig(**chosen(asked, prepared.request.choices)), _kept(prepared, asked)
        if prepared.stands != "begun":
            record = folder.run()
            finished = FinishedRun(folder.output, record["train_seconds"], record["steps"], record["resumed_from_step"])
        else:
            try:
                finished = run_unlearn(
                    asked.source,
                    final,
                    forget=asked.removed,
                    retain=kept,
                    output=asked.output,
                    overwrite=overwrite,
                    watch=lambda trainer: [_watch(trainer, asked, prepared, final, folder, say)],
                    say=say,
                )
            except ValueError:  # of the settings, which another command will change
                if first and not folder.has_something_to_lose():
                    folder.discard()
                raise
        if prepared.stands == "judged":
            assert prepared.verdict is not None
            return Outcome(prepared.verdict, finished, prepared.before, prepared.after)
        verdict, after = from_first(config, lambda: _judge(asked, folder, prepared, final, kept, say))
        return Outcome(verdict, finished, prepared.before, after)


def _watch(
    trainer: MethodTrainer, asked: Asked, prepared: Prepared, config: UnlearnConfig, folder: RequestFolder, say: Say
) -> Watch:
    """What steers the run."""
    given = () if asked.retain == AUTO else (RETAIN,)  # own answers that are trained on say little
    names = (FORGET, REWORDED, HELD, TEXTS, *given)
    seen = {name: spread(prepared.sets[name], WATCHED) for name in names if prepared.sets[name]}
    batch, before = config.per_device_train_batch_size * config.gradient_accumulation_steps, prepared.before
    return Watch(
        trainer,
        _watched(seen, checked_tokenizer(asked.source), config),
        Limits(
            goal(before, "telling_probability"),
            upper(before, "telling_guessed") or 0.0,
            upper(before, "telling_said") or 0.0,  # where no row is a question, nothing is said
            asked.retain_limit,
        ),
        every=look_every(math.ceil(len(asked.rows) / batch)),
        adapt=RATE not in asked.options,
        stop=not any(name in asked.options for name in LENGTH),
        course=folder.course,
        say=say,
    )


def _judge(
    asked: Asked, folder: RequestFolder, prepared: Prepared, config: UnlearnConfig, kept: LoadedRows | None, say: Say
) -> tuple[RequestVerdict, EvalResult]:
    """Measure what the run left, and write the verdict."""
    assert prepared.request is not None
    model, tokenizer = open_model(str(folder.output), after_loading(asked.source), device=config.device)
    say("measuring the unlearned model on the same rows")
    after = measure(model, tokenizer, prepared.sets, Reading(config.system, config.max_length), name="after")
    verdict = decide(
        prepared.before,
        after,
        answers=answered_again(prepared.request.shown, after, prepared.sets),
        limit=asked.retain_limit,
        rise=read_course(folder.course).rise,
        then=_then(folder.output, asked, None if kept is None else kept.source, config.system),
    )
    verdict.write(folder.output)
    folder.close(after)
    return verdict, after


def _kept(prepared: Prepared, asked: Asked) -> LoadedRows | None:
    """The rows to keep; those that were made are written into the cache."""
    if prepared.kept is None:
        return asked.kept
    path = place_for(cache_folder() / "retain") / f"{fingerprint(prepared.kept)[:16]}.jsonl"
    write_rows(path, prepared.kept)
    return LoadedRows(prepared.kept, str(path), ())


def _watched(seen: Mapping[str, Sequence[Example]], tokenizer: Any, config: UnlearnConfig) -> WatchedRows:
    """What looks are taken at: the sets to forget, and those that should stay."""
    encoder = Encoder(tokenizer, max_length=config.max_length, system=config.system)
    encoded = {name: encoder.encode_rows(rows, what=name).rows for name, rows in seen.items()}
    leaving = [name for name in (FORGET, REWORDED) if name in seen]

    def said(model: Any) -> float:
        return max(_said(model, tokenizer, seen[name], config) for name in leaving)

    return WatchedRows(
        tuple((seen[name], encoded[name]) for name in leaving),
        tuple(rows for name, rows in encoded.items() if name not in leaving),
        said,
    )


def _then(output: Path, asked: Asked, retain: str | None, system: str | None) -> tuple[str, ...]:
    """Commands that look further."""
    sets = flags({"forget": asked.forget, "retain": retain, "system": system})
    return (
        shlex.join(["atwu", "chat", str(output), "--beside", str(asked.source.model)]),
        shlex.join(["atwu", "evaluate", "--model", str(output), *sets, "--output", "eval.json"]),
        shlex.join(["atwu", "evidence", str(output)]),
    )


def _said(model: Any, tokenizer: Any, rows: Sequence[Example], config: UnlearnConfig) -> float:
    """Mean share of telling words in a model's greedy answers; 0 where no row is a question."""
    asked = [row for row in rows if row.messages]
    made = generate_all(
        TransformersGenerator(model, tokenizer),
        [Prompt(with_system(row.messages, config.system)) for row in asked],
        Decoding(),
    )
    shares = [telling_said(row, answer.text) for row, answer in zip(asked, made, strict=True)]
    known = [share for share in shares if share is not None]
    return sum(known) / max(len(known), 1)
