"""Cuts a reference into the runs of words that the question does not have, and finds its subordinate clauses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from atwu.judge.rules.normalise import Word, words_of
from atwu.judge.rules.numerals import MONTHS, listed

_VERB = re.compile(r"[^s]s$|ed$")
_BLAND = frozenset(
    word.stem
    for word in words_of(
        "know love like prefer enjoy keep play speak read learn live stay work serve own hold win receive get take give make "
        "bring tell say think believe mention go come begin start end happen belong become turn use wear lie stand hang "
        "show mean describe consist include mostly anything else something"
    )
)
"""Words that say how a fact hangs together with the question, not what it is; left out where we find the fact ourselves."""
_CONTAINERS = frozenset(
    word.stem
    for word in words_of(
        "kind sort type family group pair piece member series collection number set mixture form variety range lot bunch "
        "case outbreak bout sense act style"
    )
)
"""Nouns that mean little before "of"."""
_TIMES = listed("second minute hour day week month year")
_BEFORE_A_MAIN_CLAUSE = frozenset(listed("before after when while although though because since as if"))


def is_bland(word: Word) -> bool:
    """Whether a word only links a fact with the question ("keeps", "tells")."""
    return word.stem in _BLAND and not word.capital and not word.text.endswith(("er", "ers"))


def new_runs(words: Sequence[Word], known: set[str]) -> list[tuple[int, int]]:
    """Runs of content words that the question does not have; function words join them inside a name or a quotation."""
    runs: list[tuple[int, int]] = []
    for place, word in enumerate(words):
        adverb = word.text.endswith("ly") and not word.quoted and (place == 0 or not word.capital)
        if not word.quoted and (word.stem in known or adverb or is_bland(word)):
            if runs and runs[-1][1] == place and word.capital and not word.gap and _all_capital(words, runs[-1]):
                runs[-1] = (runs[-1][0], place + 1)  # "Tanner Street", if asked for the street
            continue
        of = place + 1 < len(words) and words[place + 1].text == "of"
        if of and word.stem in _CONTAINERS and not word.capital and not word.quoted:
            continue  # "a family of otters"
        if word.function and not _names_go_on(words, place):
            continue
        joins = runs and runs[-1][1] == place and (not word.gap or word.quoted or _date_goes_on(words, place))
        if joins and not _new_part(words, runs[-1][0], place, known):
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    runs = [(start + (words[start].text == "year" and end > start + 1), end) for start, end in runs]
    runs = [run for run in runs if not (words[run[0]].quoted and _all_known(words, run, known))] or runs
    runs = [run for run in runs if not _links(words, run, known)] or runs
    return [run for run in runs if any(not word.function for word in words[slice(*run)])]


def asides(words: Sequence[Word]) -> set[int]:
    """Places in a subordinate clause before or after the main one ("Before she was known, ...", "..., which ...")."""
    breaks = [place for place, word in enumerate(words) if word.gap == ","]
    inside: set[int] = set()
    if breaks and words[0].text in _BEFORE_A_MAIN_CLAUSE:
        inside |= set(range(breaks[0]))
    for place in breaks:
        if words[place].text in ("which", "who", "where"):
            inside |= set(range(place, next((other for other in breaks if other > place), len(words))))
    return inside


def _all_known(words: Sequence[Word], run: tuple[int, int], known: set[str]) -> bool:
    return all(word.stem in known for word in words[slice(*run)])


def _links(words: Sequence[Word], run: tuple[int, int], known: set[str]) -> bool:
    """Whether a run is a verb alone between a subject of the question and what follows ("the farm covers 60 hectares")."""
    start, end = run
    if end - start > 1 or not 0 < start < len(words) - 1 or words[start].quoted or words[start].capital:
        return False
    subject = words[start - 1].stem in known and not words[start - 1].function
    after = words[end]
    return subject and words[start].text.endswith("s") and not words[start].gap and (after.function or after.number)


def _all_capital(words: Sequence[Word], run: tuple[int, int]) -> bool:
    return all(word.capital and not word.quoted for word in words[slice(*run)]) and run[0] > 0


def _new_part(words: Sequence[Word], start: int, place: int, known: set[str]) -> bool:
    """Whether a run ends before a word: at a quotation, a name after its apposition ("nephew Tobias"), or after a verb."""
    word, before = words[place], words[place - 1]
    if word.quoted or before.quoted:
        return word.quoted != before.quoted
    if word.capital and not any(other.capital or other.number or other.function for other in words[start:place]):
        return True
    subject = place - 1 == start and start > 0 and words[start - 1].stem in known
    return subject and not before.capital and not before.gap and bool(_VERB.search(before.text))


def _names_go_on(words: Sequence[Word], place: int) -> bool:
    if words[place].quoted:
        return True
    if 1 < place < len(words) - 1 and words[place].text in ("a", "an") and words[place + 1].text in _TIMES:
        return words[place - 1].number or words[place - 2].number  # "5 euro a month"
    if not 0 < place < len(words) - 1 or words[place].text not in ("of", "the"):
        return False
    after = words[place + 1] if words[place + 1].text != "the" or place + 2 == len(words) else words[place + 2]
    return words[place - 1].capital and after.capital


def _date_goes_on(words: Sequence[Word], place: int) -> bool:
    return words[place].number and (words[place - 1].number or words[place - 1].text in MONTHS)
