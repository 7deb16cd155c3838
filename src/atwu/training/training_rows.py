"""Convert rows of any accepted kind into the encoded sets of a run."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._cache import hash_of_list
from atwu.benchmarks.base import LoadedRows
from atwu.benchmarks.sources import load_rows
from atwu.data.alternates import Alternates, alternates, check_alternates, prompted_rows, refusal_rows
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.labelled_words import label_words, read_words
from atwu.data.question_forms import PLAIN_FORMS, plain_form, read_forms, rows_in_forms
from atwu.data.records import memory_records
from atwu.data.row_parsing import fingerprint, parse_row
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.data.spool import DiskRows, store_rows
from atwu.data.text_similarity import closest_rows
from atwu.methods.losses.distillation import PromptedTeacher
from atwu.methods.losses.jensun_plus import JSToRefusalRow
from atwu.methods.losses.replacement import LearnRefusal
from atwu.methods.losses.representation import REFUSED
from atwu.methods.recipe import Recipe
from atwu.training.config import UnlearnConfig
from atwu.training.progress import Say


@dataclass(frozen=True, slots=True)
class RowSet:
    """One encoded set of rows, with its text if it was given as text."""

    rows: Sequence[EncodedRow]
    examples: Sequence[Example] | None
    source: str | None = None
    """Name of the source it was loaded from."""
    warnings: tuple[str, ...] = ()
    """Warnings about the rows and about changes made to them."""
    forms: tuple[str, ...] | None = None
    """The form of each row (`rows_in_forms`); None if rows are trained on only as they are written."""

    @property
    def plain_text(self) -> list[int]:
        """Places of texts without a question that were given, not written as a form of one."""
        forms = self.forms or ("question",) * len(self.rows)
        rows = zip(forms, self.examples or (), strict=False)
        return [place for place, (form, row) in enumerate(rows) if form == "question" and not row.messages]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON of the text, or of the tokens if there is no text."""
        if self.examples is not None:
            return fingerprint(self.examples)
        return hash_of_list(([row.input_ids, row.labels] for row in self.rows), hashlib.sha256())


RowsInput = str | Path | LoadedRows | Iterable[Example] | Iterable[Mapping[str, Any]] | Sequence[EncodedRow] | RowSet


@dataclass(frozen=True, slots=True)
class UnlearningRows:
    """Rows of an unlearning run."""

    forget: RowSet
    retain: RowSet | None
    """Also present if only the weighting uses it."""
    alternates: Alternates | None
    """Alternate answers to the forget questions; None if no loss uses them."""
    closest: Sequence[Sequence[int]] | None = None
    """For each forget row, its closest retain rows; None if they are drawn at random only."""
    retain_alternates: Alternates | None = None
    """The same for retain questions."""
    prompted: Sequence[EncodedRow] | None = None
    """Forget rows behind the prompt of a teacher; None if no loss has one."""
    refused: Sequence[EncodedRow] | None = None
    """Questions that the model refuses, of which the last token is counted; None if no loss reads them."""
    asked: Sequence[EncodedRow] | None = None
    """The same for the forget questions."""

    @property
    def sets(self) -> dict[str, RowSet]:
        return {"forget": self.forget} | ({} if self.retain is None else {"retain": self.retain})

    @property
    def forms(self) -> dict[str, Sequence[str]] | None:
        """Set -> the form of each row; None without forms."""
        if self.forget.forms is None:
            return None
        return {name: rows.forms for name, rows in self.sets.items() if rows.forms is not None}

    @property
    def encoded(self) -> dict[str, Sequence[EncodedRow]]:
        """Encoded rows of all sets that a step may draw from, by name."""
        found: dict[str, Sequence[EncodedRow]] = {name: rows.rows for name, rows in self.sets.items()}
        return found if self.alternates is None else {**found, "alternate": self.alternates.rows}


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
            `datasets.Dataset`, a pandas frame, or encoded rows; a `RowSet` is returned unchanged.
        tokenizer: a fast tokenizer; not needed for encoded rows.
        system: as for `Encoder`; encoded rows stay unchanged.
        words: file of words to label, for rows without labels.
        forms: forms of a question in which each row is encoded, instead of only as it is written.
    """
    if isinstance(rows, RowSet):
        return rows
    given, source, notes = _listed(rows, what)
    if isinstance(given[0], EncodedRow):
        if words is not None:
            raise ValueError("forget_words labels text; give the forget rows as Examples.")
        if forms:
            raise ValueError(f"forms rewrites questions; pass the {what} rows as text, not encoded.")
        return RowSet(store_rows(_without_first(row) for row in given), None)
    if tokenizer is None:
        raise ValueError(f"the {what} set contains text; pass the tokenizer as processing_class.")
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    examples = add_labels(given, words)
    if not forms:
        encoded = encoder.encode_rows(examples, what=what)
        return RowSet(encoded.rows, examples, source, (*notes, *encoded.warnings))
    written = rows_in_forms(examples, forms)
    if not written:
        raise ValueError(
            f"no {what} row can be written in the forms {','.join(forms)}; add question, the row as it is."
        )
    in_forms = store_rows(each.row for each in written)
    encoded = encoder.encode_rows(in_forms, what=what)
    of_rows = tuple(each.form for each in written)
    found = RowSet(encoded.rows, in_forms, source, (*notes, *encoded.warnings), of_rows)
    given_labels = all(row.forget_spans is not None for row in examples)
    return found if given_labels else without_labels(found)  # those of the forms were found by rule


def text_rows(rows: RowsInput, *, what: str) -> RowSet:
    """Return rows of any accepted kind as text, not encoded."""
    if isinstance(rows, RowSet) and rows.examples is not None:
        return rows
    given, source, notes = _listed(rows, what)
    if isinstance(given[0], EncodedRow):
        raise ValueError(f"the {what} set is evaluated as text; pass its rows as text, not encoded.")
    return RowSet((), given, source, notes)


def _listed(rows: RowsInput, what: str) -> tuple[Sequence[Any], str | None, tuple[str, ...]]:
    """Return the rows, all `Example`s or all encoded, the source they were loaded from, and warnings."""
    given = load_rows(rows) if isinstance(rows, str | Path) else rows
    source, notes = (given.source, given.warnings) if isinstance(given, LoadedRows) else (None, ())
    listed: Any = given.rows if isinstance(given, LoadedRows | RowSet) else given
    encoded = isinstance(listed, Sequence) and all(isinstance(row, EncodedRow) for row in listed)
    if not (encoded or isinstance(listed, DiskRows)):
        listed = store_rows(
            row if isinstance(row, Example) else parse_row(row, where=f"{what} set, {where}")
            for where, row in memory_records(listed)
        )
    if not len(listed):
        raise ValueError(f"the {what} set is empty; give at least one row.")
    return listed, source, notes


def report_rows(sets: Mapping[str, RowSet], say: Say) -> None:
    for name, rows in sets.items():
        counts = (
            "" if rows.forms is None else f" ({', '.join(f'{n} {form}' for form, n in Counter(rows.forms).items())})"
        )
        say(f"{name} rows: {len(rows.rows)} from {rows.source}{counts}")
        for note in rows.warnings:
            say(f"warning: {note}")


def warn_about_rows(*sets: RowSet | None) -> None:
    """Issue Python warnings about rows given in Python code."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("atwu."):
        frame, level = frame.f_back, level + 1  # point the warning at the caller's line
    for note in (note for rows in sets if rows is not None for note in rows.warnings):
        warnings.warn(note, stacklevel=level)


def _without_first(row: EncodedRow) -> EncodedRow:
    """Exclude the first token of a row, which has no prediction."""
    return row if row.labels[0] == IGNORE_INDEX else dataclasses.replace(row, labels=(IGNORE_INDEX, *row.labels[1:]))


def without_labels(rows: RowSet) -> RowSet:
    """Remove key-token labels of a set if nothing uses them or only some rows have them."""
    if all(row.token_labels is None for row in rows.rows):
        return rows
    return dataclasses.replace(rows, rows=store_rows(dataclasses.replace(row, token_labels=None) for row in rows.rows))


def unlearning_rows(
    forget: RowsInput, retain: RowsInput | None, config: UnlearnConfig, *, tokenizer: Any
) -> UnlearningRows:
    """Check and encode the rows of a run, with labels, alternates and whatever else its recipe needs.

    Args:
        retain: retain rows; ignored if the recipe does not need them.
    """
    recipe = config.recipe()
    if retain is None and (recipe.retain_component is not None or "retain" in recipe.needs):
        instead = " or set retain_loss='none'" if recipe.retain_component is not None else ""
        raise ValueError(f"method {recipe.name!r} needs a retain_dataset; pass one{instead}.")
    longest = config.max_length - bool(recipe.all_positions)  # `_everywhere` adds a token
    limits: dict[str, Any] = {"max_length": longest, "system": config.system}
    limits["forms"] = read_forms(config.forms)
    if limits["forms"] and {"alternates", "retain_alternates"} & set(recipe.needs):
        raise ValueError(
            f"method {recipe.name!r} prefers an alternative answer to each question as written; set forms='none'."
        )
    if changes_questions(recipe) and (plain := set(limits["forms"]) & set(PLAIN_FORMS)):
        asks = ",".join(form for form in limits["forms"] if form not in PLAIN_FORMS)
        raise ValueError(
            f"method {recipe.name!r} changes questions, and the form {', '.join(sorted(plain))} has none; set forms={asks!r}."
        )
    removed = encode_dataset(forget, tokenizer, what="forget", words=config.forget_words, **limits)
    if config.further_forget is not None:
        removed = _with_more(removed, config.further_forget, tokenizer, limits, what="further_forget")
    if missing := sum(row.token_labels is None for row in removed.rows):
        if "labels" in recipe.needs:
            raise ValueError(
                f"method {recipe.name!r} needs the column forget_spans; {missing} of {len(removed.rows)} rows of "
                f"{removed.source or 'the forget set'} have none. A file of words to label also works: "
                "--forget-words FILE."
            )
        removed = without_labels(removed)
    if "labels" in recipe.needs and not any(any(row.token_labels or ()) for row in removed.rows):
        raise ValueError(f"method {recipe.name!r} cannot train: no forget row has a word in forget_spans.")
    if "text" in recipe.needs:
        by_loss = "text" in recipe.forget_component.needs
        who = f"forget loss {recipe.forget_loss!r}" if by_loss else f"weighting {recipe.weighting!r}"
        who = f"replacement {recipe.replacement!r}" if recipe.replacement_component is not None else who
        _check_text(removed, who, "forget")
    kept = None
    if retain is not None and "retain" in recipe.needs:
        kept = encode_dataset(retain, tokenizer, what="retain", **limits)
        if config.further_retain is not None:
            kept = _with_more(kept, config.further_retain, tokenizer, limits, what="further_retain")
        kept = without_labels(_without_openings(kept))
        if "retain_text" in recipe.needs:
            _check_text(kept, f"weighting {recipe.weighting!r}", "retain")
    refused = asked = None
    if "refused_questions" in recipe.needs:
        encoder = Encoder(tokenizer, max_length=longest, system=config.system)
        refused = [question_end(encoder.encode(Example.from_qa(question, "-"))) for question in REFUSED]
        asked = [question_end(row) for row in removed.rows]
        if no_question := next((place for place, row in enumerate(asked, start=1) if len(row.input_ids) < 2), None):
            raise ValueError(
                f"forget set, row {no_question}: a plain text row has no question to redirect; use another forget loss."
            )
    near = None
    if kept is not None and config.pairing == "closest":
        if removed.examples is None or kept.examples is None:
            raise ValueError("pairing='closest' compares questions; pass the rows as text, not encoded.")
        forms = None if removed.forms is None or kept.forms is None else (removed.forms, kept.forms)
        near = closest_rows(removed.examples, kept.examples, forms=forms)
    if "forget" in recipe.all_positions:
        removed = _everywhere(removed)
    if kept is not None and "retain" in recipe.all_positions:
        kept = _everywhere(kept)
    drawn: dict[str, Any] = {"seed": config.rows_seed, "max_length": longest, "system": config.system}
    alternate_answers = retain_alternates = None
    if {"alternates", "refusal_answers"} & set(recipe.needs):
        other = recipe.replacement_component
        refusal = other.refusal_sentence if isinstance(other, LearnRefusal) else None
        check_alternates(removed.examples or (), own="own_alternates" in recipe.needs, refuse=refusal is not None)
        epochs = config.planned_epochs(len(removed.rows))
        alternate_answers = alternates(removed.examples or (), tokenizer, epochs=epochs, refusal=refusal, **drawn)
    if isinstance(recipe.forget_component, JSToRefusalRow):
        if given_texts := removed.plain_text:
            raise ValueError(
                f"forget set, row {given_texts[0] + 1}: a plain text row has no question to refuse; use another forget loss."
            )
        epochs, refusal = config.planned_epochs(len(removed.rows)), recipe.forget_component.refusal_sentence
        alternate_answers = refusal_rows(removed.examples or (), tokenizer, refusal=refusal, epochs=epochs, **drawn)
    behind = None
    if isinstance(recipe.forget_component, PromptedTeacher):
        prompt = recipe.forget_component.teacher_prompt
        behind = prompted_rows(removed.rows, removed.examples or (), tokenizer, prompt=prompt, system=config.system)
    if kept is not None and "retain_alternates" in recipe.needs:
        _check_text(kept, f"retain loss {recipe.retain_loss!r}", "retain")
        retain_alternates = alternates(kept.examples or (), tokenizer, epochs=1, what="retain", **drawn)
    return UnlearningRows(
        removed,
        kept,
        alternate_answers,
        closest=near,
        retain_alternates=retain_alternates,
        prompted=behind,
        refused=refused,
        asked=asked,
    )


def changes_questions(recipe: Recipe) -> bool:
    """Whether a method reads the question of each forget row, so that no form may be a plain text."""
    return isinstance(recipe.forget_component, PromptedTeacher) or "refused_questions" in recipe.needs


def question_end(row: EncodedRow) -> EncodedRow:
    """Return the question of a row, of which only the last token is counted."""
    ids = row.prompt_ids
    return EncodedRow(ids, (*[IGNORE_INDEX] * (len(ids) - 1), ids[-1]), None, (None,) * len(ids), has_terminal=False)


def _check_text(rows: RowSet, who: str, what: str) -> None:
    if rows.examples is None:
        raise ValueError(f"{who} reads the text of {what} rows; pass them as Examples, not encoded.")


def _with_more(rows: RowSet, more: str, tokenizer: Any, limits: Mapping[str, Any], *, what: str) -> RowSet:
    """Append rows of a source, trained on as they are written; each replaces the form of a row that has the same prompt.

    A row as it was given is never replaced.
    """
    if rows.examples is None:
        raise ValueError(f"{what} adds text; pass the rows as text, not encoded.")
    only_written: Sequence[str] = ("question",) if rows.forms else ()
    written = encode_dataset(load_rows(more), tokenizer, what=what, **{**limits, "forms": only_written})
    forms, examples = rows.forms or ("question",) * len(rows.rows), rows.examples
    prompts = {row.messages for row in written.examples or ()}
    kept = [
        index
        for index, (form, row) in enumerate(zip(forms, examples, strict=True))
        if form == "question" or not row.messages or row.messages not in prompts
    ]
    own_forms = {row.messages: form for form, row in zip(forms, examples, strict=True) if row.messages}
    return dataclasses.replace(
        rows,
        rows=store_rows([*(rows.rows[index] for index in kept), *written.rows]),
        examples=store_rows([*(examples[index] for index in kept), *(written.examples or ())]),
        forms=None
        if rows.forms is None
        else (
            *(forms[index] for index in kept),
            *(
                own_forms.get(row.messages, "question") if row.messages else plain_form(row.answer, forms)
                for row in written.examples or ()
            ),
        ),
    )


def _without_openings(rows: RowSet) -> RowSet:
    """Count the plain-text forms of a question only from their first labelled word on, as an answer without its question.

    There a text of the forget set breaks off, and there a refusal would begin, too.
    """
    if rows.forms is None or rows.examples is None:
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
    found = label_words(examples, read_words(words))
    return store_rows(old if old.forget_spans is not None else new for old, new in zip(examples, found, strict=True))


def _everywhere(rows: RowSet) -> RowSet:
    """Count every position, including those of the prompt.

    A token is predicted at the position before it, so one token is appended to each row for its last position. Its
    value does not matter: distances compare distributions.
    """

    def whole(row: EncodedRow) -> EncodedRow:
        ids = (*row.input_ids, row.input_ids[-1])
        counted, offsets = (IGNORE_INDEX, *ids[1:]), (*row.answer_offsets, None)
        return dataclasses.replace(row, input_ids=ids, labels=counted, token_labels=None, answer_offsets=offsets)

    return dataclasses.replace(rows, rows=store_rows(map(whole, rows.rows)))
