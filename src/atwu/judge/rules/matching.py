"""Find a fact in an answer: verbatim, in another order, by surname or initial, or in part."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from atwu.judge.rules.facts import Fact
from atwu.judge.rules.normalized_words import PASSED_OVER, Word, find_run, stems_of, words_of
from atwu.judge.rules.numerals import split_entries

_BEFORE_A_SURNAME = frozenset(split_entries("mr mrs ms miss dr doctor professor captain bishop general lady sir"))
_SLACK = 4
"""Maximum number of other words among those of a fact in another order."""
_WHO = re.compile(r"\bwho(?:m|se)?\b|\b(?:author|writer|painter|lawyer|composer|doctor)\b", re.I)


class Match(NamedTuple):
    """Position of a fact in an answer, and its stated share."""

    share: float
    """Share of the fact's content words that are stated, in [0, 1]."""
    start: int = -1
    """Index of its first word in the answer; -1 if the answer does not contain all of it."""
    end: int = -1
    """Index after its last word."""


def match(fact: Fact, answer: Sequence[Word], question: str, reference: str) -> Match:
    """Find a fact in an answer: verbatim, in another order, or, if the question asks for a person, by surname or initial."""
    words, content = fact.words, fact.content
    if fact.kind == "title" and len(content) > 2:  # "The Drift of Ice" matches "On the Drift of Ice"
        words = words[next((place for place, word in enumerate(words) if not word.function), 0) :]
    found = find_run([word.stem for word in words if word.text not in PASSED_OVER] or list(content), answer)
    if found is None and len(content) > 1 and fact.kind != "title":
        found = _in_any_order(content, answer)
    if found is None and len(content) > 1 and words[0].capital:
        found = _by_initial(content, answer) if len(content[0]) > 2 else None
        if fact.kind in ("name", "place"):
            found = found or _without_generic_words(fact, answer, stems_of(question))
            if _WHO.search(question):
                roles = {word.stem for text in (question, reference) for word in words_of(text) if not word.capital}
                found = found or _by_surname(content, answer, roles)
    if found is not None:
        return Match(1.0, *found)
    if fact.kind in ("date", "title") or (fact.given and (fact.kind != "words" or _one_word_differs(fact, answer))):
        return Match(0.0)
    stems = {word.stem for word in answer}
    glued = {word.stem for pair in itertools.pairwise(words) if pair[1].glued for word in pair}
    needed = glued | {word.stem for word in words if word.number or (word.capital and fact.kind != "number")}
    return Match(sum(stem in stems for stem in content) / len(content) if needed <= stems else 0.0)


def _in_any_order(content: Sequence[str], answer: Sequence[Word]) -> tuple[int, int] | None:
    """Find all content words within a few words of each other, in one sentence."""
    last: dict[str, int] = {}
    sentence = 0
    for place, word in enumerate(answer):
        if word.gap == ".":
            sentence = place
        if word.stem in content:
            last[word.stem] = place
            start = min(last.values())
            if len(last) == len(set(content)) and start >= sentence and place - start < len(content) + _SLACK:
                return start, place + 1
    return None


def _by_initial(content: Sequence[str], answer: Sequence[Word]) -> tuple[int, int] | None:
    """Find a name with an initial: "O. Venn" for "Orla Venn"."""
    for place in range(1, len(answer)):
        before = answer[place - 1].text
        if answer[place].stem == content[-1] and len(before) == 1 and content[0].startswith(before):
            return place - 1, place + 1
    return None


def _without_generic_words(fact: Fact, answer: Sequence[Word], asked: frozenset[str]) -> tuple[int, int] | None:
    """Find a name without its common noun if the question contains it ("Which street?"), unless another noun follows."""
    core = [word.stem for word in fact.words if word.capital and not word.function and word.stem not in asked]
    run = find_run(core, answer) if 0 < len(core) < len(fact.content) else None
    after = answer[run[1]] if run and run[1] < len(answer) else None
    other = after and after.capital and not after.gap and not after.function and after.stem not in fact.content
    return None if other else run


def _by_surname(content: Sequence[str], answer: Sequence[Word], roles: set[str]) -> tuple[int, int] | None:
    """Find a surname that no other first name precedes; "Mayor Ferrant" if the question asks for a mayor."""
    for place, word in enumerate(answer):
        before = answer[place - 1] if place and not word.gap else None
        alone = before is None or before.function or before.text in _BEFORE_A_SURNAME or before.stem in roles
        if word.stem == content[-1] and (alone or (before is not None and before.stem in content)):
            return place, place + 1
    return None


def _one_word_differs(fact: Fact, answer: Sequence[Word]) -> bool:
    """Return whether the answer contains the fact with one word replaced ("F sharp major" for "F sharp minor")."""
    size = len(fact.content)
    content = [word for word in answer if not word.function]
    for start in range(len(content) - size + 1 if size > 1 else 0):
        window = content[start : start + size]
        differ = [place for place in range(size) if window[place].stem != fact.content[place]]
        compact = len(fact.words) == size  # else "full of letters" would not be "filled with letters"
        if (differ in ([0], [size - 1]) or (compact and len(differ) == 1)) and not any(word.gap for word in window[1:]):
            return True
    return False
