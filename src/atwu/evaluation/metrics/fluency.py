"""Whether the model still writes text: gibberish, refusals, perplexity of general text, answers to open-ended instructions.

An answer is gibberish if it is empty, broken or a loop, which rules tell. Its likelihood under the measured model says nothing:
a damaged model finds its gibberish likely. The perplexity of shipped general text shows damage to language modeling.

Repetitiveness is the n-gram entropy of RWKU (Jin et al. 2024). The win rate against the original model compares ratings by the
judge.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace

from atwu.benchmarks.sources import load_rows
from atwu.data.arrays import FloatArray
from atwu.data.general_rows import general_text
from atwu.data.schema import Example
from atwu.evaluation.columns import (
    FORGET_OR_RETAIN,
    GENERAL_TEXT,
    INSTRUCTIONS,
    AggregateColumn,
    Column,
    Percent,
    apply_known,
)
from atwu.evaluation.facts.readable import is_broken
from atwu.evaluation.generations import Decoding, Prompt
from atwu.evaluation.metric import Metric, MetricSetting
from atwu.evaluation.metrics.memorization import answer_probability
from atwu.evaluation.questions import FAMILY_TEMPLATES
from atwu.judge.rules.refusals import is_broken_refusal, is_refusal
from atwu.judge.verdicts import Pair


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
            is_broken,
            "gibberish",
            "share of answers that are empty, broken or loop",
            direction="down",
        ),
        Column(
            "broken_refusal",
            is_broken_refusal,
            "broken off",
            "share of answers that begin a sentence and break it off to refuse",
            direction="down",
        ),
        Column("refusal", is_refusal, "refusals", "share of answers that decline to answer", direction="none"),
    )

    def record(self) -> None:
        self.record_answers(
            broken_refusal=lambda row, text: is_broken_refusal(text, row.question),
            refusal=lambda row, text: is_refusal(text, row.question),
            gibberish=lambda _, text: is_broken(text),
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
        self.record_tokens(general_text_probability=lambda _, tokens: answer_probability(tokens.logps))


OPEN_INSTRUCTIONS = FAMILY_TEMPLATES["instructions"]
"""Forty instructions of different kinds."""
ANSWER_LENGTH_LIMIT = 128
"""Maximum number of new tokens per answer, as in the ATWU paper."""
WIN_RATE = 45.0
"""A lower win rate counts as degraded (threshold of the ATWU paper)."""
REPETITIVENESS = 0.95
"""Share of the original model's repetitiveness score below which generation counts as degraded (ATWU paper)."""

MIN_LENGTH_SHARE = 0.5
"""Share of the original model's answer length below which generation counts as degraded."""

_WEIGHTS = {2: 2 / 3, 3: 4 / 3}
"""Weight of each n; the weighted terms are averaged."""
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def repetitiveness(text: str, *, tokenizer: str = "words") -> float:
    """Repetitiveness score `100 * mean(2/3 H_2, 4/3 H_3)` with H_n the entropy in bits of the text's n-grams.

    Higher is better; 0 for a text that repeats one token. A text of T words without repetition reaches
    `100 * (log2(T - 1) / 3 + 2 log2(T - 2) / 3)`, that is 698 for 128 words. Only texts cut at the same length are
    comparable:
    a short answer scores low however good it is. The value of a model is the mean over texts.

    Args:
        tokenizer: A name from `TOKENIZERS`. Published values use NLTK's words, which split contractions.
    """
    tokens = TOKENIZERS[tokenizer](text)
    return 100 * sum(weight * ngram_entropy(tokens, n) for n, weight in _WEIGHTS.items()) / len(_WEIGHTS)


def ngram_entropy(tokens: Sequence[str], n: int) -> float:
    """Entropy in bits of the relative frequencies of a text's n-grams; 0 for fewer than n tokens."""
    counts = Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))
    if len(counts) < 2:
        return 0.0  # and not -0.0
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values())


def open_words(text: str) -> int:
    return len(text.split())


def words(text: str) -> list[str]:
    """Split into words (with inner apostrophes and hyphens) and single punctuation marks; case is kept."""
    return _WORD.findall(text)


def nltk_words(text: str) -> list[str]:
    """Split with NLTK's `word_tokenize`: Punkt sentences, Penn Treebank words."""
    from nltk import word_tokenize

    try:
        tokens: list[str] = word_tokenize(text)
    except LookupError:
        raise ValueError(
            "rep_tokenizer nltk needs NLTK's sentence model: run python -m nltk.downloader punkt_tab (or set "
            "NLTK_DATA to a folder that has it), or use the tokenizer words."
        ) from None
    return tokens


TOKENIZERS: Mapping[str, Callable[[str], list[str]]] = {"words": words, "nltk": nltk_words}
"""Tokenizers of the repetitiveness score: our own, without dependencies, or NLTK's, as in published values."""


def _try_tokenizer(name: str) -> None:
    TOKENIZERS[name]("One. Two.")  # may lack its data


def win(first: float | None, second: float | None) -> float | None:
    """Return 100 if the second rating is higher, 50 for a tie, 0 if it is lower; None if a rating is missing.

    The win rate is the mean over the instructions that have a value.
    """
    if first is None or second is None:
        return None
    return 50.0 + 50.0 * ((second > first) - (second < first))


def _fewer_wins(name: str, now: float, before: float | None) -> str | None:
    if now >= WIN_RATE:
        return None
    return f"win rate {now:.1f} is below {WIN_RATE:.0f}: generation is degraded."


def _more_repetitive(name: str, now: float, before: float | None) -> str | None:
    if not before or now >= REPETITIVENESS * before:
        return None
    lost = f"{100 * (1 - now / before):.0f} % below the original model's {before:.0f}"
    return f"repetitiveness {now:.0f} is {lost}: generation is degraded (lower means more repetitive)."


def _shorter(name: str, now: float, before: float | None) -> str | None:
    if not before or now >= MIN_LENGTH_SHARE * before:
        return None
    return (
        f"answers to open-ended instructions have {now:.0f} words, the original model's {before:.0f}: "
        "generation is degraded."
    )


class OpenEnded(Metric):
    name = "open_ended"
    about = "Generation quality on open-ended instructions: repetitiveness and length; with --original also win rate"
    cost = (
        f"40 answers (or one per instruction) of {ANSWER_LENGTH_LIMIT} tokens, and one judge call each for the win rate"
    )
    needs_weights = False
    judged = True
    settings = (
        MetricSetting(
            "instructions",
            str,
            None,
            "Rows whose questions are the open-ended instructions, such as AlpacaEval's alpaca_eval.json (as published). "
            "Default: 40 built-in ones.",
            compared=False,  # their rows are
        ),
        MetricSetting(
            "rep_tokenizer",
            str,
            "words",
            "Tokenizer of the repetitiveness score: words (built in), or nltk (as published; needs its data punkt_tab).",
            choices=tuple(TOKENIZERS),
            check=_try_tokenizer,
        ),
    )
    needs_reference = ("original", "the win rate")
    columns = (
        Percent(
            "win_rate",
            win,
            "win rate",
            "percentage of open-ended answers that the judge prefers to the original model's; 50 is a tie",
            sets=(INSTRUCTIONS,),
            lost=_fewer_wins,
        ),
        Column(
            "repetitiveness",
            repetitiveness,
            "Rep.",
            "repetitiveness: 100 × weighted entropy of word bigrams and trigrams in open-ended answers; lower is more "
            "repetitive (Jin et al. 2024)",
            sets=(INSTRUCTIONS,),
            range=(0.0, None),
            digits=0,
            lost=_more_repetitive,
        ),
        Column(
            "open_words",
            open_words,
            "words",
            f"words per open-ended answer (at most {ANSWER_LENGTH_LIMIT} tokens)",
            sets=(INSTRUCTIONS,),
            direction="none",
            range=(0.0, None),
            digits=0,
            lost=_shorter,
        ),
    )

    @classmethod
    def own_rows(cls, config: SimpleNamespace) -> Mapping[str, Sequence[Example]]:
        """Return the instructions; the reference answer of the built-in ones is a placeholder."""
        if config.instructions is not None:
            return {INSTRUCTIONS: load_rows(config.instructions).rows}
        return {INSTRUCTIONS: tuple(Example.from_qa(text, "-") for text in OPEN_INSTRUCTIONS)}

    def prepare(self) -> None:
        rows = self.session.sets[INSTRUCTIONS]
        prompts = [Prompt(row.messages) for row in rows]
        answers = self.session.generate(
            prompts, label="instructions", decoding=Decoding(max_new_tokens=ANSWER_LENGTH_LIMIT)
        )
        self._answers = tuple(answers[prompt] for prompt in prompts)
        self.session.rows[INSTRUCTIONS].texts["answer"] = tuple(text or "" for text in self._answers)
        self._before: Sequence[str] = ()
        original = self.session.original
        if original is not None and INSTRUCTIONS in original.rows:
            self._before = original.rows[INSTRUCTIONS].texts.get("answer", ())

    def pairs(self) -> Iterable[Pair | None]:
        """Pair answers; the original model's answer is shown first, as in the paper."""
        if not self._before:
            return []
        questions = [row.question for row in self.session.sets[INSTRUCTIONS]]
        # Not asked in both orders, as in the paper: a judge's liking for one place stays in the number.
        return apply_known(Pair, questions, self._before, self._answers)

    def record(self) -> None:
        tokenizer = self.session.config.rep_tokenizer
        self.record_column(INSTRUCTIONS, "open_words", apply_known(open_words, self._answers))
        scores = apply_known(partial(repetitiveness, tokenizer=tokenizer), self._answers)
        self.record_column(INSTRUCTIONS, "repetitiveness", scores)
        # Ratings compare with the answers of the original model, which its result holds.
        if self._before:
            ratings = [self.session.preference(pair) for pair in self.pairs()]
            wins = [win(rating.first, rating.second) for rating in ratings]
            self.record_column(INSTRUCTIONS, "win_rate", wins, unscored=wins.count(None))
