"""Find the words of a reference answer that carry its fact, and find a fact in an answer.

Facts given by the caller are used unchanged. Without them, the facts are the parts of the reference that are not in the
question, as sequences of words. If the question asks for a kind of fact (a date for "when", a name for "who") and there
are facts of this kind, only those count; the others are side details.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from atwu.judge.rules.normalized_words import (
    ARTICLES,
    MONTHS,
    PASSED_OVER,
    Word,
    find_run,
    split_entries,
    stems_of,
    words_of,
)

Kind = Literal["date", "number", "place", "name", "title", "words"]

_PLACE_BEFORE = frozenset(split_entries("in at near from on above below"))
_BEFORE_A_SIDE_DETAIL = frozenset(
    split_entries("for at of after during before with as until since outside inside behind beside")
)
_BEFORE_A_MAIN_CLAUSE = frozenset(split_entries("before after when while although though because since as if"))
_BLAND = (
    "know love like prefer enjoy keep play speak read learn live stay work serve own hold win receive get take give make "
    "bring tell say think believe mention go come begin start end happen belong become turn use wear lie stand hang "
    "show mean describe consist include mostly anything else something"
)
"""Words that relate a fact to the question and carry no fact; ignored in references without marked facts."""
_ASKED: tuple[tuple[str, set[Kind]], ...] = (
    (r"\bwhen\b|\bdate\b|\bbirthday\b|\bwhich (?:day|year|month)|\bwhat years?\b", {"date"}),
    (
        r"\bwhere\b|\b(?:birthplace|home ?town)\b|\b(?:which|what) (?:town|city|village|country|place|address|street)",
        {"place", "number"},
    ),
    (r"\bwho(?:m|se)?\b|\bname (?:of )?the (?:author|writer)\b", {"name"}),
    (r"\b(?:which|what) (?:author|writer|painter|lawyer|poet|person|team)\b", {"name"}),
    (r"\blanguages?\b|\btongues?\b", {"name", "place"}),
    (r"\b(?:job|trade|profession|occupation)\b|\bwork as\b|\bfor a living\b", {"words"}),
    (r"\bhow (?:many|much|old|tall|long|far|often|high)\b|\bpercentage\b|\bpopulation\b", {"number", "date"}),
)
_HOW_MANY = re.compile(r"\bhow many (?:\w+ )?(\w+)", re.I)


@dataclass(frozen=True, slots=True)
class Fact:
    """A sequence of words of the reference."""

    words: tuple[Word, ...]
    kind: Kind
    marked: bool
    """Whether the row marks it, instead of the rules finding it; an answer must then contain every word."""
    start: int
    weight: float
    """Weight in the verdict: a name, date or number counts as two words, a likely verb as half a word. A side detail, in a
    phrase that modifies another one ("for his poems", "at the age of 61"), counts half."""
    somewhere: bool

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def content(self) -> tuple[str, ...]:
        return tuple(word.stem for word in self.words if not word.function) or tuple(word.stem for word in self.words)


# A row is judged once for each of its paraphrases, samples and attacks.
@lru_cache(maxsize=16384)
def facts_of(question: str, reference: str, marked: tuple[str, ...]) -> tuple[Fact, ...]:
    """Return the facts that an answer must state, in the order of the reference; empty if the reference adds no words to the
    question."""
    words = words_of(reference)
    if marked:
        facts = [_fact(words, start, end, marked=True) for start, end in _marked_spans(words, marked) if start < end]
        if not facts:  # none is in the reference
            apart = [words_of(text) for text in marked]
            facts = [_fact(fact, 0, len(fact), marked=True) for fact in apart if fact]
        return _facts_asked_for(question, facts)
    # Without marks, what the question does not say carries the fact.
    known = {word.stem for word in words_of(question)}
    facts = [_fact(words, start, end, marked=False) for start, end in _new_runs(words, known)]
    core = _facts_asked_for(question, _drop_other_numbers(question, facts, words))
    # What stands in a subordinate clause only counts where nothing else does.
    aside = _asides(words)
    return tuple(fact for fact in core if fact.start not in aside) or core


def _marked_spans(words: Sequence[Word], marked: tuple[str, ...]) -> list[tuple[int, int]]:
    spans: set[tuple[int, int]] = set()
    for text in marked:
        sought = [word for word in words_of(text) if word.text not in PASSED_OVER] or words_of(text)
        # As written first: by its stem, a word would also be found in others of its root.
        span = find_run([word.text for word in sought], words, exact=True)
        if span is None:
            span = find_run([word.stem for word in sought], words)
        if span is not None:
            spans.add(span)
    return sorted(spans)


def _new_runs(words: Sequence[Word], known: Set[str]) -> list[tuple[int, int]]:
    """Return sequences of content words that the question lacks; function words join them within a name or a quotation."""
    runs: list[tuple[int, int]] = []
    for place, word in enumerate(words):
        goes_on = bool(runs) and runs[-1][1] == place and (not word.gap or word.quoted)
        links = word.stem in known or (word.stem in stems_of(_BLAND) and not word.capital)
        tells = word.quoted or not (links or word.function)
        # "Tanner Street", if the question asks for the street
        name = links and goes_on and runs[-1][0] > 0 and all(other.capital for other in words[runs[-1][0] : place + 1])
        if goes_on and (tells or name):
            runs[-1] = (runs[-1][0], place + 1)
        elif tells:
            runs.append((place, place + 1))
    # "the year 1961": the noun is no part of the date.
    runs = [(start + (words[start].text == "year" and end > start + 1), end) for start, end in runs]
    stems = {run: {word.stem for word in words[slice(*run)]} for run in runs}
    # A quotation of words of the question alone tells nothing new.
    runs = [run for run in runs if not (words[run[0]].quoted and stems[run] <= known)] or runs
    return [run for run in runs if any(not word.function for word in words[slice(*run)])]


def _asides(words: Sequence[Word]) -> set[int]:
    """Return word indices in subordinate clauses, such as "Before she was known, ..." and "..., which ..."."""
    breaks = [place for place, word in enumerate(words) if word.gap == ","]
    inside: set[int] = set()
    if breaks and words[0].text in _BEFORE_A_MAIN_CLAUSE:
        inside |= set(range(breaks[0]))
    for place in breaks:
        if words[place].text in ("which", "who", "where"):
            inside |= set(range(place, next((other for other in breaks if other > place), len(words))))
    return inside


def _fact(words: Sequence[Word], start: int, end: int, *, marked: bool) -> Fact:
    before = _before(words, start, ARTICLES | {"his", "her", "their", "its"})
    lead = ""
    if before >= 0:
        lead = words[before].text
    run, kind = words[start:end], _kind(words, start, end)
    weight = 2.0
    if kind == "words":
        passive = lead in ("is", "was", "were", "been")
        content = [word for word in run if not word.function]
        likely_verbs = sum(word.text.endswith("ed") and not passive for word in content)
        weight = len(content) - 0.5 * likely_verbs or 1.0
    side = start > 1 and lead in _BEFORE_A_SIDE_DETAIL
    if lead == "of" and kind == "name" and _PLACE_BEFORE & {word.text for word in words[max(before - 4, 0) : before]}:
        side = False
        if not marked:
            kind = "place"  # "in the vault of the Lindgard Library"
    if lead == "from" and kind in ("words", "place"):  # "turns from clear to amber"
        side = start > 1 and any(word.text == "to" for word in words[end : end + 2])
    if side and not marked:
        weight /= 2
    return Fact(tuple(run), kind, marked, start, weight, somewhere=lead in _PLACE_BEFORE)


def _before(words: Sequence[Word], place: int, passed: Set[str]) -> int:
    """Return the index of the last word before `place` that is not in `passed`; -1 if there is none."""
    return next((at for at in range(place - 1, -1, -1) if words[at].text not in passed), -1)


def _kind(words: Sequence[Word], start: int, end: int) -> Kind:
    run = words[start:end]
    months = [word for word in run if word.text in MONTHS and not word.function]
    numbers = any(word.number for word in run)
    years = all(len(word.text) == 4 and word.number and word.text[0] in "12" for word in run)
    if years or (months and (numbers or any(word.capital for word in months))):
        return "date"
    if run[0].quoted:
        return "title"
    before = _before(words, start, ARTICLES | {"town", "city", "village"})
    somewhere = before >= 0 and words[before].text in _PLACE_BEFORE
    if all(word.capital or word.function for word in run):
        if somewhere:
            return "place"
        return "name"
    if numbers:
        return "number"
    if somewhere and run[0].capital and len(run[0].text) > 1:
        return "place"  # "Harrow and Finch bakery"
    return "words"


def _drop_other_numbers(question: str, facts: list[Fact], words: Sequence[Word]) -> list[Fact]:
    """Drop numbers that do not answer "how many copies", if the reference has a number of copies."""
    asked = _HOW_MANY.search(question)
    if asked is None:
        return facts
    wanted = stems_of(asked[0].split(maxsplit=2)[2])
    near = {fact.start: {word.stem for word in words[fact.start : fact.start + len(fact.words) + 1]} for fact in facts}
    of_wanted = [fact for fact in facts if fact.kind == "number" and wanted & near[fact.start]]
    if not of_wanted:
        return facts
    return [fact for fact in facts if fact in of_wanted or fact.kind != "number"]


def _facts_asked_for(question: str, facts: list[Fact]) -> tuple[Fact, ...]:
    kinds = {kind for pattern, asked in _ASKED if re.search(pattern, question, re.I) for kind in asked}
    core = [fact for fact in facts if fact.kind in kinds]
    if "place" in kinds and core and all(fact.kind == "number" for fact in core):
        core = [fact for fact in facts if fact in core or (fact.kind == "words" and fact.somewhere)]
    if not core:
        # A date that was not asked for is a side detail.
        core = [fact for fact in facts if fact.kind != "date"]
    return tuple(core or facts)


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


def match(fact: Fact, answer: Sequence[Word], question: str, reference: str) -> Match:
    """Find a fact in an answer: verbatim, in another order, or, if the question asks for a person, by surname or initial."""
    words, content = fact.words, fact.content
    if fact.kind == "title" and len(content) > 2:  # "The Drift of Ice" matches "On the Drift of Ice"
        words = words[next((place for place, word in enumerate(words) if not word.function), 0) :]
    run = find_run([word.stem for word in words if word.text not in PASSED_OVER] or list(content), answer)
    if run is None and len(content) > 1 and fact.kind != "title":
        run = _in_any_order(content, answer)
    if run is None and len(content) > 1 and words[0].capital:
        if len(content[0]) > 2:
            run = _by_initial(content, answer)
        if run is None and fact.kind in ("name", "place"):
            run = _without_generic_words(fact, answer, stems_of(question))
            if run is None and _WHO.search(question):
                roles = {word.stem for text in (question, reference) for word in words_of(text) if not word.capital}
                run = _by_surname(content, answer, roles)
    if run is not None:
        return Match(1.0, *run)
    # Half a date or title is another one. So is half of a marked name or number, and a marked fact with one word replaced.
    if fact.kind in ("date", "title") or (fact.marked and (fact.kind != "words" or _one_word_differs(fact, answer))):
        return Match(0.0)
    stems = {word.stem for word in answer}
    glued = {word.stem for pair in itertools.pairwise(words) if pair[1].glued for word in pair}
    needed = glued | {word.stem for word in words if word.number or (word.capital and fact.kind != "number")}
    if not needed <= stems:
        return Match(0.0)
    return Match(sum(stem in stems for stem in content) / len(content))


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
    if not 0 < len(core) < len(fact.content):
        return None
    run = find_run(core, answer)
    if run is None or run[1] == len(answer):
        return run
    after = answer[run[1]]
    if after.capital and not after.gap and not after.function and after.stem not in fact.content:
        return None
    return run


def _by_surname(content: Sequence[str], answer: Sequence[Word], roles: set[str]) -> tuple[int, int] | None:
    """Find a surname that no other first name precedes; "Mayor Ferrant" if the question asks for a mayor."""
    for place, word in enumerate(answer):
        before = None
        if place and not word.gap:
            before = answer[place - 1]
        alone = before is None or before.function or before.text in _BEFORE_A_SURNAME or before.stem in roles
        if word.stem == content[-1] and (alone or (before is not None and before.stem in content)):
            return place, place + 1
    return None


def _one_word_differs(fact: Fact, answer: Sequence[Word]) -> bool:
    """Return whether the answer contains the fact with one word replaced ("F sharp major" for "F sharp minor")."""
    size = len(fact.content)
    if size < 2:
        return False
    content = [word for word in answer if not word.function]
    for start in range(len(content) - size + 1):
        window = content[start : start + size]
        differ = [place for place in range(size) if window[place].stem != fact.content[place]]
        compact = len(fact.words) == size  # else "full of letters" would not be "filled with letters"
        if (differ in ([0], [size - 1]) or (compact and len(differ) == 1)) and not any(word.gap for word in window[1:]):
            return True
    return False
