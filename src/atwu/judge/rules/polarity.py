"""Detect whether the answer to a yes-no question means yes or no, and whether the reference means the same.

An answer counts only if a clause begins with yes or no, if it is a bare auxiliary ("she never did"), or if it repeats the
statement of the question; any other sentence means neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from atwu.judge.rules.normalized_words import Word, stems_of, words_of
from atwu.judge.rules.numerals import split_entries
from atwu.judge.rules.stance import is_refusal
from atwu.judge.verdicts import Claim, Verdict

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
    if claim.facts[0].lower() not in ("yes", "no") if claim.facts else more:
        return None if said in (wanted, None) else Verdict(False, f"says {said}")
    if said is None or claim.answer.rstrip().endswith("?"):
        return Verdict(False, "no answer" if is_refusal(claim.answer) else "neither yes nor no")
    return Verdict(True, f"fact stated: {wanted!r}") if said == wanted else Verdict(False, f"says {said}")


def _said(claim: Claim, answer: Sequence[Word], reference: Sequence[Word]) -> str | None:
    """Return the first yes or no of the answer."""
    predicate = [word.stem for word in words_of(claim.question)[1:] if not (word.function or word.capital)]
    new = {word.stem for word in reference[1:] if not word.function} - stems_of(claim.question)
    for clause in _clauses(answer):
        texts, stems = [word.text for word in clause], {word.stem for word in clause}
        first, second = texts[0], texts[1] if len(texts) > 1 else ""
        if first in _YES | _NO and second not in _NO_ANSWER:
            return "yes" if first in _YES else "no"
        if {"whether", "if"} & set(texts) or ("i" in texts and is_refusal(claim.answer)):
            continue
        says, denies = ("no", "yes") if _NEGATIVE & set(texts) else ("yes", "no")
        elliptic = all(word.function or word.text in _NEGATIVE | _ADVERBS for word in clause)
        if (elliptic and _AUXILIARIES & set(texts) and _SUBJECTS & set(texts)) or _repeats(predicate, stems):
            return says
        if new and new <= stems:  # "It is closed" means that it is not open
            return says if reference[0].text == "yes" else denies
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
