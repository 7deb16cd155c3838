"""An unlearning request with its result: its options, the key that identifies it, and the command that repeats it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._cache import run_key
from atwu._command import command_line, program
from atwu._options import Option
from atwu.benchmarks.base import LoadedRows
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.evaluation.facts.fact_table import FactTable
from atwu.methods.component_registry import component_options
from atwu.request.asked_rows import AskedRows, flags_of, model_key
from atwu.request.earlier_requests import ReadRequest, earlier_requests, read_rows
from atwu.request.request_defaults import AUTO, DEFAULT_HOLDOUT, MAX_RETAIN_INCREASE
from atwu.request.screen import verdict_html, verdict_text
from atwu.request.verdict import RequestVerdict
from atwu.training.checkpoints import NOT_RESULT
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.training_options import FURTHER_FLAGS, UnlearnOptions
from atwu.training.unlearn_run import FinishedRun

if TYPE_CHECKING:
    import pandas as pd

_ARGUMENTS = (
    Option("output", Path, MISSING),
    Option("auto_memory", bool, False),
    Option("max_retain_increase", float, MAX_RETAIN_INCREASE, above=0),
    Option("request_note", str, None),
    Option("overwrite", bool, False),
)
"""Arguments of `atwu.request.unlearn.unlearn` with a plain type."""


@dataclass(frozen=True, kw_only=True)
class UnlearningRequest:
    """An unlearning request; the fields with a default are options of `atwu.request.unlearn.unlearn`."""

    source: ModelSource
    forget_set: LoadedRows
    """Forget rows, read once, so that training and measurements use the same rows."""
    output: Path
    asked: AskedRows | None = None
    """What the original model said, if the request gives names or questions; its rows are the forget rows."""
    retain: str = AUTO
    """Source of the retain rows, or `AUTO`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `UnlearnConfig`, as given."""
    holdout: str = DEFAULT_HOLDOUT
    """Source of the holdout rows."""
    max_retain_increase: float = MAX_RETAIN_INCREASE
    request_note: str | None = None
    """Description of the request and who made it."""
    auto_memory: bool = False
    """Choose the memory strategy even if a learning rate and a length are given."""

    def __post_init__(self) -> None:
        check_arguments(max_retain_increase=self.max_retain_increase)

    @cached_property
    def earlier(self) -> tuple[ReadRequest, ...]:
        """The requests that left the original model, the first one first, with their forget rows."""
        return tuple(map(read_rows, earlier_requests(str(self.source.model))))

    @property
    def earlier_rows(self) -> tuple[Example, ...]:
        """Forget rows of the earlier requests."""
        return tuple(row for past in self.earlier for row in past.rows)

    @property
    def related_names(self) -> Collection[str]:
        """Names of the same kind as those that were given, such as other persons; empty if rows were given."""
        if self.asked is None:
            return ()
        return self.asked.like

    @cached_property
    def holdout_rows(self) -> Sequence[Example]:
        """Holdout rows."""
        return load_rows(self.holdout).rows

    @cached_property
    def retain_set(self) -> LoadedRows | None:
        """Retain rows, read once; None if they are self-generated."""
        return None if self.retain == AUTO else load_rows(self.retain)

    @property
    def retain_rows(self) -> Sequence[Example] | None:
        """Retain rows, without their source."""
        return None if self.retain_set is None else self.retain_set.rows

    @property
    def forget(self) -> str:
        """Source of the forget rows."""
        return self.forget_set.source

    @property
    def rows(self) -> Sequence[Example]:
        """Forget rows."""
        return self.forget_set.rows

    @property
    def chained(self) -> Sequence[Example]:
        """Questions about the answers of the forget rows, which are only measured."""
        return () if self.asked is None else self.asked.chained

    @property
    def trained_chained(self) -> Sequence[Example]:
        """Other such questions, which are trained on beside the forget rows."""
        return () if self.asked is None else self.asked.trained_chained

    def key(self, config: UnlearnConfig) -> dict[str, Any]:
        """Return everything that identifies the request, as plain JSON; `config` is made of the options."""
        settings = config.as_plain()
        return run_key(
            "request",
            options={name: settings.get(name) for name in sorted(self.options) if name not in NOT_RESULT},
            model=model_key(self.source),
            rows={
                "forget": fingerprint(self.rows),
                "retain": AUTO if self.retain_rows is None else fingerprint(self.retain_rows),
                "holdout": fingerprint(self.holdout_rows),
            },
            inputs={
                "asked": None if self.asked is None else self.asked.source.key,
                "max_retain_increase": self.max_retain_increase,
                "request_note": self.request_note,
                "auto_memory": self.auto_memory,
            },
        )

    def command(self) -> str:
        """Return the command line of the same request."""
        words = [*program(), "unlearn", "--model", str(self.source.model), "--output", str(self.output)]
        words += flags(flags_of(self.asked, self.forget))
        written = ("source", "forget_set", "output", "asked", "options", "model")
        changed = {
            argument.name: getattr(holder, argument.name)
            for holder in (self, self.source)
            for argument in dataclasses.fields(holder)
            if argument.name not in written and getattr(holder, argument.name) != argument.default
        }
        fields = {option.name for option in dataclasses.fields(UnlearnOptions)}
        has_flag = fields.union(FURTHER_FLAGS, component_options())
        with_flag = {name: value for name, value in self.options.items() if name in has_flag}
        as_json = {name: value for name, value in self.options.items() if name not in has_flag}
        words += flags({**changed, **with_flag})
        if as_json:
            words += ["--training-args", json.dumps(as_json)]
        return command_line(words)


@dataclass(frozen=True, slots=True)
class UnlearnResult:
    """Result of an unlearning request."""

    verdict: RequestVerdict
    run: FinishedRun | None
    """None if there was nothing to forget."""
    before: FactTable
    """What the original model said about the facts, the neighbours and general questions."""
    after: FactTable | None
    """The same of the unlearned model, also in other states; None if there was nothing to forget."""

    @property
    def good(self) -> bool:
        """Whether the request is fulfilled."""
        return self.verdict.good

    def summary(self) -> str:
        """Return the verdict as plain text."""
        return verdict_text(self.verdict)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per part of the rule, before and after."""
        return self.verdict.to_pandas()

    def _repr_html_(self) -> str:
        return verdict_html(self.verdict)


def check_arguments(**arguments: Any) -> None:
    """Check the types and bounds of arguments of `atwu.request.unlearn.unlearn`."""
    for name in ("options", "columns"):
        if not isinstance(arguments.get(name) or {}, Mapping):
            raise TypeError(f"{name} must be a mapping of names to values, got {type(arguments[name]).__name__}.")
    for option in _ARGUMENTS:
        if option.name in arguments:
            option.value(arguments[option.name], strict=True)


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line; None values are left out."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words
