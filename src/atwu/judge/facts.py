"""Which words of a reference carry its fact, and whether an answer states them.

Given facts are taken as they are. Without them the facts are what the reference says beyond the question, cut into
runs of words. Of several facts only those count that the question asks for (a date for "when", a name for "who"), if
there are such; the others are side details.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from atwu.judge.normalise import ARTICLES, Word, words_of
from atwu.judge.numerals import MONTHS, listed

Kind = Literal["date", "number", "place", "name", "title", "words"]

_PLACE_BEFORE = frozenset(listed("in at near from to by on above below"))
_BEFORE_A_SURNAME = frozenset(listed("mr mrs ms dr doctor professor captain bishop general lady sir"))
_BEFORE_A_MAIN_CLAUSE = frozenset(listed("before after when while although though because since as if"))
_GENERIC = frozenset(word.stem for word in words_of("university college river lake mount"))
"""Words that a name keeps its meaning without."""
_SLACK = 4
"""Words that may stand between the words of a fact told in another order."""

_ASKED: tuple[tuple[str, set[Kind]], ...] = (
    (r"\bwhen\b|\bwhich (?:day|date)\b|\bdate\b|\bbirthday\b|\bwhich (?:year|month)", {"date"}),
    (r"\b(?:what|which|over which|in which) years?\b|\bwhich month\b", {"date"}),
    (r"\bwhere\b|\b(?:which|what) (?:town|city|village|country|place|address|street)", {"place", "number"}),
    (r"\bwho(?:m|se)?\b|\bname of the (?:author|writer)\b|\bname the (?:author|writer)\b", {"name"}),
    (r"\b(?:which|what) (?:author|writer|painter|lawyer|poet|person|team)\b", {"name"}),
    (r"\blanguages?\b|\btongues?\b", {"name", "place"}),
    (r"\b(?:job|trade|profession|occupation)\b|\bwork as\b|\bfor a living\b", {"words"}),
    (r"\bhow (?:many|much|old|tall|long|far|often|high)\b|\bpercentage\b|\bpopulation\b", {"number", "date"}),
)
_YEAR_ONLY = re.compile(r"\b(?:what|which) years?\b", re.I)
_WHO = re.compile(r"\bwho(?:m|se)?\b|\b(?:author|writer|painter|lawyer|composer|doctor|name)\b", re.I)


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

    @property
    def text(self) -> str:
        """For reasons."""
        return " ".join(word.text for word in self.words)

    @property
    def content(self) -> tuple[str, ...]:
        """Stems of the words that carry meaning."""
        return tuple(word.stem for word in self.words if not word.function) or tuple(word.stem for word in self.words)


@dataclass(frozen=True, slots=True)
class Match:
    """Where and how far an answer states a fact."""

    share: float
    """Share of the fact's content words that are stated, in [0, 1]."""
    start: int = -1
    """First word of the answer that belongs to it; -1: nowhere as a whole."""
    end: int = -1
    """One past its last word."""


@lru_cache(maxsize=16384)
def facts_of(question: str, reference: str, given: tuple[str, ...]) -> tuple[Fact, ...]:
    """Facts an answer must state, in the order of the reference; never empty unless the reference adds nothing."""
    words = words_of(reference)
    spans = _given_spans(words, given) if given else _new_runs(words, {word.stem for word in words_of(question)})
    facts = [
        Fact(words[start:end], _kind(words, start, end), bool(given), start) for start, end in spans if start < end
    ]
    if given and not facts:
        facts = [Fact(fact, _kind(fact, 0, len(fact)), True, 0) for text in given if (fact := words_of(text))]
    core = _asked_for(question, facts)
    aside = set() if given else _asides(words)
    return tuple(fact for fact in core if fact.start not in aside) or core


def _given_spans(words: Sequence[Word], given: tuple[str, ...]) -> list[tuple[int, int]]:
    """Word ranges of the given texts; texts that follow each other without a break are one fact ("39", "Bell Row")."""
    spans: list[tuple[int, int]] = []
    for text in given:
        sought = words_of(text)
        match = _in_sequence([word.stem for word in sought if word.text not in ARTICLES or len(sought) == 1], words)
        if match.start >= 0:
            spans.append((match.start, match.end))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(set(spans)):
        if joined and start <= joined[-1][1] and not (start < len(words) and words[start].gap):
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _new_runs(words: Sequence[Word], known: set[str]) -> list[tuple[int, int]]:
    """Runs of content words that the question does not have; function words join them inside a name or a quotation."""
    runs: list[tuple[int, int]] = []
    for place, word in enumerate(words):
        adverb = word.text.endswith("ly") and not word.quoted and (place == 0 or not word.capital)
        if (word.stem in known and not word.quoted) or adverb or (word.function and not _names_go_on(words, place)):
            continue
        joins = runs and runs[-1][1] == place and (not word.gap or word.quoted or _date_goes_on(words, place))
        if joins and (word.quoted == words[place - 1].quoted):
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    runs = [(start + (words[start].text == "year" and end > start + 1), end) for start, end in runs]
    return [run for run in runs if any(not word.function for word in words[slice(*run)])]


def _asides(words: Sequence[Word]) -> set[int]:
    """Places in a subordinate clause before or after the main one ("Before she was known, ...", "..., which ...")."""
    breaks = [place for place, word in enumerate(words) if word.gap == ","]
    inside: set[int] = set()
    if breaks and words[0].text in _BEFORE_A_MAIN_CLAUSE:
        inside |= set(range(breaks[0]))
    for place in breaks:
        if words[place].text in ("which", "who", "where"):
            inside |= set(range(place, next((other for other in breaks if other > place), len(words))))
    return inside


def _names_go_on(words: Sequence[Word], place: int) -> bool:
    if words[place].quoted:
        return True
    if not 0 < place < len(words) - 1 or words[place].text not in ("of", "the"):
        return False
    after = words[place + 1] if words[place + 1].text != "the" or place + 2 == len(words) else words[place + 2]
    return words[place - 1].capital and after.capital


def _date_goes_on(words: Sequence[Word], place: int) -> bool:
    return words[place].number and (words[place - 1].number or words[place - 1].text in MONTHS)


def _kind(words: Sequence[Word], start: int, end: int) -> Kind:
    run = words[start:end]
    months = [word for word in run if word.text in MONTHS and not word.function]
    if any(word.capital for word in months) or (months and any(word.number for word in run)) or all(map(_is_year, run)):
        return "date"
    if run[0].quoted:
        return "title"
    if all(word.capital or word.function for word in run):
        before = start - 1
        while before >= 0 and words[before].text in ARTICLES | {"town", "city", "village"}:
            before -= 1
        return "place" if before >= 0 and words[before].text in _PLACE_BEFORE - {"by"} else "name"
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
    if re.search(r"\bwhere and what\b|\bwhat\b.*\band (?:where|when|for what)\b", question, re.I):
        return tuple(fact for fact in facts if fact.kind != "date" or "date" in kinds) or tuple(facts)
    if not core and not also:
        core = [fact for fact in facts if fact.kind not in ("date", "place")]
        if not any(fact.given or fact.kind != "words" for fact in core):
            core = [fact for fact in facts if fact.kind != "date"]
    if also and len(kinds) < 3:
        core = [fact for fact in facts if fact.kind in kinds or fact.kind == "words"] if kinds else facts
    if _YEAR_ONLY.search(question) and not also:
        core = [
            Fact(years, "date", fact.given, fact.start) if (years := tuple(filter(_is_year, fact.words))) else fact
            for fact in core
        ]
    return tuple(core or facts)


def match(fact: Fact, answer: Sequence[Word], question: str) -> Match:
    """Find a fact in an answer: as it stands, in another order, or by surname or initial where a person is asked for."""
    sought = [word.stem for word in fact.words if word.text not in ARTICLES]
    found = _in_sequence(sought or [word.stem for word in fact.words], answer)
    if found.start >= 0:
        longer = (
            fact.kind == "title" and found.start > 0 and answer[found.start - 1].quoted and answer[found.start].quoted
        )
        return Match(0.0) if longer and answer[found.start - 1].text not in ARTICLES else found
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
    if any((word.capital or word.number or word.stem in glued) and word.stem not in stems for word in fact.words):
        return Match(0.0)
    return Match(sum(stem in stems for stem in fact.content) / len(fact.content))


def _without_generic_words(fact: Fact, answer: Sequence[Word]) -> Match:
    core = [stem for stem in fact.content if stem not in _GENERIC]
    return _in_sequence(core, answer) if 0 < len(core) < len(fact.content) else Match(0.0)


def _in_sequence(sought: Sequence[str], answer: Sequence[Word]) -> Match:
    """A run of words that, written together, reads as the fact: "great-aunts" is "great aunts", "44-17" is "4417"."""
    target = "".join(sought)
    stems = ["" if word.text in ARTICLES and len(sought) > 1 else word.stem for word in answer]
    for start, stem in enumerate(stems):
        if not stem or not target.startswith(stem):
            continue
        end, joined = start + 1, stem
        while len(joined) < len(target) and end < len(stems) and target.startswith(joined):
            joined += stems[end]
            end += 1
        if joined == target:
            return Match(1.0, start, end)
    return Match(0.0)


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
