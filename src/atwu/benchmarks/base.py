"""The `Benchmark` type: training rows by source name, evaluation rows, and probes; and `LoadedRows`, the rows of one source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example, Message

Examples = Sequence[Example]
_T = TypeVar("_T")

MOST_ROWS = 400
"""Maximum number of evaluated rows per set, as in the evaluation of the ATWU paper."""
CHUNK_CHARACTERS = 1500
"""About 375 tokens of English, below the default `max_length` of 512 also for text with many short tokens."""
_ENDS = ("\n\n", ". ", "\n", " ")
"""Where a piece may end, preferred places first: paragraph, sentence, line, word."""


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """Rows of one source."""

    rows: Examples
    """The rows, in memory or, for large data sets, on disk."""
    source: str
    warnings: tuple[str, ...] = ()
    """Warnings for the reader, one sentence each: ignored columns, duplicate rows."""

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the canonical JSON of the rows."""
        return fingerprint(self.rows)


def name_parts(name: str, form: str, **allowed: Collection[str]) -> list[Any]:
    """Split the name of a source or benchmark, such as `muse:news:forget:10`.

    Args:
        form: its form, such as `muse:CORPUS:SPLIT`; `:N` may follow.
        allowed: word of the form -> what may stand for it; anything stands for the other words.

    Returns:
        What stands for each word, and N or None.
    """
    # The form serves as pattern and as message, so that both say the same.
    prefix, *words = form.split(":")
    first, *parts = name.split(":", len(words) + 1)
    fits = all(part in allowed.get(word, (part,)) for part, word in zip(parts, words, strict=False))
    if first != prefix or len(parts) < len(words) or not fits:
        choices = "".join(f"; {word} is one of {', '.join(allowed[word])}" for word in words if word in allowed)
        raise ValueError(f"{name!r} is not {form}[:N]{choices}.")
    stands = parts[: len(words)]
    if len(parts) == len(words):
        return [*stands, None]
    count = parts[-1]
    if not count.isdecimal() or int(count) < 1:
        raise ValueError(f"{name!r}: N in {form}:N must be a whole number of at least 1, got {count!r}.")
    return [*stands, int(count)]


def first_rows(name: str, rows: Examples, count: int | None) -> Examples:
    """Return the first `count` rows; None returns all."""
    # A name with a number stands for that many rows.
    if count is not None and count > len(rows):
        raise ValueError(f"{name!r}: its number of rows must be from 1 to {len(rows)}, got {count}.")
    return rows[:count]


def evenly_spaced(rows: Sequence[_T], count: int | None) -> tuple[_T, ...]:
    """Return at most `count` rows, evenly spaced, so that every part of a set ordered by subject is represented."""
    if count is None or count >= len(rows):
        return tuple(rows)
    return tuple(rows[index * len(rows) // count] for index in range(count))


def rows_to_measure(rows: Examples) -> Examples:
    """Return at most `MOST_ROWS` rows, evenly spaced."""
    return evenly_spaced(rows, MOST_ROWS)


def text_chunks(text: str, *, size: int = CHUNK_CHARACTERS) -> list[str]:
    """Split a text into pieces of at most `size` characters that fit a row, without a tokenizer: the same for every model.

    Every piece but the last ends with the last paragraph, else sentence, line or word that ends in its second half, and
    within a word if none does. The pieces hold all of the text but the white space around them.
    """
    pieces = []
    rest = text.strip()
    while len(rest) > size:
        window = rest[: size + 1]
        # From the middle on, so that no piece is much shorter than the others.
        places = ((window.rfind(end, size // 2), end) for end in _ENDS)
        cut = next((place + len(end.rstrip()) for place, end in places if place > 0), size)
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    if rest:
        pieces.append(rest)
    return pieces


@dataclass(frozen=True, slots=True)
class Probe:
    kind: str
    """Group of probes that are averaged."""
    row: Example
    """Turns and reference answer; a text to be continued has no turns."""
    opening: str = ""
    """Beginning of the answer, or of a text to be continued."""
    wording: str = ""
    """What the user says instead of the row's turns."""

    @property
    def messages(self) -> tuple[Message, ...]:
        if self.wording:
            return (Message("user", self.wording),)
        return self.row.messages


@dataclass(frozen=True, slots=True)
class Probes:
    """Prompts of a benchmark's own, in file order, answered in addition to the rows of the sets."""

    name: str
    """Name of their set, and of the metric that they are for."""
    probes: tuple[Probe, ...]
    subjects: tuple[str, ...] = ()
    """Chosen subjects of RWKU."""

    @property
    def rows(self) -> tuple[Example, ...]:
        return tuple(probe.row for probe in self.probes)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Sources of training rows, and rows for evaluation."""

    name: str
    forget_source: str
    """Forget set, as `load_rows` reads it."""
    retain_source: str
    """Retain set for unlearning."""
    full_source: str
    """Rows that the original model is trained on."""
    retain_only_source: str
    """The same rows without the forget set."""
    forget: Examples = field(repr=False)
    """Evaluated forget rows, with paraphrases, wrong answers and labels where available."""
    retain: Examples = field(repr=False)
    """Evaluated retain rows."""
    pool: Examples = field(repr=False)
    """Every retain row; in-context examples are drawn from it."""
    holdout: Examples = field(default=(), repr=False)
    """Holdout rows, which no model was trained on, for membership inference attacks."""
    extra_retain: Mapping[str, Examples] = field(default_factory=dict, repr=False)
    """Further retain sets, by name."""
    probes: Probes | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()
    """What differs from the published benchmark, one sentence each."""
    paired_source: str | None = None
    """Forget set with a preferred answer for each row, for methods that use one; None if `forget_source` serves all
    methods."""

    def forget_source_for(self, *, paired: bool) -> str:
        """Return the source of forget rows, with preferred answers (`paired`) or without."""
        if paired and self.paired_source is not None:
            return self.paired_source
        return self.forget_source
