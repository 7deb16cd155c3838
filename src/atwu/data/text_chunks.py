"""Split long texts into pieces that fit a row, without a tokenizer, so that the same rows are read for every model."""

from __future__ import annotations

CHUNK_CHARACTERS = 1500
"""About 375 tokens of English, below the default `max_length` of 512 also for text with many short tokens."""
_ENDS = ("\n\n", ". ", "\n", " ")
"""Where a piece may end, preferred places first: paragraph, sentence, line, word."""


def text_chunks(text: str, *, size: int = CHUNK_CHARACTERS) -> list[str]:
    """Split a text into pieces of at most `size` characters.

    Every piece but the last ends with the last paragraph, else sentence, line or word that ends in its second half, and
    within a word if none does. The pieces hold all of the text but the white space around them.
    """
    pieces = []
    rest = text.strip()
    while len(rest) > size:
        window = rest[: size + 1]
        places = ((window.rfind(end, size // 2), end) for end in _ENDS)
        cut = next((place + len(end.rstrip()) for place, end in places if place > 0), size)
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*pieces, rest] if rest else pieces
