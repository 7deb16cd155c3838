"""What a row keeps secret, and whether a text gives it away."""

from __future__ import annotations

import re

from atwu.data.schema import Example


def span_texts(row: Example) -> tuple[str, ...]:
    """Texts of the row's forget spans, each once; empty without annotation."""
    return tuple(dict.fromkeys(row.answer[start:end] for start, end in row.forget_spans or ()))


def secrets_of(row: Example) -> tuple[str, ...]:
    """Texts of the forget spans that the question does not say itself."""
    return tuple(text for text in span_texts(row) if not says(row.question, text))


def says(text: str, phrase: str) -> bool:
    """Whether the text holds the phrase as whole words, whatever the case and the white space."""
    return re.search(pattern_of(phrase), text, re.IGNORECASE) is not None if phrase.strip() else False


def pattern_of(phrase: str) -> str:
    """Regular expression of a phrase as whole words; scripts that are written without spaces have no word ends."""
    body = r"\s+".join(re.escape(word) for word in phrase.split())
    first, last = phrase.strip()[:1], phrase.strip()[-1:]
    start, end = r"(?<!\w)" if _spaced(first) else "", r"(?!\w)" if _spaced(last) else ""
    return start + body + end


def folded(text: str) -> str:
    """Text for comparison: one case, single spaces."""
    return " ".join(text.casefold().split())


def _spaced(character: str) -> bool:
    return character.isascii() and character.isalnum()
