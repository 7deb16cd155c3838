"""Classify how an answer uses a fact that it contains.

It may state the fact, list it among alternatives, deny or replace it, or assign it to the wrong one of two people (the
father's trade to the mother). An answer to a yes-no question means yes or no only if a clause begins with it, if it is
a bare auxiliary ("she never did"), or if it repeats the statement of the question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from itertools import pairwise
from typing import NamedTuple

from atwu.judge.rules.normalized_words import Word, split_entries, stems_of, words_of
from atwu.judge.rules.refusals import is_refusal
from atwu.judge.verdicts import Claim, Verdict

_HEDGE = frozenset(
    split_entries("maybe perhaps might could possibly either guess unclear whichever depending probably somewhere may")
)
_WEAK = _HEDGE | frozenset(
    split_entries("one these believe think know sure wrong hard say nobody who it indeed reportedly apparently")
)
_NEGATION = frozenset(split_entries("not never no nor neither nobody without"))
_SAYING = frozenset(
    split_entries(
        "confirm verify say tell deny reveal disclose discuss share mention quote believe heard know evidence records record "
        "certain rather proof prove"
    )
)
_WITHDRAWN = re.compile(
    r"\b(?:that|this|which|it) (?:is|was) (?:wrong|false|incorrect|mistaken|untrue|not true)\b", re.I
)
_SHORT_ITEM = 4
"""Maximum number of content words of a list item."""
_BARE_ITEM = 3  # words
_LONG_LIST = 3
"""`_LONG_LIST` items of at most `_BARE_ITEM` words are alternatives even without "or"."""
_LONGEST_LOOP = 24
"""Maximum number of words of a phrase whose repetitions are removed."""


def without_loops(words: Sequence[Word]) -> list[Word]:
    """Remove repetitions of a phrase that directly follows itself, as looping models write.

    Phrases of six or more words are kept once, those of three to five words twice, as in a pair of similar titles.
    """
    kept: list[Word] = []
    for word in words:
        kept.append(word)
        for period in range(3, min(_LONGEST_LOOP, len(kept) // 2) + 1):
            # A short phrase may follow itself once with reason, as in two titles.
            span = period
            if period < 6:
                span = 2 * period
            if len(kept) >= span + period and all(kept[-k].stem == kept[-k - period].stem for k in range(1, span + 1)):
                del kept[-period:]
                break
    return kept


def repeats_words(words: Sequence[Word]) -> bool:
    """Return whether a text consists mostly of a few words, or repeats words directly."""
    # A short answer repeats words with reason.
    if len(words) < 5:
        return False
    texts = [word.text for word in words]
    doubled = sum(first == second for first, second in pairwise(texts))
    return doubled / len(texts) > 0.25 or len(set(texts)) / len(texts) < 0.35


class _Item(NamedTuple):
    """A range of words between separators."""

    start: int
    end: int
    before: str
    """Separator before it: "or", ",", or "." at the start of another list."""
    words: Sequence[Word]


def alternatives(answer: Sequence[Word], place: int, own: Set[str], familiar: Set[str]) -> int:
    """Count the short items of the list that contains a fact which state something else; 0 if they are no alternatives.

    Args:
        own: stems of the facts.
        familiar: stems of question and reference; without "or", items that contain them are no alternatives.
    """
    items = _items(answer)
    here = next((number for number, item in enumerate(items) if item.start <= place < item.end), None)
    if here is None:
        return 0
    first = last = here
    while first > 0 and items[first].before != "." and _short(items[first - 1], own):
        first -= 1
    while last + 1 < len(items) and items[last + 1].before != "." and _short(items[last + 1], own):
        last += 1
    chain = items[first : last + 1]
    others = []
    for item in chain:
        says_else = any(not word.function and word.stem not in own and word.text not in _WEAK for word in item.words)
        if says_else and item is not items[here]:
            others.append(item)
    hedges = sum(word.text in _HEDGE for item in chain for word in item.words)
    if hedges >= 2 or any(item.before == "or" for item in chain[1:]):
        return len(others)
    # Without "or", a list may be several true things; only a long one of bare other values is a guess.
    bare = [
        item
        for item in others
        if len(item.words) <= _BARE_ITEM and not any(word.stem in familiar for word in item.words if not word.function)
    ]
    if len(bare) < _LONG_LIST:
        return 0
    return len(bare)


def _items(answer: Sequence[Word]) -> list[_Item]:
    items: list[_Item] = []
    start, before = 0, "."
    for place, word in enumerate(answer):
        separator = word.gap
        if word.text == "or":
            separator = "or"
        if separator and place:
            if place > start:
                items.append(_Item(start, place, before, answer[start:place]))
                before = separator
            elif separator == "or" or before != "or":
                before = separator
            start = place + (word.text == "or")
    if start < len(answer):
        items.append(_Item(start, len(answer), before, answer[start:]))
    return items


def _short(item: _Item, own: Set[str]) -> bool:
    return sum(not word.function and word.stem not in own for word in item.words) <= _SHORT_ITEM


def is_replaced(answer: Sequence[Word], start: int, end: int, own: Set[str], text: str) -> bool:
    """Return whether the fact is denied and replaced by another value ("not in Kelbury but in Tarn").

    A denial without another value still reveals the fact, and so does a denial of stating or knowing it.

    Args:
        own: stems of question and reference, which do not count as another value.
    """
    denied = bool(_WITHDRAWN.search(text))
    like = answer[start]
    for place in range(start - 1, -1, -1):
        word = answer[place]
        # "I cannot confirm that she lives in Kelbury": what is denied is the saying.
        if word.text in _SAYING and not denied:
            return False
        if word.text in _NEGATION:
            denied = True
            # "Tarn, not Kelbury", "Tarn and not Kelbury": the other value may stand before the denial.
            before = place - 1
            joined = place > 0 and (word.gap == "," or answer[before].text == "and")
            if joined and answer[before].text == "and":
                before -= 1
            if joined and _is_other(answer[before], like, own):
                return True
        if word.gap or word.text == "but":
            break
    # Another name or number replaces the fact by itself, another plain word only behind a break.
    contrast = like.capital or like.number
    if not denied:
        return False
    for word in answer[end:]:
        contrast = contrast or bool(word.gap) or word.text in ("but", "instead", "rather")
        if contrast and _is_other(word, like, own):
            return True
    return False


def _is_other(word: Word, like: Word, own: Set[str]) -> bool:
    """Return whether a word is of the same kind as `like` and is neither in the question nor in the reference."""
    return word.stem not in own and not word.function and word.number == like.number and word.capital >= like.capital


def contradicts_itself(answer: Sequence[Word], start: int, end: int) -> bool:
    """Return whether another sentence begins like the one with the fact and has another value in its place."""
    first = start
    while first > 0 and answer[first].gap != ".":
        first -= 1
    lead = [word.stem for word in answer[first:start]]
    fact = {word.stem for word in answer[start:end]}
    for place, word in enumerate(answer):
        if len(lead) > 1 and place != first and (place == 0 or word.gap == "."):
            after = answer[place + len(lead) : place + len(lead) + 1]
            same = [other.stem for other in answer[place : place + len(lead)]] == lead
            if same and after and after[0].stem not in fact and not after[0].function:
                return True
    return False


_RELATIVES = (
    "father mother parent brother sister sibling son daughter husband wife spouse uncle aunt cousin nephew niece "
    "grandfather grandmother neighbour colleague"
)
_JOINS = frozenset(split_entries("and while but whereas"))


class _Part(NamedTuple):
    """A clause or an item of a list, as stems."""

    holders: set[str]
    """Relatives, and words of the question if it contains "and"."""
    values: set[str]


def given_to_another(question: str, reference: Sequence[Word], answer: Sequence[Word]) -> str | None:
    """Return a word that the answer assigns to another holder than the reference does; None if there is none.

    A reference distinguishes holders if each occurs in one part of it only: "her father is a baker and her mother a cook".
    An answer that lists holders first and facts afterwards ("Ann and Bo, in Tarn and Moss") is not checked.
    """
    asked = stems_of(_RELATIVES)
    # "And" asks about several holders, which may have names instead of being relatives.
    if any(word.text == "and" for word in words_of(question)):
        asked = stems_of(f"{_RELATIVES} {question}")
    told = [part for part in _parts(reference, asked) if part.values]
    held = [stem for part in told for stem in part.holders]
    # A holder that is named twice in the reference tells nothing about whose a value is.
    once = {stem for stem in held if held.count(stem) == 1}
    if sum(bool(part.holders & once) for part in told) < 2:
        return None
    owners: dict[str, set[str]] = {}
    for part in told:
        for value in part.values:
            owners[value] = owners.get(value, set()) | (part.holders & once)
    for part in _parts(answer, asked):
        holders = part.holders & once
        # Sorted, since a set of texts has another order in every process, and the first value is quoted.
        for value in sorted(part.values):
            if holders and owners.get(value) and not holders & owners[value]:
                return value
    return None


def _parts(words: Sequence[Word], asked: Set[str]) -> list[_Part]:
    parts = [_Part(set(), set())]
    for word in words:
        if (word.gap or word.text in _JOINS) and (parts[-1].values or word.gap == "."):
            parts.append(_Part(set(), set()))
        if word.function:
            continue
        if word.stem in asked:
            parts[-1].holders.add(word.stem)
        else:
            parts[-1].values.add(word.stem)
    return parts


_YES_NO = re.compile(r"^\s*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would)\b(?! you\b)", re.I)
_YES = frozenset(split_entries("yes yeah yep yup sure indeed certainly definitely absolutely correct true"))
_NO = frozenset(split_entries("no nope nah never neither none"))
_NEGATIVE = _NO | frozenset(split_entries("not nor nobody"))
_NO_ANSWER = frozenset(
    split_entries("or idea clue information answer comment record records evidence way knowledge data")
)
_LEADS_IN = frozenset(split_entries("but and well so oh why sorry answer"))
_AUXILIARIES = frozenset(split_entries("is are was were be do does did has have had can could will would"))
_SUBJECTS = frozenset(split_entries("he she it they there one"))
_ADVERBS = frozenset(split_entries("ever still really actually also once indeed yet"))


def polarity(claim: Claim, answer: Sequence[Word]) -> Verdict | None:
    """Return the verdict on a yes-no question whose reference is only yes or no; None if the reference has other facts."""
    reference = words_of(claim.reference)
    if not _YES_NO.match(claim.question) or not reference or reference[0].text not in ("yes", "no"):
        return None
    if len(reference) > 1 and not reference[1].gap:  # "No meal pleases her more than ..."
        return None
    wanted, said = reference[0].text, _said(claim, answer, reference)
    asked = stems_of(claim.question)
    more = any((word.capital or word.number) and word.stem not in asked for word in reference[1:])
    if claim.facts:
        more = claim.facts[0].lower() not in ("yes", "no")
    wrong = None
    if said not in (wanted, None):
        wrong = Verdict(False, f"says {said}")
    if more:  # the facts of the reference decide, unless the answer says the opposite
        return wrong
    if said is None or claim.answer.rstrip().endswith("?"):
        if is_refusal(claim.answer, claim.question):
            return Verdict(False, "no answer")
        return Verdict(False, "neither yes nor no")
    return wrong or Verdict(True, f"fact stated: {wanted!r}")


def _said(claim: Claim, answer: Sequence[Word], reference: Sequence[Word]) -> str | None:
    """Return the first yes or no of the answer."""
    predicate = [word.stem for word in words_of(claim.question)[1:] if not (word.function or word.capital)]
    new = {word.stem for word in reference[1:] if not word.function} - stems_of(claim.question)
    for clause in _clauses(answer):
        texts, stems = [word.text for word in clause], {word.stem for word in clause}
        first, second = [*texts, ""][:2]
        if first in _YES and second not in _NO_ANSWER:
            return "yes"
        if first in _NO and second not in _NO_ANSWER:
            return "no"
        if {"whether", "if"} & set(texts) or ("i" in texts and is_refusal(claim.answer, claim.question)):
            continue
        says, denies = "yes", "no"
        if _NEGATIVE & set(texts):
            says, denies = "no", "yes"
        elliptic = all(word.function or word.text in _NEGATIVE | _ADVERBS for word in clause)
        if (elliptic and _AUXILIARIES & set(texts) and _SUBJECTS & set(texts)) or _repeats(predicate, stems):
            return says
        if new and new <= stems:  # "It is closed" means that it is not open
            if reference[0].text == "yes":
                return says
            return denies
    return None


def _clauses(answer: Sequence[Word]) -> list[list[Word]]:
    clauses: list[list[Word]] = [[]]
    for word in answer:
        if word.gap:
            clauses.append([])
        if clauses[-1] or word.text not in _LEADS_IN:
            clauses[-1].append(word)
    return [clause for clause in clauses if clause]


def _repeats(predicate: Sequence[str], stems: Set[str]) -> bool:
    """Return whether a clause has two thirds of the words of the question's predicate, or half of them and the last one."""
    told = [stem in stems for stem in predicate]
    return bool(told) and (3 * sum(told) >= 2 * len(told) or (told[-1] and 2 * sum(told) >= len(told)))
