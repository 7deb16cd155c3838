"""TOFU (Maini et al. 2024): rows of `tofu:SPLIT[:N]`, a split or its first N rows, and the benchmark of a forget split.

Reads the published tables, joins the columns of the perturbed tables and word labels, and adds the author of each row.
Tables that are joined must have the same questions and answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from atwu.benchmarks.base import Benchmark, LoadedRows, first_rows, name_parts, rows_to_measure
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.data.labelled_words import target_words_warnings
from atwu.data.records import Record
from atwu.data.row_parsing import parse_row
from atwu.data.schema import Example
from atwu.data.text_similarity import words_of_text

_Table = Sequence[Record]

FORGET_SPLITS = ("forget01", "forget05", "forget10")
RETAIN_SPLITS = ("retain99", "retain95", "retain90")
HOLDOUT_SPLITS = ("holdout01", "holdout05", "holdout10")
REAL_WORLD_SPLITS = ("real_authors", "world_facts")
TOFU_SPLITS = ("full", *FORGET_SPLITS, *RETAIN_SPLITS, *HOLDOUT_SPLITS, "retain_perturbed", *REAL_WORLD_SPLITS)

ROWS_PER_AUTHOR = 20
"""Number of rows per author; they are consecutive."""

PROXY_WARNING = (
    "labels are a proxy: a word is a key token if it is in the paraphrased answer and not in the question or the "
    "wrong answers"
)

_WORD = re.compile(r"\w+")

LABELS_SUFFIX = "_with_common_words_gpt"
"""Suffix of the tables with word labels (Zhou et al. 2025), which are not part of TOFU itself."""

_PAIR = ("question", "answer")
_PERTURBED_COLUMNS = ("paraphrased_question", "paraphrased_answer", "perturbed_answer")
_OPTIONS = tuple(f"option{number}" for number in range(1, 5))


def _published() -> dict[str, PublishedFile]:
    tables = {"full": PublishedFile(4000, _PAIR)}
    # 1, 5 and 10 % of 200 authors, with 20 rows each.
    for percent, rows in ((1, 40), (5, 200), (10, 400)):
        tables[f"forget{percent:02}"] = tables[f"holdout{percent:02}"] = PublishedFile(rows, _PAIR)
        tables[f"forget{percent:02}_perturbed"] = PublishedFile(
            rows, (*_PAIR, *_PERTURBED_COLUMNS), {"perturbed_answer": 5}
        )
        tables[f"forget{percent:02}{LABELS_SUFFIX}"] = PublishedFile(rows, (*_PAIR, "target_words"), on_hub=False)
        tables[f"retain{100 - percent}"] = PublishedFile(4000 - rows, _PAIR)
    tables["retain_perturbed"] = PublishedFile(400, (*_PAIR, *_PERTURBED_COLUMNS), {"perturbed_answer": 5})
    for name, rows in (("real_authors", 100), ("world_facts", 117)):
        tables[name] = PublishedFile(rows, (*_PAIR, *_OPTIONS))
    return tables


TOFU = DataSet("TOFU", "locuslab/TOFU", _published(), split="train")


def tofu_rows(name: str, *, tables: Tables | None = None) -> LoadedRows:
    """Read, join and check one split, `tofu:SPLIT`; `:N` returns its first N rows, after checking all.

    `forgetNN` rows have paraphrased questions and answers, wrong answers and labels where the copy has `forgetNN_perturbed`
    or word labels. The first 400 rows of `full` and of the retain splits have them too, except labels.
    """
    split, count = name_parts(name, "tofu:SPLIT", SPLIT=TOFU_SPLITS)
    tables = tables or open_tables(TOFU)
    readers = {
        **dict.fromkeys(FORGET_SPLITS, _forget),
        **dict.fromkeys(HOLDOUT_SPLITS, _holdout),
        **dict.fromkeys(REAL_WORLD_SPLITS, _real_world),
    }
    warnings: list[str] = []
    rows = tuple(readers.get(split, _retain)(split, tables.table(split), tables, warnings))
    return LoadedRows(first_rows(name, rows, count), name, (*warnings, *tables.ignored()))


def tofu_benchmark(name: str) -> Benchmark:
    """Load, check and combine the splits that belong to one forget split, such as `tofu:forget05`.

    Evaluated are the forget rows and, as in TOFU's own evaluation, the retain rows that have wrong answers, at most 400
    of each. A holdout or real-world set that the copy lacks is skipped, with a warning. With `:N`, only the first N retain
    rows are used, and the original model is trained on these and the forget rows.
    """
    split, count = name_parts(name, "tofu:SPLIT", SPLIT=FORGET_SPLITS)
    tables = open_tables(TOFU)
    percent = split.removeprefix("forget")
    retain, holdout, full = f"retain{100 - int(percent)}", f"holdout{percent}", "tofu:full"
    if count:
        retain = f"{retain}:{count}"
        full = f"tofu:{retain} + tofu:{split}"
    # Not part of every copy, and not needed to unlearn.
    available = [part for part in (holdout, *REAL_WORLD_SPLITS) if tables.has(part)]
    loaded = {part: tofu_rows(f"tofu:{part}", tables=tables) for part in (split, retain, *available)}
    forget, pool = loaded[split].rows, loaded[retain].rows
    with_wrong_answers = [row for row in pool if row.wrong_answers]
    # As in TOFU: the retain rows that have wrong answers are those of `retain_perturbed`.
    measured_retain = rows_to_measure(with_wrong_answers or pool)
    warnings = [warning for rows in loaded.values() for warning in rows.warnings]
    warnings += [f"{part} is not available: skipped" for part in (holdout, *REAL_WORLD_SPLITS) if part not in available]
    return Benchmark(
        name=name,
        forget_source=f"tofu:{split}",
        retain_source=f"tofu:{retain}",
        full_source=full,
        retain_only_source=f"tofu:{retain}",
        forget=rows_to_measure(forget),
        retain=measured_retain,
        pool=pool,
        holdout=loaded[holdout].rows if holdout in loaded else (),
        extra_retain={part: loaded[part].rows for part in REAL_WORLD_SPLITS if part in loaded},
        warnings=tuple(dict.fromkeys(warnings)),
    )


def proxy_spans(row: Example) -> tuple[tuple[int, int], ...]:
    """Return character ranges of the answer's likely key tokens, which become the labels of rows without any.

    A word counts if it is in the paraphrased answer and not in the question or any wrong answer, ignoring case. Key
    tokens that the paraphrase expresses differently, or that a wrong answer shares, are missed, so some rows have none.
    """
    if row.paraphrased_answer is None or not row.wrong_answers:
        raise ValueError(
            f"row with question {row.question[:60]!r} has no paraphrased_answer or no wrong_answers; both are needed "
            "to find its key tokens."
        )
    # What a paraphrase keeps and wrong answers change is the fact.
    public = set(words_of_text(row.question)).union(*map(words_of_text, row.wrong_answers))
    secret = set(words_of_text(row.paraphrased_answer)) - public
    return tuple(match.span() for match in _WORD.finditer(row.answer) if match[0].lower() in secret)


def _forget(split: str, table: _Table, tables: Tables, warnings: list[str]) -> list[Example]:
    """Read a forget split, the last authors of `full`; appends to `warnings`, as the other readers do."""
    # The published number: the table itself may be missing.
    total = tables.published.tables["full"].rows or 0
    # Authors are counted from the end, so the rows must be the last ones.
    if tables.has("full"):
        _check_same(table, tables.table("full")[total - len(table) :])
    perturbed = _join_table(f"{split}_perturbed", table, tables)
    labels = _join_table(f"{split}{LABELS_SUFFIX}", table, tables)
    mended: Counter[str] = Counter()
    rows = []
    for index, record in enumerate(table):
        extra: dict[str, Any] = {"subject": f"author {(total - len(table) + index) // ROWS_PER_AUTHOR}"}
        if perturbed:
            extra |= _perturbed_columns(perturbed[index])
        if labels:
            extra["target_words"] = labels[index][1]["target_words"]
        rows.append(_row(record, extra, mended))
    if perturbed is None:
        without = "no paraphrases, no wrong answers"
        if not labels:
            without += ", no labels"
        warnings.append(f"{split}_perturbed is not available: the rows have {without}")
    if labels:
        warnings += target_words_warnings(mended)
    elif perturbed:
        rows = [replace(row, forget_spans=proxy_spans(row)) for row in rows]
        warnings.append(PROXY_WARNING)
    return rows


def _retain(split: str, table: _Table, tables: Tables, warnings: list[str]) -> list[Example]:
    """Read `full`, a retain split, or `retain_perturbed`: rows from the first author on."""
    if split != "full" and tables.has("full"):
        _check_same(table, tables.table("full")[: len(table)])
    perturbed: dict[tuple[str, str], dict[str, Any]] = {}
    if tables.has("retain_perturbed"):
        perturbed = {_pair(record): _perturbed_columns(record) for record in tables.table("retain_perturbed")}
    else:
        warnings.append("retain_perturbed is not available: the rows have no paraphrases, no wrong answers")
    rows = [
        _row(record, {"subject": f"author {index // ROWS_PER_AUTHOR}", **perturbed.get(_pair(record), {})})
        for index, record in enumerate(table)
    ]
    # The perturbed rows are the first 400, so a split or a part of it may lack some.
    unused = len(perturbed) - sum(bool(row.wrong_answers) for row in rows)
    if unused:
        warnings.append(
            f"retain_perturbed: {unused} of {len(perturbed)} rows are not in {split}; their wrong answers are left out"
        )
    return rows


def _holdout(split: str, table: _Table, tables: Tables, warnings: list[str]) -> list[Example]:
    return [
        _row(record, {"subject": f"holdout author {index // ROWS_PER_AUTHOR}"}) for index, record in enumerate(table)
    ]


def _real_world(split: str, table: _Table, tables: Tables, warnings: list[str]) -> list[Example]:
    """Read questions about the real world with four options; the wrong options become the wrong answers."""
    rows = []
    for record in table:
        where, columns = record
        options = [columns[name] for name in _OPTIONS]
        if columns["answer"] not in options:
            raise ValueError(f"{where}: found the answer {columns['answer']!r:.60}, expected one of {options}.")
        rows.append(_row(record, {"wrong_answers": [option for option in options if option != columns["answer"]]}))
    return rows


def _join_table(name: str, table: _Table, tables: Tables) -> _Table | None:
    """Return a table with further columns of the same rows, or None if it is not available."""
    if not tables.has(name):
        return None
    other = tables.table(name)
    _check_same(other, table)
    return other


def _check_same(table: _Table, expected: _Table) -> None:
    """Check that two tables have the same questions and answers, row by row."""
    for (here, ours), (there, theirs) in zip(table, expected, strict=True):
        for column in _PAIR:
            if ours[column] != theirs[column]:
                raise ValueError(
                    f"{here}, column {column!r}: found {ours[column]!r:.80}, expected {theirs[column]!r:.80} as in {there}; "
                    f"take both from one copy of TOFU ({TOFU.hub})."
                )


def _pair(record: Record) -> tuple[str, str]:
    return record[1]["question"], record[1]["answer"]


def _perturbed_columns(record: Record) -> dict[str, Any]:
    return {name: record[1][name] for name in _PERTURBED_COLUMNS}


def _row(record: Record, extra: Mapping[str, Any], counts: Counter[str] | None = None) -> Example:
    where, columns = record
    question, answer = columns["question"], columns["answer"]
    return parse_row({"question": question, "answer": answer, **extra}, where=where, counts=counts)
