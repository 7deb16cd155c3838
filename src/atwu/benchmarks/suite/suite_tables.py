"""The files of SUITE (Peleg et al. 2026): one copy of a topic, from a folder or from the Hub.

A folder holds one sub-folder per topic, as `ATWU_DATA/suite/TOPIC/forget_train.jsonl`. On the Hub the topics share tables
with a column `topic`, and there is no table of adversarial questions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from atwu.benchmarks.dataset_files import DATA_VARIABLE, DataSet, PublishedFile, Tables
from atwu.data.records import Record, hub_records

SUITE_HUB = "apeleg/SUITE"
REPHRASINGS = "forget_eval_rephrasings"

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
_TABLES = (*PAIRED, "forget_eval", "retain_eval", REPHRASINGS, "adversarial")


class SuiteTables(Tables):
    """One copy of one topic."""

    def __init__(self, topic: str, folder: Path | None) -> None:
        """Open the topic's files in a folder; None for the Hub."""
        columns, rows = ("question", "answer", "label"), SUITE_TOPICS.get(topic)
        tables = {
            name: PublishedFile(rows if name in PAIRED else None, columns, on_hub=name != "adversarial")
            for name in _TABLES
        }
        super().__init__(DataSet("SUITE", SUITE_HUB, tables), folder)
        self.topic = topic

    def _records(self, name: str) -> Iterable[Record]:
        if self.folder is not None or not self.has(name):
            return super()._records(name)
        hub = f"{SUITE_HUB}-rephrasings" if name == REPHRASINGS else SUITE_HUB
        because = f"{DATA_VARIABLE} is not set, so SUITE is taken from the Hub ({hub})"
        found = [
            record for record in hub_records(hub, None, name, because=because) if record[1].get("topic") == self.topic
        ]
        if not found:
            raise ValueError(f"{hub}:{name} has no rows of the topic {self.topic!r}.")
        return found


def suite_tables(topic: str, folder: str | Path | None = None) -> SuiteTables:
    """A copy of one topic.

    Args:
        topic: one of `SUITE_TOPICS`, or the name of a sub-folder.
        folder: where the topics' folders are; None takes the copy that ATWU_DATA points to (its sub-folder `suite`, or the
            folder itself), or the Hub's when that is not set.
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
