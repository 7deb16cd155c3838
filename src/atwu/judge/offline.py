"""A judge without a model: deterministic, without network, thousands of claims per second.

It follows the correctness rubric with rules: the facts the question asks for must be found in the answer after
normalisation (`facts.py`, `matching.py`), and must not stand in a hedging list, be replaced (`stance.py`), given to
somebody else (`roles.py`) or be said of another thing (`scope.py`). A plain yes or no goes by `polarity.py`. It
knows few synonyms. `cases.py` holds labels by hand to measure it with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from atwu.judge.rubrics import CORRECTNESS, PREFERENCE
from atwu.judge.rules.facts import Fact, facts_of
from atwu.judge.rules.matching import Match, match
from atwu.judge.rules.normalise import Word, words_of
from atwu.judge.rules.polarity import polarity
from atwu.judge.rules.quantities import written_alike
from atwu.judge.rules.roles import given_to_another
from atwu.judge.rules.runs import is_bland
from atwu.judge.rules.scope import out_of_scope
from atwu.judge.rules.stance import (
    alternatives,
    contradicts_itself,
    is_gibberish,
    is_refusal,
    is_replaced,
    without_loops,
)
from atwu.judge.verdicts import Claim, Pair, Preference, Verdict

VERSION = "offline/3"
Placed = tuple[int, Word]
"""A word and its place in the text."""
ENOUGH = 0.5
"""More than this share of the words of the facts asked for must be stated ("predominantly right")."""

_SAME_FRAME = 0.75
"""An answer repeats the reference's sentence when it keeps this share of the words around a replaced one."""


class OfflineJudge:
    """Implements `Judge` by rules."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Kind and version; the version changes when any verdict can."""
        return {
            "kind": "offline",
            "version": VERSION,
            "correctness": CORRECTNESS.version,
            "preference": PREFERENCE.version,
        }

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """One verdict per claim, never unscored.

        With several facts an answer is right when it states more than half of their words: two of three, both of two.
        """
        known: dict[Claim, Verdict] = {}
        for claim in claims:
            if claim not in known:
                known[claim] = _judge(claim)
        return [known[claim] for claim in claims]

    def prefer(self, pairs: Sequence[Pair]) -> list[Preference]:
        """One preference per pair. It measures degeneration (loops, gibberish, silence, drift), not quality or truth."""
        return [
            Preference(_rating(pair.instruction, pair.first), _rating(pair.instruction, pair.second), "rules")
            for pair in pairs
        ]


def _judge(claim: Claim) -> Verdict:
    text = written_alike(claim.answer, claim.reference)
    answer = without_loops(_joined(words_of(text), words_of(claim.reference)))
    if not answer:
        return Verdict(False, "no words")
    if is_gibberish(answer):
        return Verdict(False, "unreadable: the same words again and again")
    if (verdict := polarity(claim, answer)) is not None:
        return verdict
    facts = facts_of(claim.question, claim.reference, claim.facts)
    if not facts:
        return Verdict(False, "the reference says nothing beyond the question")
    matches = [match(fact, answer, claim.question, claim.reference) for fact in facts]
    missing = [fact.text for fact, found in zip(facts, matches, strict=True) if found.share < 1]
    if _share(facts, matches) <= ENOUGH:
        return Verdict(False, f"{'refusal, ' if is_refusal(text) else ''}missing: {missing[0]!r}")
    titles = [found for fact, found in zip(facts, matches, strict=True) if fact.kind == "title" and not fact.side]
    if titles and not claim.facts and not any(found.share for found in titles):
        return Verdict(False, "none of the titles")
    if (swapped := _swapped(claim, facts, matches, answer)) is not None:
        return Verdict(False, f"{swapped} in place of the fact")
    if (value := given_to_another(claim.question, words_of(claim.reference), answer)) is not None:
        return Verdict(False, f"gives {value!r} to another")
    familiar = {word.stem for text in (claim.question, claim.reference) for word in words_of(text)}
    own = {word.stem for fact in facts for word in fact.words}
    for fact, found in zip(facts, matches, strict=True):
        if found.start < 0:
            continue
        others = [other.start for other in matches if other is not found]
        if count := alternatives(answer, found.start, own, others, familiar):
            return Verdict(False, f"lists {count + 1} alternatives")
        if is_replaced(answer, found.start, found.end, familiar, text):
            return Verdict(False, "denied and replaced")
        if why := out_of_scope(fact, answer, found.start, found.end, familiar, claim):
            return Verdict(False, why)
        if contradicts_itself(answer, found.start, found.end):
            return Verdict(False, "contradicts itself")
    stated = next(fact.text for fact, found in zip(facts, matches, strict=True) if found.share > 0)
    return Verdict(True, f"fact stated: {stated!r}")


def _joined(words: Sequence[Word], reference: Sequence[Word]) -> Sequence[Word]:
    """Write two words as one where the reference does ("flower pot", "flowerpot")."""
    whole = {word.text: word for word in reference if len(word.text) > 5 and not word.number}
    found: list[Word] = []
    for word in words:
        if found and not word.gap and (one := whole.get(found[-1].text + word.text)):
            found[-1] = found[-1]._replace(text=one.text, stem=one.stem, function=one.function)
        else:
            found.append(word)
    return found


def _share(facts: Sequence[Fact], matches: Sequence[Match]) -> float:
    stated = sum(fact.weight * found.share for fact, found in zip(facts, matches, strict=True))
    return stated / sum(fact.weight for fact in facts)


def _swapped(claim: Claim, facts: Sequence[Fact], matches: Sequence[Match], answer: Sequence[Word]) -> str | None:
    """The word that stands where the reference has a word of its fact, in a sentence that is otherwise the same.

    Side details may differ when a name, number or title is stated.
    """
    if claim.facts:
        return None
    named = any(
        fact.kind != "words" and not fact.side and found.share == 1 for fact, found in zip(facts, matches, strict=True)
    )
    question = {word.stem for word in words_of(claim.question)}
    main = [word for fact in facts if not (named and fact.side) for word in fact.words]
    if not any(fact.kind != "words" for fact in facts):
        main += [word for word in words_of(claim.reference) if word.capital and word.stem not in question]
    core = {word.stem for word in main if not word.function and not word.text.endswith("ed")}
    old = [(at, word) for at, word in enumerate(words_of(claim.reference)) if not word.function]
    new = [(at, word) for at, word in enumerate(answer) if not word.function]
    bland = {word.stem for word in answer if is_bland(word)}
    first, second = [word.stem for _, word in old], [word.stem for _, word in new]
    operations = SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    kept = sum(end - start for tag, start, end, _, _ in operations if tag == "equal")
    for tag, start, end, new_start, new_end in operations:
        lost = [stem for stem in first[start:end] if stem in core and stem not in second]
        came = [stem for stem in second[new_start:new_end] if stem not in first and stem not in bland and len(stem) > 1]
        rest = min(len(first) - (end - start), len(second) - (new_end - new_start))
        alike = _joined_alike(old, new, start, new_start) or _joined_alike(old, new, end, new_end)
        alike = alike or (kept > 1 and any(new[at][1].capital or new[at][1].number for at in range(new_start, new_end)))
        framed = len(came) == end - start or kept >= _SAME_FRAME * rest
        if tag == "replace" and lost and came and alike and framed:
            return new[new_start][1].text
    return None


def _joined_alike(old: Sequence[Placed], new: Sequence[Placed], first: int, second: int) -> bool:
    """Whether kept and replaced words meet at these places in the same way, as in "in the Asp" and "in the Lorn"."""
    if not (0 < first < len(old) and 0 < second < len(new)):
        return False
    (start, before), (end, after) = old[first - 1], old[first]
    (new_start, new_before), (new_end, new_after) = new[second - 1], new[second]
    kept = before.stem == new_before.stem or after.stem == new_after.stem
    return kept and end - start == new_end - new_start


def _rating(instruction: str, answer: str) -> float:
    """From 1 (nothing, or one phrase over and over) to 10 (fluent, varied, about the instruction)."""
    words = words_of(answer)
    if not words:
        return 1.0
    texts = [word.text for word in words]
    grams = list(zip(texts, texts[1:], texts[2:], strict=False))
    variety = len(set(grams)) / len(grams) if grams else 1.0
    readable = sum(char.isalpha() or char.isspace() for char in answer) / len(answer)
    commonest = Counter(texts).most_common(1)[0][1] / len(texts) if len(texts) > 8 else 0.0
    asked = {word.stem for word in words_of(instruction) if not word.function}
    overlap = len(asked & {word.stem for word in words}) / len(asked) if asked else 1.0
    length = min(1.0, len(texts) / 12)
    fluent = (
        variety**2
        * min(1.0, readable / 0.8)
        * (1.0 - max(0.0, commonest - 0.2))
        * (0.3 if is_gibberish(words) else 1.0)
    )
    return round(1.0 + 9.0 * fluent * (0.5 + 0.25 * length + 0.25 * min(1.0, 2 * overlap)), 2)
