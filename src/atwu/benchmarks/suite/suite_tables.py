"""The files of SUITE (Peleg et al. 2026): one copy of a topic, from a folder or from the Hub, counted and checked.

A folder holds one sub-folder per topic, as `ATWU_DATA/suite/TOPIC/forget_train.jsonl`; `adversarial` may also be one JSON
list. On the Hub the topics share tables with a column `topic`, and there is no table of adversarial questions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from atwu.benchmarks.dataset_files import DATA_VARIABLE
from atwu.data.records import Record, hub_records, read_json_records, read_jsonl_records

SUITE_HUB = "apeleg/SUITE"
REPHRASINGS_HUB = "apeleg/SUITE-rephrasings"

SUITE_TOPICS: Mapping[str, int | None] = {
    "challenger_disaster": 450,
    "salem_witch_trials": 425,
    "steve_jobs_medical": None,
    "britney_spears_conservatorship": None,
}
"""Topic -> rows of its `forget_train` as published; None where we have not counted them."""
FACTS = 25
"""Facts of a topic."""

PAIRED = ("forget_train", "retain_train")
"""Tables of equal length: row i of one belongs to row i of the other."""
HUB_OF: Mapping[str, str | None] = {
    **dict.fromkeys((*PAIRED, "forget_eval", "retain_eval"), SUITE_HUB),
    "forget_eval_rephrasings": REPHRASINGS_HUB,
    "adversarial": None,
}
"""Table -> its data set on the Hub; None where it is only in the authors' repository."""
COLUMNS = ("question", "answer", "label")


@dataclass(frozen=True, slots=True)
class SuiteTables:
    """One copy of one topic."""

    topic: str
    folder: Path | None
    """Folder of the topic's files; None for the Hub."""
    _read: dict[str, tuple[Record, ...]] = field(default_factory=dict, repr=False, compare=False)

    def has(self, name: str) -> bool:
        """Whether the copy has a table."""
        return HUB_OF[name] is not None if self.folder is None else self._path(name).is_file()

    def table(self, name: str) -> tuple[Record, ...]:
        """The records of a table; every table is read and checked once.

        Raises:
            FileNotFoundError: the copy lacks it.
            ValueError: a row without question, answer or label, a number of rows that was not published, or the Hub does not
                answer.
        """
        if name not in self._read:
            records = self._records(name)
            _check_columns(records, name)
            expected = SUITE_TOPICS.get(self.topic) if name in PAIRED else None
            if expected is not None and len(records) != expected:
                raise ValueError(
                    f"{self._place(name)}: found {len(records)} rows, expected {expected}; get the file again."
                )
            self._read[name] = records
        return self._read[name]

    def _place(self, name: str) -> str:
        return f"{HUB_OF[name]}:{name}" if self.folder is None else str(self._path(name))

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        lines = self.folder / f"{name}.jsonl"
        return self.folder / f"{name}.json" if name == "adversarial" and not lines.is_file() else lines

    def _records(self, name: str) -> tuple[Record, ...]:
        hub = HUB_OF[name]
        if self.folder is None:
            if hub is None:
                raise FileNotFoundError(
                    f"the table {name} of SUITE is not on the Hub; put the topic's files into a folder and set "
                    f"{DATA_VARIABLE} to the folder above suite/{self.topic}."
                )
            because = f"{DATA_VARIABLE} is not set, so SUITE is taken from the Hub ({hub})"
            found = tuple(
                record for record in hub_records(hub, None, name, because=because) if _topic(record) == self.topic
            )
            if not found:
                raise ValueError(f"{hub}:{name} has no rows of the topic {self.topic!r}.")
            return found
        path = self._path(name)
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist; put the rows of {name} there, or unset {DATA_VARIABLE}.")
        return tuple((read_json_records if path.suffix == ".json" else read_jsonl_records)(path))


def suite_tables(topic: str, folder: str | Path | None = None) -> SuiteTables:
    """A copy of one topic.

    Args:
        topic: one of `SUITE_TOPICS`, or the name of a sub-folder.
        folder: where the topics' folders are; None takes the copy that ATWU_DATA points to (its sub-folder `suite`, or the
            folder itself), or the Hub's when that is not set.

    Raises:
        FileNotFoundError: the folder has no such topic.
        ValueError: the Hub is asked for a topic that SUITE does not have.
    """
    given = folder or os.environ.get(DATA_VARIABLE)
    if not given:
        if topic not in SUITE_TOPICS:
            raise ValueError(f"SUITE has no topic {topic!r}; its topics are {', '.join(SUITE_TOPICS)}.")
        return SuiteTables(topic, None)
    root = Path(given).expanduser()
    tried = (root / topic,) if folder else (root / "suite" / topic, root / topic)
    for place in tried:
        if (place / "forget_train.jsonl").is_file():
            return SuiteTables(topic, place)
    raise FileNotFoundError(
        f"no forget_train.jsonl in {' or '.join(map(str, tried))}; topics of SUITE are {', '.join(SUITE_TOPICS)}. Put the "
        f"topic's files there, or unset {DATA_VARIABLE} to take SUITE from the Hub ({SUITE_HUB})."
    )


def local_topics() -> Path | None:
    """Return the folder in ATWU_DATA that has topics of SUITE; None without one, or if ATWU_DATA is not set."""
    given = os.environ.get(DATA_VARIABLE)
    root = Path(given or "").expanduser()
    places = (root / "suite", root) if given else ()
    return next((place for place in places if any(place.glob("*/forget_train.jsonl"))), None)


def _topic(record: Record) -> object:
    return record[1].get("topic")


def _check_columns(records: tuple[Record, ...], name: str) -> None:
    for where, columns in records:
        missing = [column for column in COLUMNS if not isinstance(columns.get(column), str)]
        if missing:
            raise ValueError(
                f"{where}: a row of {name} needs the columns {', '.join(COLUMNS)} as text; found no {', '.join(missing)}."
            )
