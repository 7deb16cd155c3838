"""One request as it was given: what makes it that request and no other, and the command that makes it again."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from atwu.benchmarks.sources import LoadedRows, load_rows
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.request.thresholds import Thresholds, read_thresholds
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.run_key import NOT_RESULT

AUTO = "auto"
"""As rows to keep: the model's own answers to the shipped general questions."""
DEFAULT_HOLDOUT = "people:small:holdout"
"""Rows that no model saw, where none are given."""
MAX_RETAIN_INCREASE = 0.15
"""Most that the loss of rows that should stay may rise, in nats per token, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class LedgerContext:
    """What a request in a ledger heeds of the earlier ones."""

    ledger: str
    """Its folder, as it was given."""
    number: int
    """Of this request."""
    earlier_rows: Sequence[Example]
    """The earlier ones' forget rows, which are not to be kept."""
    model_fingerprint: str | None
    """Of the model that the last one left, with which this one starts; None for the first."""
    in_ledger_folder: bool
    """The model goes to the ledger's own place."""


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """What may be said besides the model and the rows to remove (`atwu.request.unlearn.unlearn`)."""

    retain: str = AUTO
    """Source of the rows to keep, or `AUTO`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `UnlearnConfig`, as they were given."""
    auto_memory: bool = False
    """Whether memory decides how to train even where a learning rate and a length were given."""
    holdout: str = DEFAULT_HOLDOUT
    """Source of rows that no model saw."""
    max_retain_increase: float = MAX_RETAIN_INCREASE
    thresholds: str | Path | None = None
    """File of limits; None for the shipped ones."""
    about: str | None = None
    """Who asks for what, in words."""


@dataclass(frozen=True, kw_only=True)
class UnlearningRequest(RequestOptions):
    """What was asked for."""

    source: ModelSource
    forget_set: LoadedRows
    """The rows to remove, read once: what was asked for is what is trained on and measured."""
    output: Path
    ledger_context: LedgerContext | None = None
    """Earlier requests on the same model, in a ledger."""

    @cached_property
    def threshold_limits(self) -> Thresholds:
        """What the evidence compares with."""
        return read_thresholds(self.thresholds)

    @cached_property
    def holdout_rows(self) -> Sequence[Example]:
        """Rows that no model saw."""
        return load_rows(self.holdout).rows

    @cached_property
    def retain_set(self) -> LoadedRows | None:
        """Rows to keep, read once as well; None where the model's own answers are."""
        return None if self.retain == AUTO else load_rows(self.retain)

    @property
    def retain_rows(self) -> Sequence[Example] | None:
        """These rows."""
        return None if self.retain_set is None else self.retain_set.rows

    @property
    def forget(self) -> str:
        """Source of the rows to remove."""
        return self.forget_set.source

    @property
    def rows(self) -> Sequence[Example]:
        """The rows to remove."""
        return self.forget_set.rows

    def key(self, config: UnlearnConfig) -> dict[str, Any]:
        """Everything that makes it this request, as plain JSON; `config` is made of the options."""
        settings = config.as_plain()
        return {
            "model": dataclasses.asdict(self.source),
            "forget": fingerprint(self.rows),
            "retain": AUTO if self.retain_rows is None else fingerprint(self.retain_rows),
            "holdout": fingerprint(self.holdout_rows),
            "options": {name: settings.get(name) for name in sorted(self.options) if name not in NOT_RESULT},
            "max_retain_increase": self.max_retain_increase,
            "thresholds": self.threshold_limits.sha256,
            "about": self.about,
            "auto_memory": self.auto_memory,
        }

    def command(self) -> str:
        """The command line that asks for the same."""
        words = ["atwu", "unlearn"]
        if self.ledger_context is None:
            words += ["--model", str(self.source.model), "--output", str(self.output)]
        else:
            words += ["--ledger", self.ledger_context.ledger]
            words += ["--model", str(self.source.model)] if self.ledger_context.fingerprint is None else []
            words += [] if self.ledger_context.in_ledger_folder else ["--output", str(self.output)]
        words += ["--forget", self.forget]
        default = {field.name: field.default for field in dataclasses.fields(ModelSource)}
        loading = {
            name: value
            for name, value in dataclasses.asdict(self.source).items()
            if name != "model" and value != default[name]
        }
        given = {
            "retain": None if self.retain == AUTO else self.retain,
            "holdout": None if self.holdout == DEFAULT_HOLDOUT else self.holdout,
            "max_retain_increase": None
            if self.max_retain_increase == MAX_RETAIN_INCREASE
            else self.max_retain_increase,
            "thresholds": self.thresholds,
            "request": self.about,
            "auto_memory": self.auto_memory or None,
            **loading,
            **self.options,
        }
        return shlex.join(words + flags(given))


def flags(given: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line; those that are None are left out."""
    words = []
    for name, value in given.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words
