"""What is left of a model's fluency: answers to open-ended instructions, alone and beside those of the starting model.

Repetitiveness is the n-gram entropy of RWKU (Jin et al. 2024); the win rate is that of the answers' ratings by the judge.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from atwu.data.schema import Example
from atwu.evaluation.columns import INSTRUCTIONS, Column, Percent
from atwu.evaluation.generations import Decoding
from atwu.evaluation.metric import Metric
from atwu.evaluation.metric_settings import MetricSetting
from atwu.evaluation.questions.prompts import question_prompt
from atwu.evaluation.questions.shipped_texts import FAMILY_TEMPLATES
from atwu.judge.verdicts import Pair

OPEN_INSTRUCTIONS = FAMILY_TEMPLATES["instructions"]
"""Forty of different kinds."""
ANSWER_LENGTH_LIMIT = 128
"""New tokens per answer, as in the ATWU paper."""
WIN_RATE = 45.0
"""Below it, generation counts as degraded (the ATWU paper's mark)."""
REPETITIVENESS = 0.95
"""Share of the starting model's repetitiveness below which text counts as degraded (ATWU paper)."""

MIN_LENGTH_SHARE = 0.5
"""Share of the starting model's words below which answers count as degraded; rows to keep of one sentence teach that."""

_WEIGHTS = {2: 2 / 3, 3: 4 / 3}
"""Weight of each n; the terms are then averaged."""
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def repetitiveness(text: str, *, tokenizer: str = "words") -> float:
    """`100 * mean(2/3 H_2, 4/3 H_3)` with H_n the entropy in bits of the text's n-grams.

    Higher is better: 0 for a text that says one thing over and over. Without any repetition a text of T words reaches
    `100 * (log2(T - 1) / 3 + 2 log2(T - 2) / 3)`, 698 for 128 words, so only texts cut at the same length compare; a short
    answer scores low however good it is. The number of a model is the plain mean over texts.

    Args:
        tokenizer: a name from `TOKENIZERS`. Published numbers take NLTK's words, in which contractions come apart.

    Returns:
        The score, >= 0; 0 for an empty text.

    Raises:
        ValueError: `nltk`, and its data are not there.
    """
    tokens = TOKENIZERS[tokenizer](text)
    return 100 * sum(weight * ngram_entropy(tokens, n) for n, weight in _WEIGHTS.items()) / len(_WEIGHTS)


def ngram_entropy(tokens: Sequence[str], n: int) -> float:
    """Entropy in bits of the relative frequencies of a text's n-grams; 0 for fewer than n tokens."""
    counts = Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values()) if len(counts) > 1 else 0.0


def open_words(text: str) -> int:
    """How long an answer is: what white space parts."""
    return len(text.split())


def words(text: str) -> list[str]:
    """Words, with apostrophes and hyphens inside them, and single punctuation marks; no case folding."""
    return _WORD.findall(text)


def nltk_words(text: str) -> list[str]:
    """NLTK's `word_tokenize`: sentences by Punkt, then words as in the Penn Treebank.

    Raises:
        ValueError: Punkt's data are not there.
    """
    from nltk import word_tokenize

    try:
        found: list[str] = word_tokenize(text)
    except LookupError:
        raise ValueError(
            "rep_tokenizer nltk needs NLTK's sentence model, which is not here: python -m nltk.downloader punkt_tab (or set "
            "NLTK_DATA to a folder that has it), or take the tokenizer words."
        ) from None
    return found


TOKENIZERS: Mapping[str, Callable[[str], list[str]]] = {"words": words, "nltk": nltk_words}
"""What repetitiveness counts: our own words, which need nothing, or NLTK's, which published numbers take."""


def _try_tokenizer(name: str) -> None:
    TOKENIZERS[name]("One. Two.")


def win(first: float | None, second: float | None) -> float | None:
    """100 when the second rating is higher, 50 on a tie, 0 when lower; None when either rating is missing.

    A win rate is the plain mean of these over the instructions that have one.
    """
    if first is None or second is None:
        return None
    return 50.0 + 50.0 * ((second > first) - (second < first))


def _fewer_wins(name: str, now: float, before: float | None) -> str | None:
    return f"win rate {now:.1f} is below {WIN_RATE:.0f}: generation degraded." if now < WIN_RATE else None


def _more_repetitive(name: str, now: float, before: float | None) -> str | None:
    if not before or now >= REPETITIVENESS * before:
        return None
    lost = f"{100 * (1 - now / before):.0f} % below the starting model's {before:.0f}"
    return f"repetitiveness {now:.0f} is {lost}: generation degraded."


def _shorter(name: str, now: float, before: float | None) -> str | None:
    if not before or now >= MIN_LENGTH_SHARE * before:
        return None
    return f"open answers have {now:.0f} words where the starting model's have {before:.0f}: generation degraded."


class OpenEnded(Metric):
    """Repetitiveness (n-gram entropy) and length and, given the starting model's result, the win rate against it."""

    name = "open_ended"
    about = "repetitiveness and length; win rate given --original"
    cost = f"40 answers of {ANSWER_LENGTH_LIMIT} tokens, and a comparison of each"
    needs_weights = False
    judged = True
    settings = (
        MetricSetting(
            "rep_tokenizer",
            str,
            "words",
            "Words of the repetitiveness: words (own), or nltk (as published; needs its data punkt_tab).",
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
            "percent of open answers that the judge prefers to the starting model's; 50 is neutral",
            sets=(INSTRUCTIONS,),
            lost=_fewer_wins,
        ),
        Column(
            "repetitiveness",
            repetitiveness,
            "Rep.",
            "repetitiveness: entropy of word pairs and triples in open answers × 100; low is repetitive text",
            sets=(INSTRUCTIONS,),
            range=(0.0, None),
            digits=0,
            lost=_more_repetitive,
        ),
        Column(
            "open_words",
            open_words,
            "words",
            f"words of an open answer, which is cut at {ANSWER_LENGTH_LIMIT} tokens",
            sets=(INSTRUCTIONS,),
            direction="none",
            range=(0.0, None),
            digits=0,
            lost=_shorter,
        ),
    )

    @classmethod
    def own_rows(cls) -> Mapping[str, Sequence[Example]]:
        """The instructions, with no answer to be had."""
        return {INSTRUCTIONS: tuple(Example.from_qa(text, "-") for text in OPEN_INSTRUCTIONS)}

    def prepare(self) -> None:
        """Answer the instructions; longer than other answers, hence apart."""
        rows = self.session.sets[INSTRUCTIONS]
        prompts = [question_prompt(row) for row in rows]
        said = self.session.generate(
            prompts, label="instructions", decoding=Decoding(max_new_tokens=ANSWER_LENGTH_LIMIT)
        )
        self._said = tuple(said[prompt].text for prompt in prompts)
        self.session.texts.setdefault(INSTRUCTIONS, {})["answer"] = self._said
        before = self.session.original.rows.get(INSTRUCTIONS) if self.session.original else None
        self._before = before.texts.get("answer", ()) if before is not None else ()

    def pairs(self) -> Iterable[Pair]:
        """The starting model's answer is shown first, as in the paper."""
        rows = self.session.sets[INSTRUCTIONS] if self._before else ()
        return [
            Pair(instruction=row.question, first=before, second=after)
            for row, before, after in zip(rows, self._before, self._said, strict=False)
        ]

    def record(self) -> None:
        """Record all."""
        tokenizer = self.session.config.rep_tokenizer
        self.record_column(INSTRUCTIONS, "open_words", [float(open_words(text)) for text in self._said])
        self.record_column(
            INSTRUCTIONS, "repetitiveness", [repetitiveness(text, tokenizer=tokenizer) for text in self._said]
        )
        if self._before:
            rated = [self.session.preference(pair) for pair in self.pairs()]
            wins = [win(pair.first, pair.second) for pair in rated]
            self.record_column(INSTRUCTIONS, "win_rate", wins, unscored=sum(win is None for win in wins))
