"""Files of a request, in the folder `request` of its run: the request, its settings, and measurements.

They hold hashes of the forget rows, not the rows, unless the rows are what the model said (`asked_rows.py`); the verdict itself
shows questions with what the unlearned model answers.
"""

from __future__ import annotations

import dataclasses
import datetime
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from atwu._file_reading import read_declared, read_object
from atwu._files import write_json
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.facts.fact_table import FactTable, read_fact_table
from atwu.evaluation.result import STRICT, row_id
from atwu.request.asking.ask_result import AskResult, write_records
from atwu.request.asking.subject_templates import CHAIN, TRAINED_CHAIN
from atwu.request.auto_settings import Choice
from atwu.request.neighbours import Neighbours
from atwu.request.regression_check import Baseline
from atwu.request.row_facts import RowFact
from atwu.training.run_folder import REQUEST_FOLDER

REQUEST_SCHEMA: Final = "atwu.request/7"
MADE_BY = "atwu unlearn"
REQUEST_NAME = "request.json"
HISTORY_NAME = "history.json"
ANSWERS_NAME = "answers_{}.json"
MEASURED_RETAIN_NAME = "measured_retain.json"
ROWS_NAME, CHAINED_NAME, ASKED_NAME = "rows.jsonl", "chained.jsonl", "asked.json"
TRAINED_CHAINED_NAME = "trained_chained.jsonl"
"""Of a request that gives names or questions: the forget rows, questions about their answers that are only measured, what was
asked, and further questions about answers, which are trained on."""


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
    def of(cls, source: str, rows: Sequence[Example], *, with_ids: bool = False) -> RowsUsed:
        """Describe some rows; with `with_ids`, also by the hash of every row."""
        ids: tuple[str, ...] = ()
        if with_ids:
            ids = tuple(row_id(row) for row in rows)
        return cls(source, len(rows), fingerprint(rows), ids)


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    """A request on the model that this one starts from, or on one before it."""

    run: str
    """Folder of its run, as it was then."""
    forget: RowsUsed
    facts: tuple[RowFact, ...]
    """What carries the fact of each forget row."""
    system: str | None
    """System prompt of the questions."""
    baseline: Baseline
    retain_loss_increase: float | None
    """In nats/token; None if it was not a number."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request as recorded before training."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    prepared_at: str
    """Time of the record: UTC, ISO 8601."""
    request_note: str | None
    """Description of the request and who made it."""
    command: str
    key: Mapping[str, Any]
    """What identifies the request (`UnlearningRequest.key`)."""
    model: str
    fingerprint: str
    """Of the original model's weights."""
    forget: RowsUsed
    retain: RowsUsed | None
    holdout: RowsUsed
    max_retain_increase: float
    system: str | None
    max_length: int
    choices: tuple[Choice, ...]
    question_chance: float
    """`fact_probability` above which a question is known (`measure_chance`)."""
    facts: tuple[RowFact, ...] = ()
    """What carries the fact of each forget row."""
    known: tuple[float | None, ...] = ()
    """Probability of each fact against alternatives in the original model (`known_probabilities`)."""
    text_chance: float | None = None
    """The same of a text to be recited (`measure_text_chance`); None without texts."""
    earlier: tuple[EarlierRequest, ...] = ()
    """The requests that left the original model, the first one first."""
    replaced_run_digest: str | None = None
    """Digest of the `run.json` at the output that this request replaces."""
    schema: Literal["atwu.request/7"] = REQUEST_SCHEMA


class RequestFolder:
    """Files of a request.

    Args:
        run: folder of its run, `OUTPUT.incomplete` until the verdict.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.path = run, run / REQUEST_FOLDER

    @property
    def rows_file(self) -> Path:
        """The forget rows of a request that gives names or questions."""
        return self.path / ROWS_NAME

    def write_asked(self, result: AskResult, key: Mapping[str, Any]) -> None:
        """Write what the original model said; the key is written last and marks it as complete."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_records(self.rows_file, [fact.record() for fact in result.direct])
        for name, source in ((CHAINED_NAME, CHAIN), (TRAINED_CHAINED_NAME, TRAINED_CHAIN)):
            write_records(self.path / name, [fact.record() for fact in result.chained if fact.source == source])
        write_json(self.path / ASKED_NAME, {"key": key, "kinds": list(result.kinds)})

    def asked_key(self) -> Mapping[str, Any] | None:
        """Return what identifies the model and what it was asked; None if it was not asked."""
        key: Mapping[str, Any] | None = self._asked().get("key")
        return key

    def asked_kinds(self) -> tuple[str, ...]:
        """Return the kinds of the names that the model was asked about."""
        return tuple(self._asked().get("kinds", ()))

    def _asked(self) -> Mapping[str, Any]:
        file = self.path / ASKED_NAME
        if not file.is_file():
            return {}
        return read_object(file)

    def forget_source(self, recorded: str) -> str:
        """Return the source of the forget rows: their file in this folder, which may have been moved, else the recorded one."""
        if self.rows_file.is_file():
            return str(self.rows_file)
        return recorded

    def clear(self, *, keep_asked: bool) -> None:
        """Remove everything; with `keep_asked`, but what the original model said, from which the request starts."""
        if not keep_asked:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        kept = {ROWS_NAME, CHAINED_NAME, TRAINED_CHAINED_NAME, ASKED_NAME}
        entries = [*self.path.iterdir()] if self.path.is_dir() else []
        for entry in entries:
            if entry.name not in kept:
                entry.unlink()
        if entries and self.asked_key() is None:
            shutil.rmtree(self.path)

    @property
    def history(self) -> Path:
        """The training history, written when training ends."""
        return self.path / HISTORY_NAME

    def begin(self, request: RequestRecord, general: Sequence[Example], kept: Sequence[Example] | None) -> None:
        """Record the request before training; `request.json` is written last and marks the record as complete.

        Args:
            general: answers of the original model to general questions.
            kept: self-generated retain rows; None if rows were given.
        """
        self.path.mkdir(parents=True, exist_ok=True)  # with the rows that the model said
        write_rows(self.path / "general.jsonl", general)
        if kept is not None:
            write_rows(self.path / "retain.jsonl", kept)
        write_json(self.path / REQUEST_NAME, dataclasses.asdict(request))

    def request(self) -> RequestRecord:
        """Read the record of the request; raises FileNotFoundError or ValueError."""
        return read_declared(self.path / REQUEST_NAME, RequestRecord, REQUEST_SCHEMA, what="request", made_by=MADE_BY)

    def key(self) -> Mapping[str, Any] | None:
        """Read what identifies the request; None if none was recorded."""
        return self.request().key if (self.path / REQUEST_NAME).is_file() else None

    def write_answers(self, name: str, answers: FactTable) -> None:
        """Write what the model `before` or `after` said, without texts."""
        answers.without_texts().write(self.path / ANSWERS_NAME.format(name))

    def answers(self, name: str) -> FactTable:
        """Read what the model `before` or `after` said, without texts; raises FileNotFoundError or ValueError."""
        return read_fact_table(self.path / ANSWERS_NAME.format(name))

    def write_neighbours(self, neighbours: Neighbours) -> None:
        """Write the neighbour set; of given retain rows only their places and facts, since other files have the rows."""
        write_rows(self.path / "neighbours.jsonl", neighbours.own)
        retain = [
            {"place": place, "fact": dataclasses.asdict(RowFact.of(row))} for place, row in neighbours.retain.items()
        ]
        write_json(self.path / MEASURED_RETAIN_NAME, {"rows": retain})

    def neighbours(self, retain: Sequence[Example]) -> tuple[Example, ...]:
        """Return the neighbour set: what the model said, then given retain rows.

        Args:
            retain: the retain rows of the request; empty if they are not at hand, which leaves theirs out.
        """
        own = tuple(self.rows("neighbours") or ())
        file = self.path / MEASURED_RETAIN_NAME
        if not retain or not file.is_file():
            return own
        measured = read_object(file)["rows"]
        return (*own, *(RowFact(**row["fact"]).put_on(retain[row["place"]]) for row in measured))

    def rows(self, name: str) -> Sequence[Example] | None:
        """Read the rows `general`, `neighbours`, `retain`, `rows`, `chained` or `trained_chained`; None if there are none."""
        file = self.path / f"{name}.jsonl"
        if not file.is_file():
            return None
        return load_rows(file).rows if file.stat().st_size else ()


def utc_now() -> str:
    """Return the current time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
