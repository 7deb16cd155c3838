"""What a request leaves beside its model: what was asked and chosen, and what stood before training started.

A request works in `OUTPUT.request` and moves it to `OUTPUT/request` once its verdict is written, so a folder beside a finished
run is a request that was killed before its verdict. Nothing in it holds a row to forget, but for the questions shown with the
verdict; rows go by their hashes.
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

from atwu._file_reading import read_declared
from atwu._files import file_digest, file_lock, is_atomic_sibling, write_json
from atwu._manifest import RECORD_NAME
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.result import STRICT, EvalResult, RowValues, read_result, row_id
from atwu.request.auto_settings import Choice
from atwu.request.verdict import VERDICT_NAME, AnswerPair
from atwu.training.output_folder import OutputFolder, drop_unfinished, output_path, unfinished
from atwu.training.run_key import key_differences

REQUEST_SCHEMA: Final = "atwu.request/1"
MADE_BY = "atwu unlearn"
REQUEST_NAME = "request.json"
_WRITTEN = frozenset(["before.json", "general.jsonl", "retain.jsonl", REQUEST_NAME, "history.json", "after.json"])
"""Files of a request before its verdict."""


@dataclass(frozen=True, slots=True)
class RowsUsed:
    """A set of rows by its hashes."""

    source: str
    count: Annotated[int, Field(ge=0)]
    fingerprint: str
    """Sha256 over all of them, in order."""
    ids: tuple[str, ...] = ()
    """Of every row (`row_id`)."""

    @classmethod
    def of(cls, source: str, rows: Sequence[Example], *, each: bool = False) -> RowsUsed:
        """Of some rows; with the hash of each."""
        return cls(source, len(rows), fingerprint(rows), tuple(map(row_id, rows)) if each else ())


@dataclass(frozen=True, slots=True)
class ThresholdsSet:
    """Thresholds as they were set before training."""

    name: str
    sha256: str
    text: str


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What was asked, and what stood before training started."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    prepared_at: str
    """When it was written: UTC, ISO 8601."""
    about: str | None
    """Who asks for what, in words."""
    command: str
    key: Mapping[str, Any]
    """What makes it this request (`UnlearningRequest.key`)."""
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
    """Questions shown with the verdict, before; their `after` is empty."""
    ledger: str | None = None
    """Folder of the ledger that it belongs to, from the output."""
    replaced_run_digest: str | None = None
    """Digest of the `run.json` that was at the output, and is to be replaced."""
    schema: Literal["atwu.request/1"] = REQUEST_SCHEMA


class RequestFolder:
    """The files of the request whose model goes to `output`."""

    def __init__(self, output: str | Path) -> None:
        self.output = output_path(output)
        self.work = self.output.with_name(f"{self.output.name}.request")
        self.done = self.output / "request"

    @property
    def path(self) -> Path:
        """Where they are now."""
        return self.work if self.work.is_dir() else self.done

    @property
    def history(self) -> Path:
        """What the watch saw, written as training ends."""
        return self.path / "history.json"

    # Where a request stands

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Work on it while no other process does.

        Raises:
            FileExistsError: another one does.
        """
        lock = self.output.with_name(f".{self.output.name}.lock")
        said = f"another request is working on {self.output}; wait for it, or choose another output."
        with file_lock(lock, taken=FileExistsError(said)):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)

    def taken_up(self, key: Mapping[str, Any], *, overwrite: bool, judged: bool = False) -> bool:
        """Whether this same request was begun here, and goes on from what stands; what another one left is cleared away.

        Args:
            key: what makes it this request.
            overwrite: replace a finished run and discard what was begun.
            judged: also take up one that has its verdict.

        Raises:
            FileExistsError: a finished run, another request that has something to lose, or what is none is in the way.
        """
        if others := self._others():
            raise FileExistsError(
                f"{self.work} is where the request would work, and holds what is none of it ({', '.join(others[:3])}); move "
                "that away, or choose another output."
            )
        now = json.loads(json.dumps(key))
        if judged and not overwrite and self.judged() and self.request().key == now:
            return True
        if not overwrite and (self.work / REQUEST_NAME).is_file():
            before = self.request().key
            if before == now:
                if self.trained():  # and killed when its result was in place
                    drop_unfinished(self.output)
                else:
                    OutputFolder(self.output)
                return True
            if self.has_something_to_lose():
                raise FileExistsError(
                    f"{self.work} holds an unfinished request that differs in {key_differences(before, now)}; give its own "
                    "command again to finish it, or pass --overwrite to discard it."
                )
        OutputFolder(self.output, overwrite=overwrite)
        self.discard()
        return False

    def _others(self) -> list[str]:
        """Names at its working place that no request writes."""
        if not self.work.is_dir():
            return [self.work.name] if os.path.lexists(self.work) else []
        return sorted(
            each.name
            for each in self.work.iterdir()
            if each.name not in _WRITTEN and not is_atomic_sibling(Path(each.name))
        )

    def trained(self) -> bool:
        """Whether its run is finished, so that only the verdict is missing."""
        return self.history.is_file() and (self.output / RECORD_NAME).is_file() and not self._replaced()

    def judged(self) -> bool:
        """Whether its verdict is written."""
        return (
            not self.work.exists() and (self.done / REQUEST_NAME).is_file() and (self.output / VERDICT_NAME).is_file()
        )

    def _replaced(self) -> bool:
        """Whether what is at the output is the run that this request is to replace."""
        old = self.request().replaced_run_digest
        return (
            old is not None and (self.output / RECORD_NAME).is_file() and file_digest(self.output / RECORD_NAME) == old
        )

    def run(self) -> dict[str, Any]:
        """The record of its run."""
        found: dict[str, Any] = json.loads((self.output / RECORD_NAME).read_text(encoding="utf-8"))
        return found

    # Writing

    def begin(
        self, request: RequestRecord, before: EvalResult, general: Sequence[Example], kept: Sequence[Example] | None
    ) -> None:
        """Write what stands before training starts; `request.json` last, so that with it everything is there.

        Args:
            general: the starting model's own answers to general questions.
            kept: rows to keep that were made and not given.
        """
        self.work.mkdir(parents=True, exist_ok=True)
        without_texts(before).write(self.work / "before.json")
        write_rows(self.work / "general.jsonl", general)
        if kept is not None:
            write_rows(self.work / "retain.jsonl", kept)
        old = self.output / RECORD_NAME
        request = dataclasses.replace(request, replaced_run_digest=file_digest(old) if old.is_file() else None)
        write_json(self.work / REQUEST_NAME, dataclasses.asdict(request))

    def close(self, after: EvalResult) -> None:
        """The verdict is written: the files go to the finished run."""
        without_texts(after).write(self.work / "after.json")
        os.replace(self.work, self.done)

    def has_something_to_lose(self) -> bool:
        """Whether training was paid for."""
        return self.trained() or bool(list(unfinished(self.output).glob("checkpoint-*")))

    def discard(self) -> None:
        """Remove what an unfinished request left."""
        shutil.rmtree(self.work, ignore_errors=True)

    # Reading

    def request(self) -> RequestRecord:
        """The record.

        Raises:
            FileNotFoundError, ValueError: it is not there, or not as declared.
        """
        return read_declared(self.path / REQUEST_NAME, RequestRecord, REQUEST_SCHEMA, what="request", made_by=MADE_BY)

    def result(self, name: str) -> EvalResult:
        """What was measured `before` or `after`.

        Raises:
            FileNotFoundError, ValueError: it is not there, or not as declared.
        """
        return read_result(self.path / f"{name}.json")

    def rows(self, name: str) -> Sequence[Example] | None:
        """`general` or `retain`; None where they are not there."""
        file = self.path / f"{name}.jsonl"
        if not file.is_file():
            return None
        return load_rows(file).rows if file.stat().st_size else ()


def without_texts(result: EvalResult) -> EvalResult:
    """A result without what the model said and whom the rows are about."""
    rows = {
        split: dataclasses.replace(values, texts={}, subjects=_numbered(values))
        for split, values in result.rows.items()
    }
    return dataclasses.replace(result, rows=rows)


def _numbered(values: RowValues) -> tuple[str, ...]:
    """Numbers for subjects, in the order of the names: draws of intervals follow it. Rows without subjects keep their own."""
    if values.subjects == values.ids:
        return values.ids
    places = {name: f"{place:06}" for place, name in enumerate(sorted(set(values.subjects)))}
    return tuple(places[name] for name in values.subjects)
