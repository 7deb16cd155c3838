"""Key tokens of an answer: the words that carry the fact, found by rule and without a model.

Most words of an answer ("His dog is called ...") carry no information. Key tokens are the labelled words (`forget_spans`)
if a row has labels. Otherwise a rule finds them: names, numbers and formulas that are not in the question, or in a text not in
its subject, or longer words if there is none. Words that are rare in general text are preferred ("Tokyo" is common, but the
only key token of "The capital of Japan is Tokyo."). Inflected words of the question do not count: "worked" after "work",
"Japanese" after "Japan".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Set

from atwu.data.general_rows import general_text_documents
from atwu.data.schema import Example

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
"""A word, with inner apostrophes and hyphens."""
FORMULA = re.compile(r"\S*[\^=]\S*")
"""A part of a formula, such as "mc^2"."""
SHORTEST = 4
"""Minimum number of letters of a word without a capital or digit; shorter words are mostly function words."""
STEM, ENDING = 4, 3
"""Minimum length of a word of the question, and maximum length of its ending in the answer: Japan, Japanese."""


def key_token_spans(row: Example) -> tuple[tuple[int, int], ...]:
    """Return the character ranges of an answer's key tokens; if none qualifies, of new words, or of all words."""
    if row.forget_spans:
        return row.forget_spans
    every = list(WORD.finditer(row.answer))
    given = [message.content for message in row.messages] or [row.subject or ""]
    asked = {_bare(word) for text in given for word in WORD.findall(text)}
    lower = {word.lower() for word in asked}
    unasked = [match for match in every if _bare(match.group()).lower() not in lower]
    new = [match for match in unasked if not _with_ending(_bare(match[0]), asked if match[0][0].isupper() else lower)]
    rare = [match for match in new if _bare(match.group()).lower() not in _general_words()]
    candidates = (_names_or_long_words(words, row) for words in (rare, new, unasked))
    return tuple(match.span() for match in next(filter(None, candidates), rare or new or every))


def _bare(word: str) -> str:
    """Remove the possessive `'s` of a word."""
    return re.sub("['’]s$", "", word)


def _with_ending(word: str, words: Set[str]) -> bool:
    """Return whether a word is one of `words` plus an ending; names are compared with names only ("Borneo", "born")."""
    stems = (word[:length] for length in range(max(STEM, len(word) - ENDING), len(word)))
    return word[0].isalpha() and any(stem in words for stem in stems)


def _names_or_long_words(words: list[re.Match[str]], row: Example) -> list[re.Match[str]]:
    named = [word for word in words if _is_name_or_number(word, row.answer)]
    return named or [word for word in words if len(word.group()) >= SHORTEST]


def _is_name_or_number(word: re.Match[str], answer: str) -> bool:
    """Return whether a word is a number, capitalized within a sentence, or part of a formula."""
    text, before = word.group(), answer[: word.start()].rstrip(" \"'“‘(")
    if text[0].isdigit() or (text[0].isupper() and bool(before) and before[-1] not in ".!?:"):
        return True
    return any(part.start() <= word.start() < part.end() for part in FORMULA.finditer(answer))


@functools.cache
def _general_words() -> frozenset[str]:
    return frozenset(_bare(word).lower() for text in general_text_documents() for word in WORD.findall(text))
