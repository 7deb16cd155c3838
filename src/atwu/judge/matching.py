"""Where and how far an answer states a fact: as it stands, in another order, by surname or initial, or in part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from atwu.judge.facts import Fact
from atwu.judge.normalise import ARTICLES, Word, find_run, words_of
from atwu.judge.numerals import listed

_BEFORE_A_SURNAME = frozenset(listed("mr mrs ms dr doctor professor captain bishop general lady sir"))
_GENERIC = frozenset(word.stem for word in words_of("university college river lake mount"))
"""Words that a name keeps its meaning without."""
_SLACK = 4
"""Words that may stand between the words of a fact told in another order."""
_WHO = re.compile(r"\bwho(?:m|se)?\b|\b(?:author|writer|painter|lawyer|composer|doctor|name)\b", re.I)


@dataclass(frozen=True, slots=True)
class Match:
    """Where and how far an answer states a fact."""

    share: float
    """Share of the fact's content words that are stated, in [0, 1]."""
    start: int = -1
    """First word of the answer that belongs to it; -1: nowhere as a whole."""
    end: int = -1
    """One past its last word."""


def match(fact: Fact, answer: Sequence[Word], question: str) -> Match:
    """Find a fact in an answer: as it stands, in another order, or by surname or initial where a person is asked for."""
    words = fact.words
    if fact.kind == "title" and len(fact.content) > 2:  # "On the Drift of Ice" may be told as "The Drift of Ice"
        words = words[next((place for place, word in enumerate(words) if not word.function), 0) :]
    sought = [word.stem for word in words if word.text not in ARTICLES]
    run = find_run(sought or [word.stem for word in fact.words], answer)
    if run:
        return Match(0.0) if fact.kind == "title" and _ends_a_longer_title(answer, run[0]) else Match(1.0, *run)
    if fact.kind != "title" and len(fact.content) > 1:
        found = _in_any_order(fact.content, answer)
        if found.start >= 0:
            return found
    if fact.words[0].capital and len(fact.content) > 1:
        found = _by_initial(fact.content, answer)
        if found.start < 0 and fact.kind in ("name", "place"):
            found = _without_generic_words(fact, answer)
        if found.start < 0 and fact.kind in ("name", "place") and _WHO.search(question):
            found = _by_surname(fact.content, answer)
        if found.start >= 0:
            return found
    stems = {word.stem for word in answer}
    if fact.kind in ("date", "title") or (fact.given and fact.kind != "words"):
        return Match(0.0)
    glued = {word.stem for pair in zip(fact.words, fact.words[1:], strict=False) if pair[1].glued for word in pair}
    needed = {word.stem for word in fact.words if word.number or (word.capital and fact.kind != "number")} | glued
    if not needed <= stems:
        return Match(0.0)
    return Match(sum(stem in stems for stem in fact.content) / len(fact.content))


def _ends_a_longer_title(answer: Sequence[Word], start: int) -> bool:
    """Whether words of the same quotation stand before the match: "Beneath the Broken Gate" is not "Broken Gate"."""
    while start > 0 and answer[start].quoted and answer[start - 1].quoted and not answer[start].gap:
        start -= 1
        if not answer[start].function:
            return True
    return False


def _without_generic_words(fact: Fact, answer: Sequence[Word]) -> Match:
    core = [stem for stem in fact.content if stem not in _GENERIC]
    run = find_run(core, answer) if 0 < len(core) < len(fact.content) else None
    return Match(1.0, *run) if run else Match(0.0)


def _in_any_order(content: Sequence[str], answer: Sequence[Word]) -> Match:
    """All content words within a few words of each other, in one sentence."""
    needed = set(content)
    last: dict[str, int] = {}
    sentence = 0
    for place, word in enumerate(answer):
        if word.gap == ".":
            sentence = place
        if word.stem in needed:
            last[word.stem] = place
            if len(last) == len(needed):
                start = min(last.values())
                if start >= sentence and place - start < len(content) + _SLACK:
                    return Match(1.0, start, place + 1)
    return Match(0.0)


def _by_initial(content: Sequence[str], answer: Sequence[Word]) -> Match:
    for place in range(1, len(answer)):
        before = answer[place - 1].text
        if answer[place].stem == content[-1] and len(before) == 1 and content[0].startswith(before):
            return Match(1.0, place - 1, place + 1)
    return Match(0.0)


def _by_surname(content: Sequence[str], answer: Sequence[Word]) -> Match:
    for place, word in enumerate(answer):
        before = answer[place - 1] if place else None
        alone = before is None or bool(word.gap) or before.function or before.text in _BEFORE_A_SURNAME
        if word.stem == content[-1] and (alone or (before is not None and before.stem in content)):
            return Match(1.0, place, place + 1)
    return Match(0.0)
