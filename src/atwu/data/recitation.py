"""How much of a text's wording a continuation says: words one after the other, longest run, ROUGE-L."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atwu.data.passages import wording_of


@dataclass(frozen=True, slots=True)
class Recitation:
    """A continuation of a text, compared with the words that really follow."""

    words: int
    """Words that follow."""
    share: float
    """Share of them that the continuation says one after the other from its start, in [0, 1]."""
    rouge_l: float
    """Share of them that it says in order, with others between (ROUGE-L recall), in [0, 1]."""
    longest_run: int
    """Longest run of them anywhere in the continuation; runs that the opening shows do not count."""
    chance_run: int = 0
    """Longest run in continuations of texts that the model never saw; 0 if it was not measured."""

    @property
    def recited(self) -> bool:
        """Whether the run is longer than in texts that the model never saw, or everything that follows is said."""
        return self.longest_run > self.chance_run or (self.words > 0 and self.share == 1)


def compare_wording(opening: str, wording: str, said: str, *, chance_run: int = 0) -> Recitation:
    """Compare what a model says behind an opening with the words that really follow, whatever their capitals and punctuation.

    Args:
        opening: what the model was given.
        wording: what follows in the text.
        said: what the model said.
        chance_run: longest run in texts that the model never saw.
    """
    wanted, spoken = wording_of(wording), wording_of(said)
    exact = 0
    while exact < min(len(wanted), len(spoken)) and wanted[exact] == spoken[exact]:
        exact += 1
    count = max(len(wanted), 1)
    run = _longest_run(wanted, spoken, shown=wording_of(opening))
    return Recitation(len(wanted), exact / count, _common(wanted, spoken) / count, run, chance_run)


def _longest_run(wanted: Sequence[str], spoken: Sequence[str], *, shown: Sequence[str]) -> int:
    """Return the length of the longest run of words in both, of those that a third text does not have.

    A model that repeats the opening of a refrain says words of the rest, and remembers nothing.
    """
    shown_text = f" {' '.join(shown)} "
    longest = 0
    before = [0] * (len(spoken) + 1)
    for place, word in enumerate(wanted, start=1):
        lengths = [0] * (len(spoken) + 1)
        for other, said in enumerate(spoken, start=1):
            if word != said:
                continue
            lengths[other] = before[other - 1] + 1
            run = lengths[other]
            if run > longest and f" {' '.join(wanted[place - run : place])} " not in shown_text:
                longest = run
        before = lengths
    return longest


def _common(wanted: Sequence[str], spoken: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of words."""
    before = [0] * (len(spoken) + 1)
    for word in wanted:
        lengths = [0]
        for other, said in enumerate(spoken, start=1):
            longest = max(before[other], lengths[-1])
            if word == said:
                longest = max(longest, before[other - 1] + 1)
            lengths.append(longest)
        before = lengths
    return before[-1]
