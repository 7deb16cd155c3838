"""Read a text file as forget rows: a document becomes passages, a list of questions needs a model to answer them first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._file_reading import file_text
from atwu.data.passages import document_passages, word_spans
from atwu.data.wording import FEWEST_TEXT_WORDS

DOCUMENT_SUFFIXES = (".txt", ".md")
MOST_TAKEN = 200
"""Passages that are taken of a document, at most: 10,000 words. All of a book would be asked for and trained on for hours."""
_QUESTION_MARKS = ("?", "？", "؟")


@dataclass(frozen=True, slots=True)
class Document:
    passages: tuple[str, ...]
    """The passages that are taken, in order."""
    note: str | None
    """What was not taken; None if everything was."""


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENT_SUFFIXES


def is_list_of_questions(text: str) -> bool:
    """Return whether every line that is not empty ends with a question mark."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return bool(lines) and all(line.endswith(_QUESTION_MARKS) for line in lines)


def read_document(path: Path) -> Document:
    """Read a text file as passages of up to 60 words.

    Raises:
        ValueError: it is empty, no text, too short, or a list of questions.
    """
    text = file_text(path)
    control = next((char for char in text if char < " " and char not in "\t\n\v\f\r"), None)
    if control is not None:
        line = text[: text.index(control)].count("\n") + 1
        raise ValueError(
            f"{path}, line {line}: not a text file (control character U+{ord(control):04X}); save the document as plain text."
        )
    if is_list_of_questions(text):
        raise ValueError(
            f"{path} holds questions without answers, one a line; let the model answer them: atwu ask --model MODEL "
            f"--questions {path} --output rows.jsonl."
        )
    every = document_passages(text)
    words = sum(len(word_spans(passage)) for passage in every)
    if not words:
        raise ValueError(f"{path} is empty: it has no words; give a text of at least {FEWEST_TEXT_WORDS} words.")
    if words < FEWEST_TEXT_WORDS:
        raise ValueError(
            f"{path} is too short: words {words}, at least {FEWEST_TEXT_WORDS} needed. A model is given the beginning of a "
            "document and must not know the rest; give a fact as a question with its answer, in a .jsonl file."
        )
    if len(every) <= MOST_TAKEN:
        return Document(tuple(every), None)
    taken = tuple(every[place * len(every) // MOST_TAKEN] for place in range(MOST_TAKEN))
    count = sum(len(word_spans(passage)) for passage in taken)
    return Document(
        taken,
        f"{path} has {len(every):,} passages; {MOST_TAKEN} of them, evenly spaced, are taken ({count:,} of {words:,} "
        "words). The others are neither unlearned nor measured: give the parts that matter as a file of their own (atwu ask "
        f"--document {path} shows what the model recites).",
    )
