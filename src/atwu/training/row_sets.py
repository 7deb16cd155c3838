"""One set of rows: its text and its tokens, in forms, and as losses need it; and rows that contradict each other."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from atwu.benchmarks.base import LoadedRows
from atwu.benchmarks.sources import load_rows
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.form_rows import check_no_forms, plain_form, rows_in_forms
from atwu.data.labelled_words import label_words, read_words
from atwu.data.question_forms import PLAIN_FORMS
from atwu.data.records import memory_records
from atwu.data.row_parsing import fingerprint, parse_row
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.data.spool import DiskRows, store_rows
from atwu.data.text_similarity import words_of_text
from atwu.modeling.forward import check_length, position_limit
from atwu.modeling.layers import unwrap
from atwu.training.progress import Say


@dataclass(frozen=True, slots=True)
class RowSet:
    """One set of rows, as tokens and as text."""

    rows: Sequence[EncodedRow]
    examples: Sequence[Example]
    source: str | None = None
    warnings: tuple[str, ...] = ()
    """Warnings about the rows and about changes made to them."""
    forms: tuple[str, ...] | None = None
    """The form of each row (`rows_in_forms`); None if rows are trained on only as they are written."""
    waiting: int = 0
    """Rows at the end that are not trained on before a check of answers finds their fact (`with_waiting`)."""

    @property
    def plain_text(self) -> list[int]:
        """Places of texts without a question that were given, not written as a form of one."""
        forms = self.forms or ("question",) * len(self.rows)
        rows = zip(forms, self.examples, strict=True)
        return [place for place, (form, row) in enumerate(rows) if form == "question" and not row.messages]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON of the text."""
        # The tokenizer is another part of a run's key.
        return fingerprint(self.examples)


RowsInput = str | Path | LoadedRows | Iterable[Example] | Iterable[Mapping[str, Any]] | RowSet


def encode_dataset(
    rows: RowsInput,
    tokenizer: Any,
    *,
    what: str,
    max_length: int,
    system: str | None = None,
    words: str | None = None,
    forms: Sequence[str] = (),
) -> RowSet:
    """Encode rows of any accepted kind.

    Args:
        rows: a source (`load_rows`) or its loaded rows, `Example`s, mappings with the columns of the data formats, a
            `datasets.Dataset` or a pandas frame; a `RowSet` is returned unchanged.
        tokenizer: a fast tokenizer.
        system: as for `Encoder`.
        words: file of words to label, for rows without labels.
        forms: forms of a question in which each row is encoded, instead of only as it is written.
    """
    if isinstance(rows, RowSet):
        return rows
    text = text_rows(rows, what=what)
    source = text.source or None
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    examples = add_labels(text.rows, words)
    notes = (*text.warnings, *(f"{what} set: {warning}" for warning in conflict_warnings(examples)))
    if not forms:
        encoded = encoder.encode_rows(examples, what=what)
        return RowSet(encoded.rows, examples, source, (*notes, *encoded.warnings))
    written = rows_in_forms(examples, forms)
    check_no_forms(examples, written, what=source or f"the {what} set")
    if not written:
        raise ValueError(
            f"no {what} row can be written in the forms {','.join(forms)}; add question, the row as it is."
        )
    in_forms = store_rows(form_row.row for form_row in written)
    encoded = encoder.encode_rows(in_forms, what=what)
    of_rows = tuple(form_row.form for form_row in written)
    row_set = RowSet(encoded.rows, in_forms, source, (*notes, *encoded.warnings), of_rows)
    if not all(row.forget_spans is not None for row in examples):
        return without_labels(row_set)  # what its forms have were found by rule, and nobody has checked them
    return row_set


def text_rows(rows: RowsInput, *, what: str) -> LoadedRows:
    """Return rows of any accepted kind as text; the source of rows in memory is empty."""
    if isinstance(rows, RowSet):
        return LoadedRows(rows.examples, rows.source or "", rows.warnings)
    if isinstance(rows, str | Path):
        rows = load_rows(rows)
    source, notes, listed = "", tuple[str, ...](), cast(Any, rows)
    if isinstance(rows, LoadedRows):
        source, notes, listed = rows.source, rows.warnings, rows.rows
    if not isinstance(listed, DiskRows):
        # On disk, so that a set may be larger than memory.
        listed = store_rows(
            row if isinstance(row, Example) else parse_row(row, where=f"{what} set, {where}")
            for where, row in memory_records(listed)
        )
    if not len(listed):
        raise ValueError(f"the {what} set is empty; give at least one row.")
    return LoadedRows(listed, source, notes)


def report_rows(sets: Mapping[str, RowSet], say: Say) -> None:
    for name, rows in sets.items():
        counts = ""
        if rows.forms is not None:
            of_forms = ", ".join(f"{number} {form}" for form, number in Counter(rows.forms).items())
            counts = f" ({of_forms})"
        say(f"{name} rows: {len(rows.rows)} from {rows.source}{counts}")
        if rows.waiting:
            say(f"{rows.waiting} of the {name} rows wait until answers state their facts")
        for note in rows.warnings:
            say(f"warning: {note}")


def warn_about_rows(*sets: RowSet | None) -> None:
    """Issue Python warnings about rows given in Python code."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("atwu."):
        frame, level = frame.f_back, level + 1  # point the warning at the caller's line
    for note in (note for rows in sets if rows is not None for note in rows.warnings):
        warnings.warn(note, stacklevel=level)


def check_lengths(model: Any, *sets: Sequence[EncodedRow] | None) -> None:
    """Check before the first step that all rows fit into a model with a table of positions."""
    own = unwrap(model)
    if position_limit(own) is not None:  # else reading all rows would take its time
        check_length(own, max(len(row.input_ids) for rows in sets for row in rows or ()))


def without_labels(rows: RowSet) -> RowSet:
    """Remove key-token labels of a set if nothing uses them or only some rows have them."""
    if all(row.token_labels is None for row in rows.rows):
        return rows
    return dataclasses.replace(rows, rows=store_rows(dataclasses.replace(row, token_labels=None) for row in rows.rows))


def with_more(rows: RowSet, more: str, tokenizer: Any, limits: Mapping[str, Any], *, what: str) -> RowSet:
    """Append rows of a source, trained on as they are written; each replaces the form of a row that has the same prompt.

    A row as it was given is never replaced.
    """
    only_written: Sequence[str] = ()
    if rows.forms:
        only_written = ("question",)
    written = encode_dataset(load_rows(more), tokenizer, what=what, **{**limits, "forms": only_written})
    forms, examples = rows.forms or ("question",) * len(rows.rows), rows.examples
    prompts = {row.messages for row in written.examples}
    kept = [
        index
        for index, (form, row) in enumerate(zip(forms, examples, strict=True))
        if form == "question" or not row.messages or row.messages not in prompts
    ]
    joined = dataclasses.replace(
        rows,
        rows=store_rows([*(rows.rows[index] for index in kept), *written.rows]),
        examples=store_rows([*(examples[index] for index in kept), *written.examples]),
    )
    if rows.forms is None:
        return joined
    # A row is in the form whose prompt it has, so that it is paired with retain rows of that form.
    own_forms = {row.messages: form for form, row in zip(forms, examples, strict=True) if row.messages}
    of_written = []
    for row in written.examples:
        if row.messages:
            of_written.append(own_forms.get(row.messages, "question"))
        else:
            of_written.append(plain_form(row.answer, forms))
    return dataclasses.replace(joined, forms=(*(forms[index] for index in kept), *of_written))


def with_waiting(
    rows: RowSet, written: Sequence[Example], forms: Sequence[str], tokenizer: Any, limits: Mapping[str, Any]
) -> RowSet:
    """Append rows in further forms, which wait until a check of answers finds their fact in such a form.

    Args:
        rows: the set, in forms.
        written: its rows as they were given.
        forms: the further forms.
    """
    further = rows_in_forms(written, forms)
    encoder = Encoder(tokenizer, max_length=limits["max_length"], system=limits["system"])
    encoded = encoder.encode_rows([row.row for row in further], what="forget")
    return dataclasses.replace(
        rows,
        rows=store_rows([*rows.rows, *encoded.rows]),
        examples=store_rows([*rows.examples, *(row.row for row in further)]),
        forms=(*(rows.forms or ()), *(row.form for row in further)),
        waiting=len(further),
    )


def without_openings(rows: RowSet) -> RowSet:
    """Count the plain-text forms of a question only from their first labelled word on, as an answer without its question.

    There a text of the forget set breaks off, and there a refusal would begin, too.
    """
    if rows.forms is None:
        return rows
    starts = (
        row.forget_spans[0][0] if form in PLAIN_FORMS and row.forget_spans else 0
        for form, row in zip(rows.forms, rows.examples, strict=True)
    )
    counted = (row.counted_after(start) if start else row for row, start in zip(rows.rows, starts, strict=True))
    return dataclasses.replace(rows, rows=store_rows(counted))


def add_labels(examples: Sequence[Example], words: str | None) -> Sequence[Example]:
    """Label the words listed in a file, in rows without labels."""
    if words is None:
        return examples
    labelled = label_words(examples, read_words(words))
    return store_rows(old if old.forget_spans is not None else new for old, new in zip(examples, labelled, strict=True))


def count_all_positions(rows: RowSet, *, appends: bool) -> RowSet:
    """Count every position, including those of the prompt.

    Args:
        appends: whether the loss reads predictions. A token is predicted at the position before it, so one token is then
            appended to each row for its last position; its value does not matter, since distances compare distributions.
    """

    def whole(row: EncodedRow) -> EncodedRow:
        ids, offsets = row.input_ids, row.answer_offsets
        if appends:
            ids, offsets = (*ids, ids[-1]), (*offsets, None)
        # Nothing precedes the first token, so nothing predicts it.
        counted = (IGNORE_INDEX, *ids[1:])
        return dataclasses.replace(row, input_ids=ids, labels=counted, token_labels=None, answer_offsets=offsets)

    return dataclasses.replace(rows, rows=store_rows(map(whole, rows.rows)))


def question_end(row: EncodedRow) -> EncodedRow:
    """Return the question of a row, of which only the last token is counted."""
    ids = row.prompt_ids
    return EncodedRow(ids, (*[IGNORE_INDEX] * (len(ids) - 1), ids[-1]), None, (None,) * len(ids), has_terminal=False)


# Rows that contradict each other or themselves: in forget and retain set, one question with two answers, an echo.

_NAMED = 3
"""Rows that a warning names at most."""


def row_keys(row: Example) -> tuple[str, ...]:
    """Return question and answer of a row without case and punctuation."""
    asked, said = " ".join(words_of_text(row.question)), " ".join(words_of_text(row.answer))
    # Marked, so that a question is not taken for an answer of the same words.
    if asked:
        return (f"q {asked}", f"a {said}")
    return (f"a {said}",)


def check_no_overlap(
    kept: Sequence[Example], gone: Sequence[Example], *, source: str, why: str, option: str = "--retain"
) -> None:
    """Check that no retain or holdout row repeats a forget row: the same question or, without a question, the same text.

    Args:
        kept: retain or holdout rows.
        gone: forget rows of this or an earlier request.
        source: name of these rows in errors.
        why: what errors say about such a row.
        option: the option that gives these rows.

    Raises:
        ValueError: a row does; the message names it.
    """
    removed = {row_keys(row)[0] for row in gone}
    repeats = [place for place, row in enumerate(kept, start=1) if row_keys(row)[0] in removed]
    if not repeats:
        return
    first = kept[repeats[0] - 1]
    others = len(repeats) - 1
    more = how = ""
    if others:
        more = f", like {others} more row{'s' * (others > 1)}"
    if option == "--retain":
        how = ", as `atwu rows retain --corpus` does"
    raise ValueError(
        f"{source}: row {repeats[0]} {why} ({(first.question or first.answer)[:60]!r}){more}; leave such rows out of "
        f"{option}{how}."
    )


def conflict_warnings(rows: Sequence[Example]) -> Iterator[str]:
    """Yield a warning for each kind of conflict within a set, with the numbers of its first rows."""
    answers: dict[tuple[object, ...], tuple[int, str]] = {}
    contradictions, echoes = [], []
    for place, row in enumerate(rows, start=1):
        if not row.question:
            continue
        said = " ".join(words_of_text(row.answer))
        first, known = answers.setdefault(tuple(row.messages), (place, said))
        if known != said:
            contradictions.append(f"{first} and {place}")
        if row.answer.strip().casefold() == row.question.strip().casefold():
            echoes.append(str(place))
    if contradictions:
        yield (
            f"rows {_first(contradictions)} give different answers to the same question; correct one, or leave one out, "
            "unless both are meant"
        )
    if echoes:
        yield f"the answer of row {_first(echoes)} is its question; correct it, or leave the row out"


def _first(named: Sequence[str]) -> str:
    listed = ", ".join(named[:_NAMED])
    if len(named) <= _NAMED:
        return listed
    return f"{listed} (and {len(named) - _NAMED} more)"
