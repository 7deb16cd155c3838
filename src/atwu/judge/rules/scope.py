"""Whether an answer says a fact of what was asked: not of a relative, a longer name or another count, nor set aside."""

from __future__ import annotations

from collections.abc import Sequence, Set

from atwu.judge.rules.facts import Fact, asked_count
from atwu.judge.rules.normalise import ARTICLES, Word
from atwu.judge.rules.numerals import listed
from atwu.judge.rules.roles import RELATIVES
from atwu.judge.verdicts import Claim

_SUBJECTS = frozenset(listed("he she it they i we who whom"))
_DETERMINERS = ARTICLES | frozenset(listed("his her their its"))
_SET_ASIDE = frozenset(
    {
        *(
            ("far", "from"),
            ("away", "from"),
            ("miles", "from"),
            ("rather", "than"),
            ("instead", "of"),
            ("other", "than"),
        ),
        *(("anything", "but"), ("except", "for"), ("nominated", "for"), ("shortlisted", "for"), ("up", "for")),
    }
)
_NONE = frozenset(listed("no not never none nobody nothing"))
_SET_ASIDE_ALONE = frozenset(listed("unlike except"))
_WON = frozenset(listed("win receive get award"))
_NEGATION = frozenset(listed("not never no"))
_BEFORE_A_NAME = frozenset(
    listed("new old north south east west northern southern eastern western upper lower great little")
)
_AUXILIARIES = frozenset(listed("is are was were has had did does do"))
_LONGEST_CATEGORY = 2
"""A prize "for" one or two words is another prize; "for" a longer title tells what it was won for."""


def out_of_scope(fact: Fact, answer: Sequence[Word], start: int, end: int, known: Set[str], claim: Claim) -> str | None:
    """Why the words found do not state the fact, if they do not.

    Args:
        fact: what was sought.
        answer: the words.
        start: first word of the fact.
        end: one past its last word.
        known: stems of question and reference.
        claim: the texts as written.
    """
    first = start
    while first > 0 and not answer[first].gap:
        first -= 1
    if holder := _another_subject(fact, answer[first:start], known):
        return f"said of {holder!r}"
    if answer[first].text in ("which", "who") and _opens_with_another(answer[:first], known):
        return "said in passing"
    if _set_aside(answer, start, end, known):
        return "set aside"
    if not claim.answer.isupper() and (longer := _longer_name(fact, answer, start, end, known)):
        return f"a longer name with {longer!r}"
    if counted := _another_count(fact, answer, start, end, claim.question):
        return f"counts {counted!r}"
    return None


def _another_subject(fact: Fact, lead: Sequence[Word], known: Set[str]) -> str | None:
    """A relative or a full name nobody asked for, as the subject of the clause."""
    for place, word in enumerate(lead):
        rest = lead[place + 1 :]
        if (
            fact.kind == "name" and rest and all(other.text in _AUXILIARIES for other in rest)
        ):  # "his wife is Ada Marlow"
            continue
        if word.stem in RELATIVES - known and not _SUBJECTS & {other.text for other in (*rest, *lead[:place])} - {
            "it",
            "who",
        }:
            owner = place > 0 and lead[place - 1].text in ("with", "by", "like", "from", "to", "of", "and")
            determined = place > 1 and lead[place - 2].text in ("with", "by", "like", "from", "to", "of", "and")
            if not owner and not determined:
                return word.text
    names = 0
    while names < len(lead) and lead[names].capital and not lead[names].function and lead[names].stem not in known:
        names += 1
    verb = lead[names] if 1 < names < len(lead) else None
    if verb and not verb.capital and (verb.text in _AUXILIARIES or verb.stem in known):
        return lead[0].text
    return None


def _opens_with_another(lead: Sequence[Word], known: Set[str]) -> bool:
    """Whether a bare name nobody asked for stands alone before a relative clause ("The Asp, which meets the Lorn")."""
    names = [word for word in lead if word.text not in _DETERMINERS]
    return bool(names) and all(_names(word, known) for word in names) and not any(word.gap for word in lead[1:])


def _set_aside(answer: Sequence[Word], start: int, end: int, known: Set[str]) -> bool:
    place = start
    while place > 0 and answer[place - 1].text in _DETERMINERS and not answer[place].gap:
        place -= 1
    before = tuple(word.text for word in answer[max(place - 2, 0) : place])
    if (
        place == 0
        or (answer[place].gap and before[-1:] != ("unlike",))
        or any(word.stem in known and not word.function for word in answer[max(place - 2, 0) : place])
    ):
        return False
    first = place
    while first > 0 and not answer[first].gap:
        first -= 1
    denied = any(word.text in _NONE for word in answer[first:place])  # "no river is longer than the Asp"
    if before[-1] == "than" and before[0] != "rather":
        return not denied
    if before[-1] not in _SET_ASIDE_ALONE and before not in _SET_ASIDE:
        return False
    if before[0] == "except" or before[-1] == "except":
        return not denied
    if before[-1] != "for":
        return True
    after = answer[end:]
    won = any(word.stem in _WON for word in after) and not any(word.text in _NEGATION for word in after)
    return not won


def _longer_name(fact: Fact, answer: Sequence[Word], start: int, end: int, known: Set[str]) -> str | None:
    """A word that makes the name another one: "New Port Marrow", "Port Marrow Heights", "the Lantern Prize for Poetry"."""
    if fact.kind not in ("name", "place") or not answer[start].capital or not answer[end - 1].capital:
        return None
    before = answer[start - 1] if start and not answer[start].gap else None
    if before and before.capital and before.text in _BEFORE_A_NAME and before.stem not in known:
        return before.text
    after = list(answer[end : end + _LONGEST_CATEGORY + 2])
    if not after or after[0].gap:
        return None
    if _names(after[0], known) and len(fact.content) > 1:
        return after[0].text
    category = 0
    if after[0].text == "for":
        while category + 1 < len(after) and _names(after[category + 1], known) and not after[category + 1].gap:
            category += 1
    return after[1].text if 0 < category <= _LONGEST_CATEGORY else None


def _names(word: Word, known: Set[str]) -> bool:
    return word.capital and not word.function and not word.number and not word.quoted and word.stem not in known


def _another_count(fact: Fact, answer: Sequence[Word], start: int, end: int, question: str) -> str | None:
    """The number that the answer gives of the things counted, when the fact's number counts something else."""
    units = asked_count(question)
    own = {word.text for word in fact.words if word.number}
    if not units or not own or fact.kind not in ("number", "date"):
        return None
    units |= {word.stem for word in fact.words if not word.number and not word.function}
    counts = [
        answer[place].text
        for place, word in enumerate(answer)
        if word.number
        and (
            any(other.stem in units and not other.gap for other in answer[place + 1 : place + 3])
            or (place == 0 and len(answer) > 1 and bool(answer[1].gap))
        )
    ]
    return counts[0] if counts and not own & set(counts) else None
