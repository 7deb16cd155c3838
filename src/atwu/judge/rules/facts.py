"""Which words of a reference carry its fact, and whether an answer states them.

Given facts are taken as they are. Without them the facts are what the reference says beyond the question, cut into
runs of words. Of several facts only those count that the question asks for (a date for "when", a name for "who"), if
there are such; the others are side details.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from atwu.judge.rules.normalise import ARTICLES, PASSED_OVER, Word, find_run, words_of
from atwu.judge.rules.numerals import MONTHS, listed
from atwu.judge.rules.runs import asides, new_runs

Kind = Literal["date", "number", "place", "name", "title", "words"]

_PLACE_BEFORE = frozenset(listed("in at near from on above below"))
_DETERMINERS = ARTICLES | frozenset(listed("his her their its"))
_BEFORE_A_SIDE_DETAIL = frozenset(
    listed("for at of after during before with as until since outside inside behind beside")
)
_WITHIN = ARTICLES | frozenset(listed("in near outside of town city village"))
_ASKED: tuple[tuple[str, set[Kind]], ...] = (
    (r"\bwhen\b|\bwhich (?:day|date)\b|\bdate\b|\bbirthday\b|\bwhich (?:year|month)", {"date"}),
    (r"\b(?:what|which|over which|in which) years?\b|\bwhich month\b", {"date"}),
    (
        r"\bwhere\b|\b(?:birthplace|home ?town)\b|\b(?:which|what) (?:town|city|village|country|place|address|street)",
        {"place", "number"},
    ),
    (r"\bwho(?:m|se)?\b|\bname of the (?:author|writer)\b|\bname the (?:author|writer)\b", {"name"}),
    (r"\b(?:which|what) (?:author|writer|painter|lawyer|poet|person|team)\b", {"name"}),
    (r"\blanguages?\b|\btongues?\b", {"name", "place"}),
    (r"\b(?:job|trade|profession|occupation)\b|\bwork as\b|\bfor a living\b", {"words"}),
    (r"\bhow (?:many|much|old|tall|long|far|often|high)\b|\bpercentage\b|\bpopulation\b", {"number", "date"}),
)
_SEASONS = frozenset(listed("spring summer autumn fall winter"))
_PARTICIPLE = re.compile(r"...(?:ed|ing)$")
_ENDS_IN = re.compile(r"\b(from|of|for|into|with|about|against|to|by)\s*\?\s*$", re.I)
_INTRODUCES = frozenset(listed("of the named called"))
_HOW_MANY = re.compile(r"\bhow many (?:\w+ )?(\w+)", re.I)
_MANNER = re.compile(r"^\s*(?:how (?:did|does|do|was|were|is|are|has|have)|why)\b", re.I)
_YEAR_ONLY = re.compile(r"\b(?:what|which) years?\b", re.I)


@dataclass(frozen=True, slots=True)
class Fact:
    """A run of words of the reference."""

    words: tuple[Word, ...]
    """Without articles at its ends."""
    kind: Kind
    given: bool
    """Marked by the row, rather than found by us: every word of it must be there."""
    start: int
    """Its first word's place in the reference."""
    weight: float
    """Its share in the verdict: a name, date or number counts two words, a likely verb or side detail half."""
    side: bool
    """Found by us in a phrase that adds to another one ("for his poems", "at the age of 61")."""
    somewhere: bool
    """After a preposition of place."""
    loose: bool = False
    """A participle in it counts half: of "a travelling dentist", asked for a person, "a dentist" is the most."""

    @property
    def text(self) -> str:
        """For reasons."""
        return " ".join(word.text for word in self.words)

    @property
    def content(self) -> tuple[str, ...]:
        """Stems of the words that carry meaning."""
        return tuple(word.stem for word in self.words if not word.function) or tuple(word.stem for word in self.words)

    def share(self, stems: Set[str]) -> float:
        """Share of its content words among some stems; participles count half in a loose one."""
        total = told = 0.0
        for word, stem in zip(
            [word for word in self.words if not word.function] or self.words, self.content, strict=True
        ):
            weight = 0.5 if self.loose and _PARTICIPLE.search(word.text) and not word.capital else 1.0
            total += weight
            told += weight * (stem in stems)
        return told / total


@lru_cache(maxsize=16384)
def facts_of(question: str, reference: str, given: tuple[str, ...]) -> tuple[Fact, ...]:
    """Facts an answer must state, in the order of the reference; never empty unless the reference adds nothing."""
    words = words_of(reference)
    known = {word.stem for word in words_of(question)}
    spans = _given_spans(words, given) if given else new_runs(words, known)
    facts = [_fact(words, start, end, given=bool(given)) for start, end in spans if start < end]
    if given and not facts:
        facts = [_fact(fact, 0, len(fact), given=True) for text in given if (fact := words_of(text))]
    if not given:
        if (
            facts and facts[0].side and words[max(facts[0].start - 1, 0)].text != "from"
        ):  # there is nothing before it that it could add to
            facts[0] = replace(facts[0], weight=2 * facts[0].weight, side=False)
        facts = _introductions(_within_places(facts, words), words)
        facts = _counted(question, facts, words)
        people = bool(_MANNER.search(question) or re.search(r"\bwho", question, re.I))
        facts = [replace(fact, loose=people) for fact in facts]
        facts = _after_preposition(question, facts, words)
    core = _asked_for(question, facts)
    aside = set() if given else asides(words)
    return tuple(fact for fact in core if fact.start not in aside) or core


def _fact(words: Sequence[Word], start: int, end: int, *, given: bool) -> Fact:
    kind = _kind(words, start, end)
    before = start - 1
    while before >= 0 and words[before].text in _DETERMINERS:
        before -= 1
    lead = words[before].text if before >= 0 else ""
    weight = 2.0
    if kind == "words":
        passive = lead in ("is", "was", "were", "been")
        content = [word for word in words[start:end] if not word.function]
        weight = sum(0.5 if word.text.endswith("ed") and not passive else 1.0 for word in content) or 1.0
    side = not given and start > 1 and lead in _BEFORE_A_SIDE_DETAIL and not (kind == "place" and lead == "at")
    if lead == "of" and before > 1 and (words[before - 2].number or words[before - 1].text in _SEASONS):
        side = False  # "5 years of hard labour", "spring of 1788"
    if (
        kind == "name"
        and lead == "of"
        and not given
        and any(word.text in _PLACE_BEFORE for word in words[max(before - 4, 0) : before])
    ):
        kind, side = "place", False  # "in the vault of the Lindgard Library"
    if lead == "from" and not given and kind in ("words", "place"):  # "turns from clear to amber"
        side = any(word.text == "to" for word in words[end : end + 2]) and start > 1
    weight = weight / 2 if side else weight
    return Fact(tuple(words[start:end]), kind, given, start, weight, side, lead in _PLACE_BEFORE)


def _within_places(facts: list[Fact], words: Sequence[Word]) -> list[Fact]:
    """A place that only says where another place lies ("at Alder House in Kelbury") is a side detail."""
    found: list[Fact] = []
    for fact in facts:
        before = found[-1] if found else None
        if before and fact.kind == before.kind == "place":
            between = words[before.start + len(before.words) : fact.start]
            if not any(word.gap for word in (*between, fact.words[0])) and {word.text for word in between} <= _WITHIN:
                fact = replace(fact, weight=fact.weight / 2, side=True)
        found.append(fact)
    return found


def _introductions(facts: list[Fact], words: Sequence[Word]) -> list[Fact]:
    """What only introduces a name ("the monastery village of Alder", "her uncle, Rolf") is a side detail."""
    found = list(facts)
    for place, (fact, after) in enumerate(pairwise(facts)):
        between = words[fact.start + len(fact.words) : after.start]
        near = {word.text for word in between} <= _INTRODUCES and not any(word.gap for word in between)
        if fact.kind == "words" and after.kind in ("name", "place", "title") and near and not fact.side:
            found[place] = replace(fact, weight=fact.weight / 2, side=True)
    return found


def _after_preposition(question: str, facts: list[Fact], words: Sequence[Word]) -> list[Fact]:
    """What follows the preposition that the question ends in ("What is she afraid of?"), if anything does."""
    asked = _ENDS_IN.search(question)
    found: list[Fact] = []
    for fact in facts if asked else ():
        end = found[-1].start + len(found[-1].words) if found else 0
        goes_on = bool(found) and {word.text for word in words[end : fact.start]} <= PASSED_OVER | {"of"}
        if goes_on or (asked and asked[1].lower() in _lead(words, fact.start)):
            found.append(fact)
    return [replace(fact, side=False) for fact in found] or facts


def _lead(words: Sequence[Word], place: int) -> set[str]:
    """The preposition before a place, past determiners."""
    while place > 0 and words[place - 1].text in _DETERMINERS and not words[place].gap:
        place -= 1
    return {words[place - 1].text} if place > 0 and not words[place].gap else set()


def _counted(question: str, facts: list[Fact], words: Sequence[Word]) -> list[Fact]:
    """Other numbers than the one of "how many copies" are side details if the reference counts copies."""
    wanted = asked_count(question)
    if not wanted:
        return facts
    first = [
        fact
        for fact in facts
        if fact.kind == "number"
        and wanted & {word.stem for word in words[fact.start : fact.start + len(fact.words) + 1] if not word.function}
    ]
    return [fact for fact in facts if fact in first or fact.kind != "number"] if first else facts


def asked_count(question: str) -> set[str]:
    """Stems of the things that "how many" asks for."""
    asked = _HOW_MANY.search(question)
    return {word.stem for word in words_of(asked[0])[2:] if not word.function} if asked else set()


def _given_spans(words: Sequence[Word], given: tuple[str, ...]) -> list[tuple[int, int]]:
    """Word ranges of the given texts; texts that follow each other without a break are one fact ("39", "Bell Row")."""
    spans: list[tuple[int, int]] = []
    for text in given:
        sought = words_of(text)
        sought = tuple(word for word in sought if word.text not in PASSED_OVER) or sought
        span = find_run([word.text for word in sought], words, exact=True)
        span = span or find_run([word.stem for word in sought], words)
        if span:
            spans.append(span)
    joined: list[tuple[int, int]] = []
    for start, end in sorted(set(spans)):
        if joined and start <= joined[-1][1] and not (start < len(words) and words[start].gap):
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _kind(words: Sequence[Word], start: int, end: int) -> Kind:
    run = words[start:end]
    months = [word for word in run if word.text in MONTHS and not word.function]
    if any(word.capital for word in months) or (months and any(word.number for word in run)) or all(map(_is_year, run)):
        return "date"
    if run[0].quoted:
        return "title"
    if all(word.text in _SEASONS for word in run) and end < len(words) - 1 and words[end + 1].number:
        return "date"  # "in the spring of 1788"
    opens_sentence = start == 0 and end == 1 and len(words) > 1  # its capital says nothing
    before = start - 1
    while before >= 0 and words[before].text in ARTICLES | {"town", "city", "village"}:
        before -= 1
    somewhere = before >= 0 and words[before].text in _PLACE_BEFORE
    if all(word.capital or word.function for word in run) and not opens_sentence:
        return "place" if somewhere else "name"
    if somewhere and run[0].capital and len(run[0].text) > 1 and not any(word.number for word in run):
        return "place"  # "Harrow and Finch bakery"
    if any(word.number for word in run):
        return "number"
    return "words"


def _is_year(word: Word) -> bool:
    return len(word.text) == 4 and word.number and word.text[0] in "12"


def _asked_for(question: str, facts: list[Fact]) -> tuple[Fact, ...]:
    kinds = {kind for pattern, asked in _ASKED if re.search(pattern, question, re.I) for kind in asked}
    also = bool(
        re.search(r"\band (?:what|where|when|for what|by whom|who|how|why)\b|\bwhat\b.*\bwhere\b", question, re.I)
    )
    core = [fact for fact in facts if fact.kind in kinds]
    if "place" in kinds and core and all(fact.kind == "number" for fact in core):
        core = [fact for fact in facts if fact in core or (fact.kind == "words" and fact.somewhere)]
    if not core and kinds & {"name", "place"}:
        core = [fact for fact in facts if fact.kind in ("name", "place")][:1]
    if re.search(r"\bwhere and what\b|\bwhat\b.*\band (?:where|when|for what)\b", question, re.I):
        return tuple(fact for fact in facts if fact.kind != "date" or "date" in kinds) or tuple(facts)
    if not core and not also:
        core = [fact for fact in facts if fact.kind not in ("date", "place")]
        manner = [fact for fact in core if fact.kind == "words" and not (fact.side and fact.somewhere)]
        if manner and not manner[0].given and _MANNER.search(question):
            core = manner
        elif manner and not manner[0].given and sum(fact.weight for fact in manner) >= 1:
            core = [replace(fact, weight=fact.weight / 4) if fact.kind == "place" else fact for fact in facts]
            core = [fact for fact in core if fact.kind != "date"]
        elif not any(fact.given or (fact.kind != "words" and not fact.side) for fact in core):
            core = [fact for fact in facts if fact.kind != "date"]
    if also and len(kinds) < 3:
        core = [fact for fact in facts if fact.kind in kinds or fact.kind == "words"] if kinds else facts
    if _YEAR_ONLY.search(question) and not also:
        core = [
            replace(fact, words=years, kind="date") if (years := tuple(filter(_is_year, fact.words))) else fact
            for fact in core
            if not _SEASONS & {word.text for word in fact.words}
        ]
    return tuple(core or facts)
