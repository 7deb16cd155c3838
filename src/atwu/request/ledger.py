"""Requests one after the other on the same model: a folder that remembers them, so that each can heed the earlier ones.

    LEDGER/requests/0001.json   one file per finished request, written last
    LEDGER/rows/SHA256.jsonl    the rows that requests removed; without them nothing could be measured again
    LEDGER/general.jsonl        what the first model answered to general questions
    LEDGER/models/0001/         the model that each request left, unless it was sent elsewhere

A request that is killed has no file; the same command takes it up where it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from atwu._file_reading import read_declared
from atwu._files import file_lock, write_json
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.result import STRICT
from atwu.request.regression_check import BaselineScore, RegressionCheck, UtilityDrift
from atwu.request.request_folder import RowsUsed

LEDGER_SCHEMA: Final = "atwu.ledger/1"
GENERAL_NAME = "general.jsonl"


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """A model by name and by its weights."""

    name: str
    """A path is relative to the ledger where it lies in it."""
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished request."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    number: Annotated[int, Field(ge=1)]
    prepared_at: str
    """When it was prepared: UTC, ISO 8601."""
    finished_at: str
    about: str | None
    command: str
    key: Mapping[str, Any]
    """What makes it this request (`UnlearningRequest.key`)."""
    forget_rows: RowsUsed
    model_before: ModelUsed
    model_after: ModelUsed
    """What it left; the same as `before` where there was nothing to forget."""
    outcome: str
    """Of its verdict."""
    reason: str
    thresholds_sha256: str
    """Sha256 of the thresholds."""
    baseline: tuple[BaselineScore, ...]
    """How well its rows were known before and after."""
    regression_checks: tuple[RegressionCheck, ...]
    """The earlier requests, measured again on the model it left."""
    utility_drift: UtilityDrift | None = None
    """None until there was something to forget."""
    schema: Literal["atwu.ledger/1"] = LEDGER_SCHEMA

    @property
    def came_back(self) -> tuple[int, ...]:
        """Earlier requests whose rows it brought back."""
        return tuple(each.number for each in self.regression_checks if each.came_back)


def rows_file(ledger: Path, hashed: str) -> Path:
    """Where a ledger keeps the rows of a request: under their hash (`fingerprint`)."""
    return ledger / "rows" / f"{hashed}.jsonl"


class Ledger:
    """The folder of a ledger; it may be empty, or not there yet."""

    def __init__(self, folder: str | Path) -> None:
        """Take a folder.

        Raises:
            FileExistsError: it holds something else.
        """
        self.folder = Path(folder).expanduser()
        self.requests = self.folder / "requests"
        known = {"requests", "rows", "models", GENERAL_NAME, ".lock"}
        if self.folder.exists():
            others = (
                []
                if not self.folder.is_dir()
                else [each.name for each in self.folder.iterdir() if each.name not in known]
            )
            if not self.folder.is_dir() or (others and not self.requests.is_dir()):
                raise FileExistsError(f"{folder} is no ledger of atwu; give --ledger a new folder to start one.")

    def entries(self) -> tuple[Entry, ...]:
        """The finished requests in their order.

        Raises:
            ValueError: a file is damaged, missing, or does not follow from the one before.
        """
        files = sorted(self.requests.glob("*.json"))
        found = tuple(
            read_declared(file, Entry, LEDGER_SCHEMA, what="request", made_by="atwu unlearn --ledger") for file in files
        )
        for place, entry in enumerate(found):
            follows = place == 0 or entry.model_before.fingerprint == found[place - 1].model_after.fingerprint
            if files[place].stem != f"{entry.number:04d}" or entry.number != place + 1 or not follows:
                raise ValueError(
                    f"{files[place]} does not follow from the request before it; put back what was moved or changed in "
                    f"{self.requests}."
                )
        return found

    def rows(self, entry: Entry) -> Sequence[Example]:
        """The rows that a request removed.

        Raises:
            FileNotFoundError, ValueError: they are gone, or changed.
        """
        rows = load_rows(self.folder / entry.forget_rows.source).rows
        if fingerprint(rows) != entry.forget_rows.fingerprint:
            raise ValueError(f"{self.folder / entry.forget_rows.source} was changed; request {entry.number} had other rows.")
        return rows

    def file_of(self, hashed: str) -> Path:
        """Where the rows of a request are kept: under their hash (`fingerprint`)."""
        return rows_file(self.folder, hashed)

    def keep_rows(self, rows: Sequence[Example]) -> None:
        """Keep the rows of a request; only the user may read them."""
        path = self.file_of(fingerprint(rows))
        if not path.is_file():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_rows(path, rows)

    def general(self) -> Sequence[Example]:
        """What the first model answered to general questions."""
        path = self.folder / GENERAL_NAME
        return load_rows(path).rows if path.is_file() and path.stat().st_size else ()

    def keep_general(self, rows: Sequence[Example]) -> None:
        """Keep what the first model answered."""
        write_rows(self.folder / GENERAL_NAME, rows)

    def alone(self) -> AbstractContextManager[object]:
        """Work on it while no other process does.

        Raises:
            FileExistsError: on entering, another one does.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        said = f"{self.folder} is in use by another request; wait for it."
        return file_lock(self.folder / ".lock", taken=FileExistsError(said))

    def output(self, number: int) -> Path:
        """Where the model of a request goes."""
        return self.folder / "models" / f"{number:04d}"

    def name_of(self, model: str | Path) -> str:
        """How an entry calls a model: a folder by its path, relative where it lies in the ledger."""
        path, here = Path(model).expanduser(), self.folder.absolute()
        if not path.is_dir():
            return str(model)
        whole = path.absolute()
        return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)

    def model(self, used: ModelUsed) -> str:
        """Where a model is, from what an entry calls it."""
        inside = self.folder / used.name
        return str(inside) if inside.is_dir() else used.name

    def add(self, entry: Entry) -> None:
        """Write a finished request, and drop rows of others that never were finished."""
        write_json(self.requests / f"{entry.number:04d}.json", dataclasses.asdict(entry))
        known = {(self.folder / each.forget_rows.source).name for each in self.entries()}
        for file in (self.folder / "rows").glob("*.jsonl"):
            if file.name not in known:
                file.unlink()
