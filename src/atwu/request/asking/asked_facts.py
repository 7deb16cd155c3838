"""The types of what was asked: a fact with how surely the model says it, and a text with how much of it the model recites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atwu.data.fact import is_name_or_value
from atwu.data.row_parsing import row_record
from atwu.data.schema import Example

KNOWN_SHARE = 0.6
"""Share of the askings in which a model must repeat the key text of what it knows."""
WORDS_SHARE = 0.7
"""The same share for words that are neither a name nor a value: "rich cultural heritage" is said of much."""
SURE_SHARE = 0.8
"""The same share for an answer that is that of a surer question (a small model that cannot name a palace of Egypt names the
pyramid that it knows), or that is not likely."""
LIKELY_ANSWER = 0.25
"""Probability of the key tokens from which an answer is likely: of the answers about Egypt that SmolLM2 makes up, most have
less."""
LEADING_BACK = 2
"""Questions about an answer, of four, to which a model must name the subject for the two to be linked: of one alone, another
person or a made-up lake would be."""
FEWEST_ASKINGS = 4
"""Askings from which this share says something."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What another model says to the question of a fact."""

    answer: str
    agree: int
    askings: int
    """Askings in all, and those in which it says the key text of the first model."""

    @property
    def repeated(self) -> bool:
        """Whether it says this key text in most ways of asking."""
        return self.agree >= KNOWN_SHARE * max(1, self.askings)


@dataclass(frozen=True, slots=True)
class AskedFact:
    """What a model says to a question."""

    row: Example
    """Question and the model's answer, its key text and what else it repeats marked."""
    key_text: str
    """The part of the answer that the askings say most often."""
    agree: int
    askings: int
    """Askings in all, the question as written among them, and those that say the key text."""
    source: str
    """Where the question comes from."""
    probability: float | None = None
    """Geometric mean of the probabilities of the key tokens; None without weights, or if it was not measured."""
    told_apart: bool | None = None
    """Whether the model says this for its own subject rather than for others; None if nothing could be replaced."""
    subject: str | None = None
    same_as_surer: bool = False
    """Whether another question about the same subject gets this answer in more askings."""
    compared: Compared | None = None
    leads_back: int = 0
    """Questions about the key text to which the model names the subject; 0 if none was asked (`linked_names.py`)."""

    @property
    def share(self) -> float:
        """Share of the askings that agree, in [0, 1]."""
        if not self.askings:
            return 0.0
        return self.agree / self.askings

    @property
    def how_sure(self) -> str:
        """In how many askings the model says the key text, and whether this leads back to the subject."""
        askings = f"{self.agree} of {self.askings}"
        if self.linked:
            return f"{askings}, leads back"
        return askings

    @property
    def linked(self) -> bool:
        """Whether the model names the subject when it is asked about the key text."""
        return self.leads_back >= LEADING_BACK

    @property
    def repeated(self) -> bool:
        """Whether the model says the key text in most ways of asking."""
        return self.askings >= FEWEST_ASKINGS and self.share >= KNOWN_SHARE

    @property
    def known(self) -> bool:
        """Whether the model says it for this subject rather than for others, as often as such an answer needs.

        What leads back to the subject needs no more.
        """
        if self.linked:
            return True
        if self.same_as_surer and self.key_text.split()[-1].islower():
            # "A German physicist" answers what his profession was, and nothing else that is asked about him.
            return False
        needed = KNOWN_SHARE
        if not is_name_or_value(self.key_text):
            needed = WORDS_SHARE
        unlikely = self.probability is not None and self.probability < LIKELY_ANSWER
        if self.same_as_surer or unlikely:
            needed = SURE_SHARE
        return self.repeated and self.told_apart is not False and self.share >= needed

    def record(self) -> dict[str, Any]:
        """Return the columns of the row, and what was measured."""
        measured: dict[str, Any] = {"agreement": round(self.share, 3), "askings": self.askings, "source": self.source}
        if self.probability is not None:
            measured["probability"] = round(self.probability, 4)
        if self.leads_back:
            measured["leads_back"] = self.leads_back
        if self.compared is not None:
            measured["compared_answer"] = self.compared.answer
            measured["compared_agreement"] = round(self.compared.agree / max(1, self.compared.askings), 3)
        return row_record(self.row) | measured


@dataclass(frozen=True, slots=True)
class RecitedText:
    """A passage of a document, and how much of it the model continues word for word from its first third."""

    text: str
    opening_words: int
    continuation: str
    """What the model said."""
    share: float
    """Share of the words behind the first third that it reproduces one after the other, in [0, 1]."""
    rouge_l: float
    """ROUGE-L recall of these words, in [0, 1]."""
    longest_run: int
    """Longest run of these words that it says."""

    @property
    def recited(self) -> bool:
        """Whether the model knows the wording: a long run, or most of what follows."""
        return self.longest_run >= RECITED_RUN or self.share >= RECITED_SHARE

    def record(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "recited_share": round(self.share, 3),
            "rouge_l": round(self.rouge_l, 3),
            "longest_run": self.longest_run,
            "source": "document",
        }


RECITED_RUN = 8
"""Words in one run that are hardly said by chance: common phrases have up to five or six."""
RECITED_SHARE = 0.5
"""Share of a short passage that is recited."""
