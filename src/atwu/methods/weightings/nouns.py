"""Mask of the tokens in noun phrases, as in focused UNDIAL (Dong et al. 2025).

A noun finder returns character ranges of an answer; `noun_mask` converts them to 0/1 weights of the answer's tokens. The
ATWU paper compares with spaCy's noun chunks; `simple_nouns` needs no model and is less accurate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from atwu._extras import require
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow, touches
from atwu.data.schema import Span

NounFinder: TypeAlias = Callable[[str], Sequence[Span]]
"""Maps an answer to the half-open, non-empty character ranges of its nouns or noun phrases, in any order."""

_WORD = re.compile(r"\w+(?:(?:['’\u2010\u2011-]|(?<=\d)[.,](?=\d))\w+)*")
_SENTENCE_END = re.compile(r"[.!?…\n]")
_COMMON = (
    "a about above according after all also although an and another any are as at be because been before being "
    "below besides between both but by can could despite did do does during each either every few first finally "
    "for from had has have he her here his how however i if in indeed into is it its later many may might more "
    "moreover most much my neither no nor not now of often on one only or other our over perhaps several shall "
    "she should since so some such than that the their then there these they this those though through thus to "
    "today under until upon was we were what when where whether which while who whose why will with within "
    "without would yes yet you your"
)
_LOWER_CASE_WORDS = frozenset(_COMMON.split())


def noun_finder(name: str) -> NounFinder:
    """Return a noun finder by name.

    Args:
        name: `simple` (`simple_nouns`), or a spaCy model (installed package or folder of a pipeline), whose noun chunks are
            used, determiners included ("the author's name"). The model is loaded here, once.

    Raises:
        ImportError: spaCy or the model package is missing; the message gives the install command.
        ValueError: raised by the finder if the model has no tagger or parser.
    """
    if name == "simple":
        return simple_nouns
    try:
        nlp = require("spacy", extra="nouns").load(name)
    except OSError as error:
        raise ImportError(
            f"cannot load the spaCy model {name}; run: python -m spacy download {name} ({error})"
        ) from error

    def find(text: str) -> list[Span]:
        try:
            return [(chunk.start_char, chunk.end_char) for chunk in nlp(text).noun_chunks]
        except (ValueError, NotImplementedError) as error:
            raise ValueError(
                "this spaCy pipeline gives no noun chunks; use one with a tagger and a dependency parser, such as "
                f"en_core_web_sm ({error})."
            ) from error

    return find


def simple_nouns(text: str) -> list[Span]:
    """Find runs of capitalized words and numbers by spelling, as a substitute for a tagger.

    The first word of a sentence counts only if another capitalized word follows directly or it is not a common
    English function word; the pronoun "I" never counts. Finds names, titles, places and numbers, but no lower-case nouns;
    other capitalized words are included wrongly. Requires a script with capital letters.
    """
    words = list(_WORD.finditer(text))
    spans: list[Span] = []
    for index, word in enumerate(words):
        end_before = words[index - 1].end() if index else 0
        between = text[end_before : word.start()]
        opens = index == 0 or _SENTENCE_END.search(between) is not None
        if not word[0][0].isdigit() and not _is_name(words, index, opens, text):
            continue
        previous = spans[-1] if spans else None
        if previous and not opens and previous[1] == words[index - 1].end() and between.isspace():
            spans[-1] = (previous[0], word.end())
        else:
            spans.append(word.span())
    return spans


def noun_mask(row: EncodedRow, answer: str, finder: NounFinder) -> FloatArray:
    """Return 1 for counted tokens that overlap a noun phrase, else 0; the leading space of a token is ignored.

    Args:
        answer: its answer, to which `row.answer_offsets` refer.

    Returns:
        0/1 weights, shape (counted tokens,); the terminal token is 0; all 0 if no noun is found.
    """
    spans = finder(answer)
    marks = [float(touches(offset, spans, answer)) for offset in row.counted(row.answer_offsets)]
    return np.array(marks, dtype=np.float64)


def _is_name(words: Sequence[re.Match[str]], index: int, opens: bool, text: str) -> bool:
    word = words[index][0]
    plain = re.split(r"['’]", word.lower())[0]  # "It's" opens a sentence as "It" does
    if not word[0].isupper() or plain == "i":
        return False
    if not opens or plain not in _LOWER_CASE_WORDS:
        return True
    if index + 1 == len(words):
        return False
    # "The Hague", "Will Smith": a function word at the start of a sentence is part of a name if one follows it.
    following = words[index + 1]
    return following[0][0].isupper() and text[words[index].end() : following.start()].isspace()
