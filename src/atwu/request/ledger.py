"""The ledger: a folder with all unlearning requests on one model, so that later requests respect earlier ones.

    LEDGER/requests/0001.json   one file per finished request, written last
    LEDGER/rows/SHA256.jsonl    the forget rows of the requests, needed to measure them again
    LEDGER/general.jsonl        answers of the original model to general questions
    LEDGER/models/0001/         the model that each request left, unless --output was given

A killed request has no file; the same command continues it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, with_config

from atwu._file_reading import read_declared
from atwu._files import file_lock, write_json
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.facts.fact_table import FactCount, FactTable
from atwu.evaluation.result import STRICT
from atwu.request.request_folder import RowsUsed
from atwu.request.row_facts import RowFact
from atwu.request.verdict import clearly_more, facts_forgotten

LEDGER_SCHEMA: Final = "atwu.ledger/3"
GENERAL_NAME = "general.jsonl"
CAME_BACK, STILL_KNOWN, STILL_GONE = "came back", "not forgotten, as before", "still forgotten"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What answers about the forget rows of a request stated, before and after that request."""

    before: FactCount
    after: FactCount
    """Of the model that the request left."""
    forgotten: bool
    """Whether the facts were forgotten then, by the rule of verdicts."""


@dataclass(frozen=True, slots=True)
class RegressionCheck:
    """An earlier request, asked again of a later model."""

    number: int
    outcome: str
    """One of the constants above."""
    baseline: Baseline
    now: FactCount

    @property
    def came_back(self) -> bool:
        return self.outcome == CAME_BACK

    @property
    def summary(self) -> str:
        """The outcome, and how many answers state a fact."""
        before, after, now = self.baseline.before, self.baseline.after, self.now
        return (
            f"{self.outcome}: {now.answers_stating} of {now.answers} answers state a fact ({before.answers_stating} of "
            f"{before.answers} before that request, {after.answers_stating} after it)"
        )


def recheck_outcome(baseline: Baseline, answers: FactTable) -> str:
    """Return the outcome of a check: came back, if the rule held and does not any more, or more answers state a fact."""
    if facts_forgotten(answers):
        return STILL_GONE
    risen = clearly_more(answers.count(), baseline.after)
    return CAME_BACK if baseline.forgotten or risen else STILL_KNOWN


@dataclass(frozen=True, slots=True)
class UtilityDrift:
    """Probability of the original model's answers to general questions."""

    original: float
    """Under the original model of the ledger."""
    current: float
    """Under the newest model."""

    def text(self) -> str:
        """Return the values as a sentence."""
        return (
            "Probability of the original model's answers to general questions: "
            f"{self.original:.3f} under it, {self.current:.3f} now."
        )


@dataclass(frozen=True, slots=True)
class ModelUsed:
    name: str
    """A path in the ledger is relative to it."""
    fingerprint: str


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Entry:
    number: Annotated[int, Field(ge=1)]
    prepared_at: str
    """Time of preparation: UTC, ISO 8601."""
    finished_at: str
    request_note: str | None
    command: str
    key: Mapping[str, Any]
    """What identifies the request (`UnlearningRequest.key`)."""
    forget_rows: RowsUsed
    model_before: ModelUsed
    model_after: ModelUsed
    """The model that it left; equal to `model_before` if there was nothing to forget."""
    outcome: str
    reason: str
    facts: tuple[RowFact, ...]
    """What carries the fact of each forget row; empty if there was nothing to forget."""
    baseline: Baseline
    regression_checks: tuple[RegressionCheck, ...]
    """The earlier requests, asked again of the model that it left."""
    utility_drift: UtilityDrift | None = None
    """None until a request had something to forget."""
    schema: Literal["atwu.ledger/3"] = LEDGER_SCHEMA

    @property
    def came_back(self) -> tuple[int, ...]:
        """Numbers of the earlier requests whose rows it brought back."""
        return tuple(each.number for each in self.regression_checks if each.came_back)


def rows_file(ledger: Path, hashed: str) -> Path:
    """Return the file of the rows with a hash (`fingerprint`)."""
    return ledger / "rows" / f"{hashed}.jsonl"


class Ledger:
    """The folder of a ledger; it may be empty or missing."""

    def __init__(self, folder: str | Path) -> None:
        """Open a folder.

        Raises:
            FileExistsError: it has other files.
        """
        self.folder = Path(folder).expanduser()
        self.requests, self.general = self.folder / "requests", self.folder / GENERAL_NAME
        known = {"requests", "rows", "models", GENERAL_NAME, ".lock"}
        begun = not self.folder.exists() or self.requests.is_dir()
        if not begun and (not self.folder.is_dir() or any(each.name not in known for each in self.folder.iterdir())):
            raise FileExistsError(f"{folder} is not an atwu ledger; give --ledger a new folder to start one.")

    def entries(self) -> tuple[Entry, ...]:
        """Read the finished requests in order.

        Raises:
            ValueError: a file is damaged, missing, or does not continue the one before.
        """
        files = sorted(self.requests.glob("*.json"))
        entries = tuple(
            read_declared(file, Entry, LEDGER_SCHEMA, what="request", made_by="atwu unlearn --ledger") for file in files
        )
        for place, entry in enumerate(entries):
            follows = place == 0 or entry.model_before.fingerprint == entries[place - 1].model_after.fingerprint
            if files[place].stem != f"{entry.number:04d}" or entry.number != place + 1 or not follows:
                raise ValueError(
                    f"{files[place]} does not continue the request before it; restore the files of {self.requests}."
                )
        return entries

    def rows(self, entry: Entry) -> Sequence[Example]:
        """Read the forget rows of a request.

        Raises:
            FileNotFoundError, ValueError: they are missing or changed.
        """
        file = self.folder / entry.forget_rows.source
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; restore it, since request {entry.number} is measured on it.")
        rows = load_rows(file).rows
        if fingerprint(rows) != entry.forget_rows.fingerprint:
            raise ValueError(f"{file} was changed; restore it, since request {entry.number} had other rows.")
        return rows

    def general_rows(self, *, recorded: bool) -> Sequence[Example]:
        """Read the original model's answers to general questions.

        Args:
            recorded: whether requests were measured on them; else there may be none.

        Raises:
            FileNotFoundError, ValueError: they are missing or damaged.
        """
        if recorded and not self.general.is_file():
            raise FileNotFoundError(
                f"{self.general} is missing; restore it, since earlier requests were measured on it."
            )
        return load_rows(self.general).rows if self.general.is_file() and self.general.stat().st_size else ()

    def keep_rows(self, rows: Sequence[Example]) -> None:
        """Store the forget rows of a request, readable by the user only."""
        path = rows_file(self.folder, fingerprint(rows))
        if not path.is_file():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_rows(path, rows)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the ledger against other processes; on leaving, remove what was created if nothing was written into it.

        Raises:
            FileExistsError: on entering, if another process uses it.
        """
        created = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        message = f"{self.folder} is in use by another request; wait for it."
        with file_lock(lock := self.folder / ".lock", taken=FileExistsError(message)):
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # not empty
                    (self.folder / "models").rmdir()
                with contextlib.suppress(OSError):
                    if created and list(self.folder.iterdir()) == [lock]:
                        lock.unlink()
                        for folder in created:
                            folder.rmdir()

    def name_of(self, model: str | Path) -> str:
        """Return the name of a model in an entry: a path is relative if it is in the ledger."""
        path = Path(model).expanduser()
        if not path.is_dir():
            return str(model)
        whole, here = path.resolve(), self.folder.resolve()  # either may be reached through a link
        return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(path.absolute())

    def model(self, used: ModelUsed) -> str:
        """Return the path or name of a model of an entry.

        Raises:
            FileNotFoundError: it is in the ledger, and missing.
        """
        inside = self.folder / used.name
        if used.name.startswith("models/") and not inside.is_dir():
            raise FileNotFoundError(f"{inside} is missing; restore it, the model that the last request left.")
        return str(inside) if inside.is_dir() else used.name

    def add(self, entry: Entry) -> None:
        """Write a finished request, and delete rows of requests that were never finished."""
        write_json(self.requests / f"{entry.number:04d}.json", dataclasses.asdict(entry))
        known = {(self.folder / each.forget_rows.source).name for each in self.entries()}
        for file in (self.folder / "rows").glob("*.jsonl"):
            if file.name not in known:
                file.unlink()
