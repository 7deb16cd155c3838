"""Where and how far an answer states a fact: as it stands, in another order, by surname or initial, or in part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from atwu.judge.rules.facts import Fact
from atwu.judge.rules.normalise import ARTICLES, PASSED_OVER, Word, find_run, same_without_synonyms, words_of
from atwu.judge.rules.numerals import listed

_BEFORE_A_SURNAME = frozenset(listed("mr mrs ms miss dr doctor professor captain bishop general lady sir"))
_GENERIC = frozenset(word.stem for word in words_of("university college river lake mount"))
"""Words that a name keeps its meaning without."""
_ONE = ("a", "an")
_PREPOSITIONS = frozenset(listed("for in at on about with by from to near"))
_RELATIVE = frozenset(listed("that which who"))
_SLACK = 4
"""Words that may stand between the words of a fact told in another order."""
_WHO = re.compile(r"\bwho(?:m|se)?\b|\b(?:author|writer|painter|lawyer|composer|doctor)\b", re.I)


@dataclass(frozen=True, slots=True)
class Match:
    """Where and how far an answer states a fact."""

    share: float
    """Share of the fact's content words that are stated, in [0, 1]."""
    start: int = -1
    """First word of the answer that belongs to it; -1: nowhere as a whole."""
    end: int = -1
    """One past its last word."""


def match(fact: Fact, answer: Sequence[Word], question: str, reference: str) -> Match:
    """Find a fact in an answer: as it stands, in another order, or by surname or initial where a person is asked for."""
    words = fact.words
    answer = _without_near_names(fact, answer)
    if fact.kind == "title" and len(fact.content) > 2:  # "On the Drift of Ice" may be told as "The Drift of Ice"
        words = words[next((place for place, word in enumerate(words) if not word.function), 0) :]
    sought = [word.stem for word in words if word.text not in PASSED_OVER]
    run = find_run(sought or [word.stem for word in fact.words], answer)
    if run:
        return Match(0.0) if fact.kind == "title" and _in_a_longer_title(fact, answer, *run) else Match(1.0, *run)
    if fact.kind != "title" and len(fact.content) > 1:
        found = _in_any_order(fact.content, answer, counted=fact.kind == "number")
        if found.start >= 0 and not _scattered(fact, answer[found.start : found.end]):
            return found
        if found.start >= 0:
            return Match(0.5)
    if fact.words[0].capital and len(fact.content) > 1:
        found = _by_initial(fact.content, answer) if len(fact.content[0]) > 2 else Match(0.0)
        if found.start < 0 and fact.kind in ("name", "place"):
            found = _without_generic_words(fact, answer, question)
        if found.start < 0 and fact.kind in ("name", "place") and _WHO.search(question):
            known = (*words_of(question), *words_of(reference))
            found = _by_surname(fact.content, answer, {word.stem for word in known if not word.capital})
        if found.start >= 0:
            return found
    if fact.kind == "number" and (bare := _bare_number(fact, answer)) >= 0:
        return Match(1.0, bare, bare + 1)
    stems = {word.stem for word in answer}
    exact = fact.given and fact.kind != "words" and (fact.kind != "place" or all(word.capital for word in fact.words))
    if fact.kind in ("date", "title") or exact or _one_word_differs(fact, answer):
        return Match(0.0)
    glued = {word.stem for pair in zip(fact.words, fact.words[1:], strict=False) if pair[1].glued for word in pair}
    needed = {word.stem for word in fact.words if word.number or (word.capital and fact.kind != "number")} | glued
    if not needed <= stems:
        return Match(0.0)
    if any(word.number and not _counts(fact, place, answer) for place, word in enumerate(fact.words)):
        return Match(0.0)
    return Match(fact.share(stems))


def _without_near_names(fact: Fact, answer: Sequence[Word]) -> Sequence[Word]:
    """Keep names apart that have one stem: "Teale" is not "Teal", "Parker" not "Park" (but "Gulls" is "Gull")."""
    names = {word.stem: word.text for word in fact.words if word.capital}
    if not any(word.stem in names and word.text != names[word.stem] for word in answer):
        return answer
    return [
        word._replace(stem=f"{word.stem}'") if _other_name(names.get(word.stem, word.text), word.text) else word
        for word in answer
    ]


def _other_name(first: str, second: str) -> bool:
    same = next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(map(len, (first, second)))
    )
    if first == second:
        return False
    return {first[same:], second[same:]} <= {"", "e", "i", "y", "er", "or"} or not same_without_synonyms(first, second)


def _one_word_differs(fact: Fact, answer: Sequence[Word]) -> bool:
    """Whether the answer has the fact with another word in place of one ("F sharp major" for "F sharp minor")."""
    size = len(fact.content)
    if size < 2 or not fact.given:
        return False
    content = [word for word in answer if not word.function]
    for start in range(len(content) - size + 1):
        window = content[start : start + size]
        differ = [place for place in range(size) if window[place].stem != fact.content[place]]
        compact = len(fact.words) == size  # else "full of letters" would not be "filled with letters"
        if (differ in ([0], [size - 1]) or (compact and len(differ) == 1)) and not any(word.gap for word in window[1:]):
            return True
    return False


def _counts(fact: Fact, place: int, answer: Sequence[Word]) -> bool:
    """Whether a number of the fact belongs to the same noun in the answer, if to any: "2 brothers" is not "2 sisters"."""
    number = fact.words[place].stem
    unit = next((word.stem for word in fact.words[place + 1 :] if not word.function), "")
    return not unit or any(
        word.stem == number
        and (_is_bare(answer, at) or unit in {near.stem for near in answer[max(at - 1, 0) : at + 3]})
        for at, word in enumerate(answer)
    )


def _is_bare(answer: Sequence[Word], at: int) -> bool:
    """Whether a number stands without a noun."""
    after = answer[at + 1] if at + 1 < len(answer) else None
    return after is None or bool(after.gap) or after.function


def _bare_number(fact: Fact, answer: Sequence[Word]) -> int:
    """Place of the only number of a fact of two words ("48 crowns") told without its noun and alone; -1: not so."""
    if fact.words[0].text == "1" and len(fact.words) == 2:  # "a sister"
        unit = fact.words[1].stem
        return next(
            (at for at, word in enumerate(answer[1:], 1) if word.stem == unit and answer[at - 1].text in _ONE), -1
        )
    numbers = [at for at, word in enumerate(answer) if word.number]
    alone = len(numbers) == 1 and _is_bare(answer, numbers[0]) and len(fact.content) == 2
    return numbers[0] if alone and answer[numbers[0]].stem == fact.content[0] else -1


def _in_a_longer_title(fact: Fact, answer: Sequence[Word], start: int, end: int) -> bool:
    """Whether the same quotation says more than the match: "Beneath the Broken Gate" is not "Broken Gate"."""
    own = ARTICLES | {word.text for word in fact.words}
    after = answer[end] if end < len(answer) else None
    if after and after.quoted and answer[end - 1].quoted and not after.gap and not after.function:
        return True
    while start > 0 and answer[start].quoted and answer[start - 1].quoted and not answer[start].gap:
        start -= 1
        word = answer[start]
        if not word.function or (word.capital and word.text not in own):
            return True
    return False


def _without_generic_words(fact: Fact, answer: Sequence[Word], question: str) -> Match:
    """A name without its common noun, when the question has it ("Which street?"), unless another one stands there."""
    asked = {word.stem for word in words_of(question)}
    core = [
        word.stem for word in fact.words if not word.function and word.stem not in _GENERIC | asked and word.capital
    ]
    run = find_run(core, answer) if 0 < len(core) < len(fact.content) else None
    after = answer[run[1]] if run and run[1] < len(answer) else None
    if not run or (after and after.capital and not after.gap and not after.function and after.stem not in fact.content):
        return Match(0.0)
    return Match(1.0, *run)


def _in_any_order(content: Sequence[str], answer: Sequence[Word], *, counted: bool) -> Match:
    """All content words within a few words of each other, in one sentence; no other number between them if `counted`."""
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
                numbers = sum(other.number for other in answer[start : place + 1])
                if counted and numbers > sum(stem[0].isdigit() for stem in needed):
                    continue
                if start >= sentence and place - start < len(content) + _SLACK:
                    return Match(1.0, start, place + 1)
    return Match(0.0)


def _scattered(fact: Fact, told: Sequence[Word]) -> bool:
    """Whether a noun and its modifier stand apart: "fiction for children in a historical town" is no historical fiction."""
    if fact.kind != "words" or len(fact.words) != 2:
        return False
    between = [word for word in told if not word.function and word.stem not in fact.content]
    texts = {word.text for word in told}
    return bool(between) and bool(texts & _PREPOSITIONS) and not texts & _RELATIVE  # "an iris that grows in the bog"


def _by_initial(content: Sequence[str], answer: Sequence[Word]) -> Match:
    for place in range(1, len(answer)):
        before = answer[place - 1].text
        if answer[place].stem == content[-1] and len(before) == 1 and content[0].startswith(before):
            return Match(1.0, place - 1, place + 1)
    return Match(0.0)


def _by_surname(content: Sequence[str], answer: Sequence[Word], roles: set[str]) -> Match:
    for place, word in enumerate(answer):
        before = answer[place - 1] if place else None
        alone = before is None or bool(word.gap) or before.function or before.text in _BEFORE_A_SURNAME
        alone = alone or (before is not None and before.stem in roles)  # "Mayor Ferrant", if asked for the mayor
        if word.stem == content[-1] and (alone or (before is not None and before.stem in content)):
            return Match(1.0, place, place + 1)
    return Match(0.0)
