"""Files that a request keeps besides its model: the request, the chosen settings, and measurements before training.

A request works in `OUTPUT.request` and moves that folder to `OUTPUT/request` with its verdict. An `OUTPUT.request` next to a
finished run therefore is a request that was killed before its verdict. The files hold hashes of the forget rows, not the
rows, except for the few questions that the verdict shows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from atwu._file_reading import read_declared, read_object
from atwu._files import file_digest, file_lock, is_atomic_sibling, write_json
from atwu._manifest import RECORD_NAME
from atwu._renamed import current_set, upgrade
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.result import STRICT, EvalResult, RowValues, read_result, row_id
from atwu.request.auto_settings import Choice
from atwu.request.verdict import VERDICT_NAME, AnswerPair
from atwu.training.output_folder import OutputFolder, drop_unfinished, output_path, unfinished
from atwu.training.run_key import key_differences

REQUEST_SCHEMA: Final = "atwu.request/2"
MADE_BY = "atwu unlearn"
REQUEST_NAME = "request.json"
HISTORY_NAME, OLD_HISTORY_NAME = "history.json", "course.json"
_WRITTEN = frozenset(
    [
        "before.json",
        "general.jsonl",
        "neighbours.jsonl",
        "retain.jsonl",
        REQUEST_NAME,
        HISTORY_NAME,
        OLD_HISTORY_NAME,
        "after.json",
    ]
)
"""Files that a request writes before its verdict."""


@dataclass(frozen=True, slots=True)
class RowsUsed:
    """A set of rows by source and hashes."""

    source: str
    count: Annotated[int, Field(ge=0)]
    fingerprint: str
    """Sha256 of all rows, in order."""
    ids: tuple[str, ...] = ()
    """Hash of every row (`row_id`)."""

    @classmethod
    def of(cls, source: str, rows: Sequence[Example], *, each: bool = False) -> RowsUsed:
        """Describe some rows; with `each`, also by the hash of every row."""
        return cls(source, len(rows), fingerprint(rows), tuple(map(row_id, rows)) if each else ())


@dataclass(frozen=True, slots=True)
class ThresholdsSet:
    """Thresholds as recorded before training."""

    name: str
    sha256: str
    text: str


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request as recorded before training."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    prepared_at: str
    """Time of the record: UTC, ISO 8601."""
    about: str | None
    """Description of the request and who made it."""
    command: str
    key: Mapping[str, Any]
    """What identifies the request (`UnlearningRequest.key`)."""
    model: str
    forget: RowsUsed
    retain: RowsUsed | None
    holdout: RowsUsed
    max_retain_increase: float
    system: str | None
    max_length: int
    choices: tuple[Choice, ...]
    thresholds: ThresholdsSet
    sample_answers: tuple[AnswerPair, ...]
    """Questions to show with the verdict; `after` is empty."""
    ledger: str | None = None
    """Folder of its ledger, relative to the output."""
    replaced_run_digest: str | None = None
    """Digest of the `run.json` at the output that this request replaces."""
    schema: Literal["atwu.request/2"] = REQUEST_SCHEMA


class RequestFolder:
    """Files of the request whose model is saved at `output`."""

    def __init__(self, output: str | Path) -> None:
        self.output = output_path(output)
        self.work = self.output.with_name(f"{self.output.name}.request")
        self.done = self.output / "request"

    @property
    def path(self) -> Path:
        """Folder of the files: the working folder, or the one in the finished run."""
        return self.work if self.work.is_dir() else self.done

    @property
    def history(self) -> Path:
        """The training history, written when training ends; earlier versions gave it another name."""
        old = self.path / OLD_HISTORY_NAME
        return old if old.is_file() else self.path / HISTORY_NAME

    # State

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the request against other processes.

        Raises:
            FileExistsError: another process works on it.
        """
        lock = self.output.with_name(f".{self.output.name}.lock")
        message = f"another request is working on {self.output}; wait for it, or choose another output."
        with file_lock(lock, taken=FileExistsError(message)):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)

    def resumes(self, key: Mapping[str, Any], *, overwrite: bool, finished: bool = False) -> bool:
        """Whether this same request was begun here and continues; leftovers of another request are removed.

        Args:
            key: what identifies the request.
            overwrite: replace a finished run and discard an unfinished request.
            finished: also continue a request that has its verdict.

        Raises:
            FileExistsError: there is a finished run, another request with training results, or a foreign file.
        """
        if others := self._others():
            raise FileExistsError(
                f"{self.work} is the working folder of the request and has files of something else "
                f"({', '.join(others[:3])}); move them away, or choose another output."
            )
        now = json.loads(json.dumps(key))
        if finished and not overwrite and self.finished() and self.request().key == now:
            return True
        if not overwrite and (self.work / REQUEST_NAME).is_file():
            before = self.request().key
            if before == now:
                if self.trained():  # killed after its run was saved
                    drop_unfinished(self.output)
                else:
                    OutputFolder(self.output)
                return True
            if self.has_something_to_lose():
                raise FileExistsError(
                    f"{self.work} holds an unfinished request that differs in {key_differences(before, now)}; repeat its "
                    "command to finish it, or pass --overwrite to discard it."
                )
        OutputFolder(self.output, overwrite=overwrite)
        self.discard()
        return False

    def _others(self) -> list[str]:
        """Names in the working folder that no request writes."""
        if not self.work.is_dir():
            return [self.work.name] if os.path.lexists(self.work) else []
        return sorted(
            each.name
            for each in self.work.iterdir()
            if each.name not in _WRITTEN and not is_atomic_sibling(Path(each.name))
        )

    def trained(self) -> bool:
        """Whether training is finished, so that only the verdict is missing."""
        return self.history.is_file() and (self.output / RECORD_NAME).is_file() and not self._replaced()

    def finished(self) -> bool:
        """Whether the verdict is written."""
        return (
            not self.work.exists() and (self.done / REQUEST_NAME).is_file() and (self.output / VERDICT_NAME).is_file()
        )

    def _replaced(self) -> bool:
        """Whether the output still is the run that this request replaces."""
        old = self.request().replaced_run_digest
        return (
            old is not None and (self.output / RECORD_NAME).is_file() and file_digest(self.output / RECORD_NAME) == old
        )

    def run(self) -> dict[str, Any]:
        """Return the record of the training run."""
        return upgrade(read_object(self.output / RECORD_NAME))

    # Writing

    def begin(
        self,
        request: RequestRecord,
        before: EvalResult,
        general: Sequence[Example],
        kept: Sequence[Example] | None,
        neighbours: Sequence[Example] = (),
    ) -> None:
        """Record the request before training; `request.json` is written last and marks the record as complete.

        Args:
            general: answers of the original model to general questions.
            kept: self-generated retain rows; None if rows were given.
            neighbours: the neighbour set.
        """
        self.work.mkdir(parents=True, exist_ok=True)
        without_texts(before).write(self.work / "before.json")
        write_rows(self.work / "general.jsonl", general)
        write_rows(self.work / "neighbours.jsonl", neighbours)
        if kept is not None:
            write_rows(self.work / "retain.jsonl", kept)
        old = self.output / RECORD_NAME
        request = dataclasses.replace(request, replaced_run_digest=file_digest(old) if old.is_file() else None)
        write_json(self.work / REQUEST_NAME, dataclasses.asdict(request))

    def close(self, after: EvalResult) -> None:
        """Move the files to the finished run, with the measurements of the unlearned model."""
        without_texts(after).write(self.work / "after.json")
        os.replace(self.work, self.done)

    def has_something_to_lose(self) -> bool:
        """Whether there are training results that would be lost."""
        return self.trained() or bool(list(unfinished(self.output).glob("checkpoint-*")))

    def discard(self) -> None:
        """Remove the files of an unfinished request."""
        shutil.rmtree(self.work, ignore_errors=True)

    # Reading

    def request(self) -> RequestRecord:
        """Read the record of the request.

        Raises:
            FileNotFoundError, ValueError: it is missing or invalid.
        """
        return read_declared(self.path / REQUEST_NAME, RequestRecord, REQUEST_SCHEMA, what="request", made_by=MADE_BY)

    def result(self, name: str) -> EvalResult:
        """Read the measurements `before` or `after`.

        Raises:
            FileNotFoundError, ValueError: they are missing or invalid.
        """
        return with_current_sets(read_result(self.path / f"{name}.json"))

    def rows(self, name: str) -> Sequence[Example] | None:
        """Read the rows `general`, `neighbours` or `retain`; None if there are none."""
        file = self.path / f"{name}.jsonl"
        if not file.is_file():
            return None
        return load_rows(file).rows if file.stat().st_size else ()


def without_texts(result: EvalResult) -> EvalResult:
    """Return a result without the generated texts and the names of subjects."""
    rows = {
        split: dataclasses.replace(values, texts={}, subjects=_numbered(values))
        for split, values in result.rows.items()
    }
    return dataclasses.replace(result, rows=rows)


def with_current_sets(result: EvalResult) -> EvalResult:
    """Return a result with today's names of the sets of a request."""
    sets = {current_set(split): values for split, values in result.sets.items()}
    return dataclasses.replace(
        result, sets=sets, rows={current_set(split): rows for split, rows in result.rows.items()}
    )


def _numbered(values: RowValues) -> tuple[str, ...]:
    """Replace subjects by numbers in the order of their names, which bootstrap draws follow; rows without subjects keep ids."""
    if values.subjects == values.ids:
        return values.ids
    places = {name: f"{place:06}" for place, name in enumerate(sorted(set(values.subjects)))}
    return tuple(places[name] for name in values.subjects)
