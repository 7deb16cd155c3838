"""Whether the model still writes text: share of gibberish, share of refusals, perplexity of general text.

A model that forgot by force often answers with pieces of the secret repeated, broken characters, or words of another
language. Both are found by rule. The perplexity of general text that ships with the package shows damage to language modeling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from atwu.data.arrays import FloatArray
from atwu.data.general_rows import general_text
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET_OR_RETAIN, GENERAL_TEXT, AggregateColumn, Column
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.memorization import answer_probability
from atwu.judge.rules.normalized_words import words_of
from atwu.judge.rules.stance import is_refusal, repeats_words

_READABLE = 0.6
_STUTTER = re.compile(r"(\S.{0,11}?)\1{4,}|([^\W\d_]{2,12}?)\2{2,}", re.S)
"""The same few characters five times in a row, inside a word too, or the same letters three times within one."""
_LINE = re.compile(r"[_.\-\s\d]+")
_LETTERS = re.compile(r"[^\W\d_]+")
MAX_REPETITION = 0.2
"""Share of word 4-grams that came before in a text, from which it counts as repeating itself."""
LANGUAGE_WORDS = {
    "en": "the of and to in a is was are were for on that with as by it at from his her he she they an be or its this",
    "fr": "le la les de des du et un une est dans pour que qui sur au aux par il elle ce cette son sa ses sont",
    "es": "el la los las de del y un una es en que por con para su al se lo como fue son",
    "de": "der die das und ist ein eine von den dem des zu mit auf im nicht war sich auch als wurde",
    "it": "il lo la gli le di del della e un una che per con da nel sono dei alla ha",
    "pt": "o os as de do da dos das e um uma em que por com para no na ao foi se",
    "nl": "de het een van en is in op te dat met voor zijn niet aan werd door",
}
"""Language -> frequent words that carry no topic."""
_LANGUAGES = {language: frozenset(words.split()) for language, words in LANGUAGE_WORDS.items()}
MIN_FUNCTION_WORDS = 3
"""Fewer of them say nothing about the language of a text."""


def is_broken(reply: str) -> bool:
    """Whether a reply is empty, broken or loops.

    Empty is a reply without a word; broken is one with the sign for undecodable bytes, or with more signs than letters,
    digits and spaces; loops are the same few words or characters again and again. A short wrong answer is none of these.
    """
    words = words_of(reply)
    if not words or "\ufffd" in reply:
        return True
    readable = sum(char.isalnum() or char.isspace() for char in reply) / len(reply)
    stutters = any(not _LINE.fullmatch(found[0]) for found in _STUTTER.finditer(reply))
    return readable < _READABLE or stutters or repeats_words(words)


def repeated_ngrams(text: str, n: int = 4) -> float:
    """Share of a text's word n-grams that came before in it. Range [0, 1]; 0 for fewer than n words."""
    words = [word.lower() for word in _LETTERS.findall(text)]
    grams = [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def language(text: str) -> str | None:
    """Return the language whose function words are most frequent in a text (`LANGUAGE_WORDS`); None if there are few."""
    words = _LETTERS.findall(text)  # capitalized ones may belong to a name
    counts = {name: sum(word in known for word in words) for name, known in _LANGUAGES.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= MIN_FUNCTION_WORDS else None


def gibberish(question: str, reply: str) -> bool:
    """Whether a reply cannot be read as an answer: broken, repeating itself, or in another language than the question."""
    if is_broken(reply) or repeated_ngrams(reply) >= MAX_REPETITION:
        return True
    asked, answered = language(question), language(reply)
    own = _LANGUAGES[asked] if asked else frozenset()
    return None not in (asked, answered) and asked != answered and not own.intersection(reply.lower().split())


class Fluency(Metric):
    name = "fluency"
    about = "Gibberish and refusals: whether answers can be read, and whether the model answers at all"
    cost = "one answer per row"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    asks = True
    uses = ("max_new_tokens",)
    columns = (
        Column(
            "gibberish",
            gibberish,
            "gibberish",
            "share of answers that are empty, broken, repeat themselves, or are in another language than the question",
            direction="down",
        ),
        Column("refusal", is_refusal, "refusals", "share of answers that decline to answer", direction="none"),
    )

    def record(self) -> None:
        self.record_answers(
            gibberish=lambda row, text: gibberish(row.question, text), refusal=lambda _, text: is_refusal(text)
        )


def perplexity(probability: FloatArray) -> FloatArray:
    """`1 / p` of the probability per token (geometric mean).

    For the mean probability of several texts, this is the harmonic mean of their perplexities.
    """
    return 1 / probability


class GeneralText(Metric):
    name = "general_text"
    about = "Perplexity of general text"
    cost = "one forward pass over eight short texts"
    reads = (GENERAL_TEXT,)
    columns = (
        Column(
            "general_text_probability",
            answer_probability,
            "probability",
            "probability per token of a general text (geometric mean)",
            sets=(GENERAL_TEXT,),
            shown=False,
        ),
        AggregateColumn(
            "general_text_perplexity",
            perplexity,
            "general text perplexity",
            "perplexity of general text not used in training: 1 / mean probability per token",
            direction="down",
            range=(1.0, None),
            digits=1,
            of=((GENERAL_TEXT, "general_text_probability"),),
        ),
    )

    @classmethod
    def own_rows(cls, config: SimpleNamespace) -> Mapping[str, Sequence[Example]]:
        return {GENERAL_TEXT: general_text()}

    def record(self) -> None:
        self.record_tokens(general_text_probability=lambda _, read: answer_probability(read.logps))
