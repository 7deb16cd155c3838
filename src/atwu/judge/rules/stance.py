"""What an answer does with a fact it contains: states it, lists it among alternatives, or puts something else in its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from atwu.judge.rules.normalise import Word
from atwu.judge.rules.numerals import listed

_REFUSAL = re.compile(
    r"\b(?:sorry|i(?:'m| am) (?:afraid|unable|not (?:able|familiar|sure|certain|allowed|supposed))|"
    r"i (?:can(?:'|no)t|cannot|can not|couldn't|don't|do not|have no|have nothing|won't|will not|would rather not|was never)|"
    r"no information|not something i|outside of what|beyond my|unfortunately|as an ai|private|for privacy)\b",
    re.I,
)
_HEDGE = frozenset(
    listed("maybe perhaps might could possibly either guess unclear whichever depending probably somewhere may")
)
_WEAK = _HEDGE | frozenset(
    listed("one these believe think know sure wrong hard say nobody who it indeed reportedly apparently")
)
_NEGATION = frozenset(listed("not never no nor neither nobody without"))
_SAYING = frozenset(
    listed(
        "confirm verify say tell deny reveal disclose discuss share mention quote believe heard know evidence records record "
        "certain rather proof prove"
    )
)
_DESCRIBES = frozenset(listed("his her their its about with who which when"))
_LINKS = frozenset(listed("is was are were did does has had"))
_ONLY = frozenset(listed("only just merely simply"))
_WITHDRAWN = re.compile(
    r"\b(?:that|this|which|it) (?:is|was) (?:wrong|false|incorrect|mistaken|untrue|not true)\b", re.I
)
_SHORT_ITEM = 4
"""Most content words of an item in a list."""
_BARE_ITEM = 3
_LONG_LIST = 3
"""So many items of at most so many words make a list a hedge even without "or"."""
_LONGEST_LOOP = 24


def is_refusal(text: str) -> bool:
    """Whether a text declines to answer, whatever else it says."""
    return bool(_REFUSAL.search(text.replace("’", "'")))


def without_loops(words: Sequence[Word]) -> list[Word]:
    """Cut the later copies of a phrase that repeats itself at once, as a looping model writes.

    A phrase of six or more words may stand once, one of three to five words twice, as in a pair of similar titles.
    """
    kept: list[Word] = []
    for word in words:
        kept.append(word)
        for period in range(3, min(_LONGEST_LOOP, len(kept) // 2) + 1):
            span = period if period >= 6 else 2 * period
            if len(kept) >= span + period and all(kept[-k].stem == kept[-k - period].stem for k in range(1, span + 1)):
                del kept[-period:]
                break
    return kept


def is_gibberish(words: Sequence[Word]) -> bool:
    """Whether a text is mostly the same few words, or the same word several times in a row."""
    if len(words) < 5:
        return False
    texts = [word.text for word in words]
    doubled = sum(first == second for first, second in pairwise(texts))
    return doubled / len(texts) > 0.25 or len(set(texts)) / len(texts) < 0.35


def alternatives(
    answer: Sequence[Word], place: int, own: set[str], others_at: Sequence[int], familiar: set[str]
) -> int:
    """Count the other candidates in the list in which a fact stands.

    Args:
        answer: the words.
        place: a word of the fact.
        own: stems of the facts.
        others_at: places of other facts, whose items are no alternatives.
        familiar: stems of question and reference, which make no list without "or" a hedge.

    Returns:
        How many short items of the same list or hedge say something else; 0 when the fact is not hedged.
    """
    items = _items(answer)
    here = next((number for number, (start, end, _) in enumerate(items) if start <= place < end), None)
    if here is None:
        return 0
    first = last = here
    while first > 0 and _goes_on(answer, items[first]) and _candidate(answer, items[first - 1], own):
        first -= 1
    while last + 1 < len(items) and _goes_on(answer, items[last + 1]) and _candidate(answer, items[last + 1], own):
        last += 1
    others = [
        number
        for number in range(first, last + 1)
        if number != here
        and not any(items[number][0] <= other < items[number][1] for other in others_at)
        and _novel(answer, items[number], own, answer[place])
    ]
    if {"short", "rather"} & {word.text for word in answer[slice(*items[here][:2])]} and items[here][2] == "or":
        return 0  # "sea stories, or maritime gothic for short"
    if any(items[number][2] == "or" for number in range(first + 1, last + 1)):
        return len(others)
    hedges = sum(word.text in _HEDGE for word in answer[items[first][0] : items[last][1]])
    if hedges >= 2:
        return len(others)
    bare = [
        number
        for number in others
        if items[number][1] - items[number][0] <= _BARE_ITEM
        and not any(word.stem in familiar for word in answer[items[number][0] : items[number][1]] if not word.function)
    ]
    return len(bare) if len(bare) >= _LONG_LIST else 0


def _items(answer: Sequence[Word]) -> list[tuple[int, int, str]]:
    """Ranges between separators, with the separator before each: "or", "," or "."."""
    items: list[tuple[int, int, str]] = []
    start, before = 0, "."
    for place, word in enumerate(answer):
        separator = "or" if word.text == "or" else word.gap
        if separator and place:
            if place > start:
                items.append((start, place, before))
                before = separator
            elif separator == "or" or before != "or":
                before = separator
            start = place + (word.text == "or")
    return [*items, (start, len(answer), before)] if start < len(answer) else items


def _goes_on(answer: Sequence[Word], item: tuple[int, int, str]) -> bool:
    """Whether an item belongs to the same list as the one before it."""
    return item[2] != "." and answer[item[0]].text not in ("but", "though", "while")


def _candidate(answer: Sequence[Word], item: tuple[int, int, str], own: set[str]) -> bool:
    return sum(not word.function and word.stem not in own for word in answer[item[0] : item[1]]) <= _SHORT_ITEM


def _novel(answer: Sequence[Word], item: tuple[int, int, str], own: set[str], like: Word) -> bool:
    """Whether an item says something else; beside a name only what starts like a name, or at least no "his fourth"."""
    first = next((word.text for word in answer[item[0] : item[1]] if word.text not in _HEDGE), "")
    described = like.capital and first in _DESCRIBES
    return any(
        not word.function and word.stem not in own and word.text not in _WEAK and (word.capital or not described)
        for word in answer[item[0] : item[1]]
    )


def is_replaced(answer: Sequence[Word], start: int, end: int, own: set[str], text: str) -> bool:
    """Whether the fact is denied and another value takes its place ("not in Kelbury but in Tarn").

    A denial that offers nothing instead still gives the fact away, and so does one of saying or knowing it.

    Args:
        answer: the words.
        start: first word of the fact.
        end: one past its last word.
        own: stems of question and reference, which are no other value.
        text: the answer as written.
    """
    denied = bool(_WITHDRAWN.search(text))
    opens = start == 0 or answer[start].gap == "."
    like = answer[end - 1 if opens else start]  # a capital at the start of a sentence says nothing
    for place in range(start - 1, -1, -1):
        word = answer[place]
        if word.text in _SAYING and not denied:
            return False
        if word.text in _NEGATION:
            denied = True
            before = answer[place - 1]
            joined = word.gap == "," or before.text == "and"
            if before.text == "and":
                before = answer[place - 2]
            if place and joined and _is_other(before, like, own) and answer[place + 1].text != "even":
                return True  # "Tarn, not Kelbury"
        if word.gap or word.text == "but":
            break
    after = [word.text for word in answer[end : end + 3]]
    said_not = len(after) > 2 and after[0] in _LINKS and after[1] in _NEGATION and after[2] not in _ONLY
    if said_not and not any(word.text in _SAYING for word in answer[end:]):
        denied = True  # "Kelbury is not where she was born; it was Tarn"
    if not denied:
        return False
    contrast = (like.capital or like.number) and not said_not
    for word in answer[end:]:
        contrast = contrast or bool(word.gap) or word.text in ("but", "instead", "rather")
        if contrast and _is_other(word, like, own):
            return True
    return False


def _is_other(word: Word, like: Word, own: set[str]) -> bool:
    """Whether a word can be a value like another one and is neither in the question nor in the reference."""
    return word.stem not in own and not word.function and word.number == like.number and word.capital >= like.capital


def contradicts_itself(answer: Sequence[Word], start: int, end: int) -> bool:
    """Whether another sentence says the same as the one with the fact, with another value in its place."""
    first = start
    while first > 0 and answer[first].gap != ".":
        first -= 1
    lead = [word.stem for word in answer[first:start]]
    if len(lead) < 2:
        return False
    fact = {word.stem for word in answer[start:end]}
    for place, word in enumerate(answer):
        if place != first and (place == 0 or word.gap == "."):
            after = answer[place + len(lead) : place + len(lead) + 1]
            same = [other.stem for other in answer[place : place + len(lead)]] == lead
            if same and after and after[0].stem not in fact and not after[0].function:
                return True
    return False
