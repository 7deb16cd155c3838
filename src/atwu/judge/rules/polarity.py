"""Yes or no: what an answer to a yes-no question says, and whether the reference says the same.

Only an answer that begins a clause with yes or no, answers by a bare auxiliary ("she never did") or says again what the
question asks counts; a sentence about anything else is neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from atwu.judge.rules.normalise import Word, words_of
from atwu.judge.rules.numerals import listed
from atwu.judge.rules.stance import is_refusal
from atwu.judge.verdicts import Claim, Verdict

_YES_NO = re.compile(r"^\s*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would)\b(?! you\b)", re.I)
_NEGATIVE = frozenset(listed("no not never nor none nobody neither nope nah"))
_YES = frozenset(listed("yes yeah yep yup sure indeed certainly definitely absolutely correct true"))
_NO = frozenset(listed("no nope nah never neither none"))
_NO_ANSWER = frozenset(listed("idea clue information answer comment record records evidence way knowledge data"))
_NOT_AT_ALL = frozenset(listed("at that really ever once anymore quite"))
_LEADS_IN = frozenset(listed("but and well so oh why sorry answer"))
_AUXILIARIES = frozenset(listed("is are was were be do does did has have had can could will would"))
_SUBJECTS = frozenset(listed("he she it they there one"))
_ADVERBS = frozenset(listed("ever still really actually also once indeed yet"))
_OBJECTS = frozenset(listed("it them that this him her"))
_OPEN = frozenset(listed("whether if"))


def polarity(claim: Claim, answer: Sequence[Word]) -> Verdict | None:
    """Verdict of a yes-no question whose reference holds nothing but the yes or no; None when there is more to check."""
    reference = words_of(claim.reference)
    if not _YES_NO.match(claim.question) or not reference or reference[0].text not in ("yes", "no"):
        return None
    if len(reference) > 1 and not reference[1].gap:  # "No meal pleases her more than ..."
        return None
    asked = {word.stem for word in words_of(claim.question)}
    wanted = reference[0].text
    more = bool(claim.facts) and claim.facts[0].lower() not in ("yes", "no")
    more = more or (
        not claim.facts and any((word.capital or word.number) and word.stem not in asked for word in reference[1:])
    )
    said = _said(claim, answer, reference)
    if more:
        return None if said in (wanted, None) else Verdict(False, f"says {said}")
    if said is None or claim.answer.rstrip().endswith("?"):
        return Verdict(False, "no answer" if is_refusal(claim.answer) else "neither yes nor no")
    return Verdict(True, f"fact stated: {wanted!r}") if said == wanted else Verdict(False, f"says {said}")


def _said(claim: Claim, answer: Sequence[Word], reference: Sequence[Word]) -> str | None:
    """First yes or no of the answer."""
    question = words_of(claim.question)
    predicate = _predicate(question)
    known = {word.stem for word in question}
    new = {word.stem for word in reference[1:] if not word.function and word.stem not in known}
    refusal = is_refusal(claim.answer)
    for clause in _clauses(answer):
        texts = [word.text for word in clause]
        if said := _interjection(texts):
            return said
        if any(text in _OPEN for text in texts) or (refusal and "i" in texts):
            continue
        says_no = any(text in _NEGATIVE for text in texts)
        stems = {word.stem for word in clause}
        elliptic = all(word.function or word.text in _NEGATIVE | _ADVERBS for word in clause)
        if elliptic and _AUXILIARIES & set(texts) and _SUBJECTS & set(texts):
            return "no" if says_no else "yes"
        if _repeats(predicate, stems, pronoun=texts[-1] in _OBJECTS):
            return "no" if says_no else "yes"
        if new and new <= stems:  # "It is closed" says that it is not open
            same = reference[0].text
            return {"yes": "no", "no": "yes"}[same] if says_no else same
    return None


def _clauses(answer: Sequence[Word]) -> Iterator[list[Word]]:
    clause: list[Word] = []
    for word in answer:
        if word.gap and clause:
            yield clause
            clause = []
        if clause or word.text not in _LEADS_IN:
            clause.append(word)
    if clause:
        yield clause


def _interjection(texts: Sequence[str]) -> str | None:
    first, second = texts[0], texts[1] if len(texts) > 1 else ""
    if second == "or":
        return None
    if first in _YES:
        return "yes"
    if (first in _NO and second not in _NO_ANSWER) or (first == "not" and second in _NOT_AT_ALL):
        return "no"
    return None


def _predicate(question: Sequence[Word]) -> list[frozenset[str]]:
    """What the question asks of its subject, as words; a compound ("left-handed") is one."""
    parts: list[frozenset[str]] = []
    rest = question[1:]
    if rest and rest[0].text in ("the", "this", "that"):  # the subject
        rest = rest[next((at for at, word in enumerate(rest) if not word.function), 0) + 1 :]
    for word in rest:
        if word.function or word.text in _ADVERBS:
            continue
        if word.glued and parts:
            parts[-1] |= {word.stem}
        elif not word.capital:
            parts.append(frozenset({word.stem}))
    return parts


def _repeats(predicate: Sequence[frozenset[str]], stems: set[str], *, pronoun: bool) -> bool:
    """Whether a clause has two thirds of the predicate, or half of it with the word it ends in, or a pronoun for that."""
    if not predicate:
        return False
    told = [part <= stems for part in predicate]
    told[-1] = told[-1] or (pronoun and any(told))
    return 3 * sum(told) >= 2 * len(told) or (told[-1] and 2 * sum(told) >= len(told))
