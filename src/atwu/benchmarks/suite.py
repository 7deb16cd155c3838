"""SUITE (Peleg et al. 2026): rows of `suite:TOPIC:SPLIT[:N]` with what their labels say, and the benchmark of one topic.

A label such as `K3-reverse@blank_claude2` names the fact, how it is asked (directly, reversed, indirectly over a second
fact) and the wording; `Semantic-4-...`, `Syntax-...`, `Lexical-...` and `GK-...` name the tier of a retain row.
The model to unlearn learns the facts in direct forms (`forget_train`, the direct rows of `forget_eval`), the retain rows, and
the retain rows of the evaluation, so that damage to what unlearning is not shown can be seen.

A folder holds one sub-folder per topic, as `ATWU_DATA/suite/TOPIC/forget_train.jsonl`. On the Hub the topics share tables
with a column `topic`, and there is no table of adversarial questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from atwu.benchmarks.base import Benchmark, LoadedRows, first_rows, name_parts, rows_to_measure
from atwu.benchmarks.dataset_files import (
    DATA_VARIABLE,
    DataSet,
    PublishedFile,
    Tables,
    local_folder,
    open_tables,
)
from atwu.data.records import Record, hub_records
from atwu.data.schema import Example

_COLUMNS = ("question", "answer", "label")
SUITE_DATA = DataSet("SUITE", "apeleg/SUITE", {"*/forget_train": PublishedFile(None, _COLUMNS)})
"""Where the topics are; `suite_tables` opens one."""
REPHRASINGS = "forget_eval_rephrasings"

SUITE_TOPICS: Mapping[str, int | None] = {
    "challenger_disaster": 450,
    "salem_witch_trials": 425,
    "steve_jobs_medical": None,
    "britney_spears_conservatorship": None,
}
"""Topic -> rows of its `forget_train` as published; None where we have not counted them."""

PAIRED = ("forget_train", "retain_train")
"""Tables of equal length: row i of one belongs to row i of the other."""
_TABLES = (*PAIRED, "forget_eval", "retain_eval", REPHRASINGS, "adversarial")


def suite_tables(topic: str, folder: str | Path | None = None) -> Tables:
    """Open one topic.

    Args:
        topic: one of `SUITE_TOPICS`, or the name of a sub-folder.
        folder: where the topics' folders are; None takes the copy that ATWU_DATA points to (its sub-folder `suite`, or the
            folder itself), or the Hub's, where the topics share tables, if that is not set.
    """

    def from_hub(name: str) -> Iterable[Record]:
        hub = SUITE_DATA.hub
        if name == REPHRASINGS:
            # A repository of its own.
            hub = f"{hub}-rephrasings"
        because = f"{DATA_VARIABLE} is not set, so SUITE is taken from the Hub ({hub})"
        records = [
            record for record in hub_records(hub, None, name, because=because) if record[1].get("topic") == topic
        ]
        if not records:
            raise ValueError(f"{hub}:{name} has no rows of the topic {topic!r}.")
        return records

    tables = {name: PublishedFile(None, _COLUMNS, on_hub=name != "adversarial") for name in _TABLES}
    tables |= {name: PublishedFile(SUITE_TOPICS.get(topic), _COLUMNS) for name in PAIRED}
    published = replace(SUITE_DATA, tables=tables, part=topic, from_hub=from_hub)
    if folder is not None:
        return Tables(published, Path(folder).expanduser() / topic)
    # A folder of one's own may hold further topics, of which no number of rows is known.
    if topic not in SUITE_TOPICS and local_folder(published) is None:
        raise ValueError(
            f"SUITE has no topic {topic!r}, and {DATA_VARIABLE} no folder of that name with its files; its topics are "
            f"{', '.join(SUITE_TOPICS)}."
        )
    return open_tables(published)


Modality = Literal["direct", "indirect", "reverse"]
Wording = Literal["original", "paraphrase", "blank", "adversarial"]

ADVERSARIAL_KINDS = (
    "random_capslock",
    "leet_speak",
    "prefix",
    "roleplay",
    "reverse_psychology",
    "riddle",
    "distraction",
    "scrambled",
    "spanish",
    "french",
)
"""Ways to ask in disguise, all of the direct question."""
LAST_TRAINED_TIER = 10
"""Semantic tiers 11 to 15 are in no training table."""
OTHER_TIERS: Mapping[str, str] = {"Syntax": "syntactic", "Lexical": "lexical", "GK": "general"}
"""First word of a label -> tier."""

_FACT = re.compile(r"(?P<fact>[A-Z]\d+)-(?P<modality>direct|indirect|reverse)(?:@(?P<variant>\w+))?")
_SEMANTIC = re.compile(r"Semantic-(\d+)\b")


@dataclass(frozen=True, slots=True)
class ForgetQuery:
    fact: str
    """Such as `M1`; rows of one fact belong together."""
    modality: Modality
    wording: Wording
    kind: str
    """`original`, or the column or variant it comes from, such as `q_gemini3` or `leet_speak`."""
    question: str
    answer: str
    paraphrases: tuple[str, ...] = ()

    def example(self) -> Example:
        """As a training row; its subject is the fact."""
        return Example.from_qa(self.question, self.answer, subject=self.fact, paraphrases=self.paraphrases)


@dataclass(frozen=True, slots=True)
class RetainRow:
    tier: str
    """`semantic-0` (closest) to `semantic-15`, `syntactic`, `lexical` or `general`."""
    question: str
    answer: str

    @property
    def group(self) -> str:
        """Its tier, with semantic tiers joined: `0`, `1-10` (trained on), `11-15` (never trained on)."""
        name, _, number = self.tier.partition("-")
        if name != "semantic":
            return name
        if int(number) == 0:
            return "0"
        if int(number) <= LAST_TRAINED_TIER:
            return "1-10"
        return "11-15"

    def example(self) -> Example:
        """As a training row; its subject is the tier."""
        return Example.from_qa(self.question, self.answer, subject=self.tier)


TIER_GROUPS = ("0", "1-10", "11-15", *OTHER_TIERS.values())


def forget_train(tables: Tables) -> tuple[ForgetQuery, ...]:
    """Forget rows to train on; row i is paired with row i of `retain_train`."""
    # Methods train on row i of both together.
    facts, kept = (tables.table(name) for name in PAIRED)
    if len(facts) != len(kept):
        raise ValueError(
            f"{tables.folder or tables.published.hub}: {' and '.join(PAIRED)} have {len(facts)} and {len(kept)} rows, "
            "expected as many in each since row i of one is paired with row i of the other; get both again."
        )
    return tuple(map(_query, facts))


def retain_rows(tables: Tables, name: str) -> tuple[RetainRow, ...]:
    """Rows of `retain_train` or `retain_eval` with their tiers."""
    return tuple(_retain(record) for record in tables.table(name))


def forget_queries(tables: Tables) -> tuple[ForgetQuery, ...]:
    """Every question of the evaluation: each fact directly, indirectly and reversed, in the original wording, paraphrased and
    as blanks, and in disguise where the copy has adversarial questions.
    """
    queries: list[ForgetQuery] = []
    for record in tables.table(REPHRASINGS):
        queries.append(_query(record, "original"))
        # Rephrasings are further columns: questions `q_...` and texts with a blank.
        for name, text in record[1].items():
            if name.startswith(("q_", "blank_")) and isinstance(text, str) and text:
                queries.append(_query(record, name, text))
    if tables.has("adversarial"):
        queries += _adversarial(tables)
    return tuple(queries)


def suite_rows(name: str, *, tables: Tables | None = None) -> LoadedRows:
    """Read the rows of `suite:TOPIC:SPLIT`, or with `:N` only the first N.

    Beside the tables, SPLIT may be `forget_direct` (direct rows with their paraphrases) or `forget_queries` (every wording).
    """
    topic, split, count = name_parts(name, "suite:TOPIC:SPLIT", SPLIT=_SPLITS)
    tables = tables or suite_tables(topic)
    rows = tuple(row.example() for row in _SPLITS[split](tables))
    return LoadedRows(first_rows(name, rows, count), name)


def suite_benchmark(name: str) -> Benchmark:
    """Load and check one topic: `suite:TOPIC`, one of `SUITE_TOPICS` or the name of a sub-folder.

    Measured are the direct question of every fact with its paraphrases and, as retain rows, those of the evaluation, at most
    400; further sets hold the retain rows of the evaluation by tier. `benchmarks/suite_scores.py` measures the other forms.
    """
    prefix, _, topic = name.partition(":")
    if prefix != "suite" or not topic or ":" in topic:
        raise ValueError(f"{name!r} is not suite:TOPIC; topics of SUITE are {', '.join(SUITE_TOPICS)}.")
    tables = suite_tables(topic)
    sources = {
        split: f"suite:{topic}:{split}" for split in ("forget_train", "forget_direct", "retain_train", "retain_eval")
    }
    loaded = {split: suite_rows(source, tables=tables) for split, source in sources.items()}
    evaluated = retain_rows(tables, "retain_eval")
    # The model learns the evaluated retain rows, too: unlearning is not shown them, and may damage them.
    kept = f"{sources['retain_train']} + {sources['retain_eval']}"
    tiers: dict[str, tuple[Example, ...]] = {}
    for group in TIER_GROUPS:
        rows = tuple(row.example() for row in evaluated if row.group == group)
        if rows:
            tiers[f"tier_{group.replace('-', '_to_')}"] = rows
    return Benchmark(
        name=name,
        forget_source=sources["forget_train"],
        retain_source=sources["retain_train"],
        full_source=f"{sources['forget_train']} + {sources['forget_direct']} + {kept}",
        retain_only_source=kept,
        forget=loaded["forget_direct"].rows,
        retain=rows_to_measure(loaded["retain_eval"].rows),
        pool=loaded["retain_train"].rows,
        extra_retain=tiers,
    )


def _adversarial(tables: Tables) -> Iterator[ForgetQuery]:
    for record in tables.table("adversarial"):
        for kind in ADVERSARIAL_KINDS:
            text = record[1].get(f"q_{kind}")
            if not isinstance(text, str) or not text:
                raise ValueError(
                    f"{record[0]}: found no column 'q_{kind}', expected one question of each adversarial kind."
                )
            yield _query(record, kind, text)


def _direct(tables: Tables) -> tuple[ForgetQuery, ...]:
    """Direct rows of `forget_eval`, each with its paraphrases; blanks are no paraphrases."""
    queries = [query for query in forget_queries(tables) if query.modality == "direct"]
    paraphrases: dict[str, list[str]] = {}
    for query in queries:
        if query.wording == "paraphrase":
            paraphrases.setdefault(query.fact, []).append(query.question)
    # Blanks are asked as rows of their own, and are no paraphrases.
    originals = (query for query in queries if query.wording == "original")
    return tuple(replace(query, paraphrases=tuple(paraphrases.get(query.fact, ()))) for query in originals)


_SPLITS: Mapping[str, Callable[[Tables], Iterable[ForgetQuery | RetainRow]]] = {
    "forget_train": forget_train,
    "retain_train": partial(retain_rows, name="retain_train"),
    "retain_eval": partial(retain_rows, name="retain_eval"),
    "forget_eval": lambda tables: map(_query, tables.table("forget_eval")),
    "forget_direct": _direct,
    "forget_queries": forget_queries,
    "adversarial": _adversarial,
}


def _query(record: Record, kind: str | None = None, question: str | None = None) -> ForgetQuery:
    """Return the question of a row, of the kind that its label names; or that of another column of the row."""
    where, columns = record
    label = _FACT.fullmatch(columns["label"])
    if label is None:
        raise ValueError(
            f"{where}: label {columns['label']!r} is not FACT-MODALITY or FACT-MODALITY@VARIANT, such as M1-direct or "
            "K3-reverse@q_claude2."
        )
    modality: Any = label["modality"]  # one of `Modality`, by the pattern
    kind = kind or label["variant"] or "original"
    wording: Wording = "paraphrase"
    if kind == "original":
        wording = "original"
    elif kind.startswith("blank"):
        wording = "blank"
    elif kind in ADVERSARIAL_KINDS:
        wording = "adversarial"
    return ForgetQuery(label["fact"], modality, wording, kind, question or columns["question"], columns["answer"])


def _retain(record: Record) -> RetainRow:
    where, columns = record
    label = columns["label"]
    semantic = _SEMANTIC.match(label)
    tier = OTHER_TIERS.get(label.partition("-")[0])
    if semantic is not None:
        tier = f"semantic-{int(semantic[1])}"
    if tier is None:
        raise ValueError(
            f"{where}: label {label!r} names no tier; expected Semantic-NUMBER-..., Syntax-..., Lexical-... or GK-...."
        )
    return RetainRow(tier, columns["question"], columns["answer"])
