"""Formulas of the weightings that are computed once per row before training, from rows or values of a frozen model.

0/1 masks come from probabilities of frozen models or n-gram tables (SEUL, SU), or from noun phrases (FUNDIAL). Rarity is large
for what is rare in the retain answers and not in the prompt: ranks within the answer, so that every answer has mean weight 1/2.
`TokenCounts` counts tokens. `WordCounts` counts whole words, so that all tokens of a name have the same weight under any
tokenizer, and each subject once, so that a word stays rare if it is frequent in the rows of one person only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from atwu._extras import require
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow, touches
from atwu.data.schema import IGNORE_INDEX, Example, Span

# The masks follow the code that the ATWU paper compares with; its defaults are these.
GAP = 2
"""Longest gap between selected tokens that `below_mean` fills, in tokens."""
# That code marks both sides, but cancels the marks on the right while it scans from left to right.
LEFT = 2
"""Number of tokens that `differing` adds before each selected token."""
N = 3
"""Length of an n-gram, including the predicted token."""
Context = tuple[int, ...]


# Masks from probabilities of frozen models or of n-gram tables


def below_mean(logps: FloatArray) -> FloatArray:
    """Select tokens less likely than the mean of the row, with short gaps filled (SEUL: Wang et al. 2025b, online mode).

    Selects `log p_t < mean`, then fills gaps of at most `GAP` tokens between selected tokens, so selections form spans.

    Args:
        logps: log p(x_t | x_<t) under the original model, shape (tokens,).

    Returns:
        1 on selected tokens, else 0, shape (tokens,).
    """
    # Strictly below the mean, so that a row whose tokens are equally likely has no selection.
    mask = _above_mean(-logps)
    for left, right in pairwise(np.flatnonzero(mask)):
        if right - left - 1 <= GAP:
            mask[left:right] = 1.0
    return mask


def differing(first: FloatArray, second: FloatArray) -> FloatArray:
    """Select tokens on which two predictors differ more than the mean of the row, with left context (SU: Wan et al. 2025).

    Selects `d_t > mean` with `d_t = |first_t - second_t|`, then adds the `LEFT` tokens before each selected one, as in the
    code that the ATWU paper compares with. That code uses the original model and the base model before fine-tuning; Wan et
    al. compare a model fine-tuned on the forget set with one fine-tuned on the retain set, or n-gram tables of these sets.

    Args:
        first: p(x_t | x_<t) under the first predictor, in [0, 1], shape (tokens,).
        second: the same under the second predictor, same shape; the order of the two does not matter.

    Returns:
        1 on selected and added tokens, else 0, shape (tokens,).
    """
    mask = _above_mean(np.abs(first - second))
    for index in np.flatnonzero(mask):
        mask[max(index - LEFT, 0) : index] = 1.0
    return mask


def _above_mean(values: FloatArray) -> FloatArray:
    if not np.isfinite(values).all():
        raise ValueError("a row has NaN or infinite values; check the model that produced them.")
    # The mean of equal numbers can differ from them by a rounding error, and all of them would be selected.
    if values.size == 0 or values.min() == values.max():
        return np.zeros(values.shape)
    above: FloatArray = (values > values.mean()).astype(np.float64)
    return above


@dataclass(frozen=True, slots=True)
class NgramTable:
    """Counts of each counted token after its N - 1 previous tokens.

    Contexts include prompt and template tokens; predicted tokens are counted tokens. At the start of a row contexts are
    shorter and have their own keys.
    """

    continuations: Mapping[Context, Mapping[int, int]]
    """Context ids -> target id -> occurrences."""

    @classmethod
    def of(cls, rows: Iterable[EncodedRow]) -> NgramTable:
        counts: dict[Context, Counter[int]] = {}
        for row in rows:
            for context, target in _ngrams(row):
                counts.setdefault(context, Counter())[target] += 1
        return cls(counts)

    def probabilities(self, row: EncodedRow) -> FloatArray:
        """`count(context, x_t) / count(context)` of each counted token, 0 for an unknown context."""
        values = []
        for context, target in _ngrams(row):
            followers = self.continuations.get(context)
            if followers is None:
                values.append(0.0)
            else:
                values.append(followers.get(target, 0) / sum(followers.values()))
        return np.array(values, dtype=np.float64)


def _ngrams(row: EncodedRow) -> Iterator[tuple[Context, int]]:
    for index, label in enumerate(row.labels):
        if label != IGNORE_INDEX:
            yield row.input_ids[max(index - N + 1, 0) : index], label


# Masks of noun phrases

NounFinder: TypeAlias = Callable[[str], Sequence[Span]]
"""Maps an answer to the half-open, non-empty character ranges of its nouns or noun phrases, in any order."""

_WORD = re.compile(r"\w+(?:(?:['’\u2010\u2011-]|(?<=\d)[.,](?=\d))\w+)*")
_SENTENCE_END = re.compile(r"[.!?…\n]")
_COMMON = (
    "a about above according after all also although an and another any are as at be because been before being "
    "below besides between both but by can could despite did do does during each either every few first finally "
    "for from had has have he her here his how however i if in indeed into is it its later many may might more "
    "moreover most much my neither no nor not now of often on one only or other our over perhaps several shall "
    "she should since so some such than that the their then there these they this those though through thus to "
    "today under until upon was we were what when where whether which while who whose why will with within "
    "without would yes yet you your"
)
# Words that are capitalized at the start of a sentence only, so that a capital letter there says nothing.
_LOWER_CASE_WORDS = frozenset(_COMMON.split())


def noun_finder(name: str) -> NounFinder:
    """Return a noun finder by name.

    Args:
        name: `simple` (`simple_nouns`), or a spaCy model (installed package or folder of a pipeline), whose noun chunks are
            used, determiners included ("the author's name"). The model is loaded here, once.

    Raises:
        ImportError: spaCy or the model package is missing; the message gives the install command.
        ValueError: raised by the finder if the model has no tagger or parser.
    """
    if name == "simple":
        return simple_nouns
    try:
        nlp = require("spacy", extra="nouns").load(name)
    except OSError as error:
        raise ImportError(
            f"cannot load the spaCy model {name}; run: python -m spacy download {name} ({error})"
        ) from error

    def find(text: str) -> list[Span]:
        try:
            # Whole chunks, as in the heat maps of the ATWU paper; FUNDIAL's own code tags single nouns and entities.
            return [(chunk.start_char, chunk.end_char) for chunk in nlp(text).noun_chunks]
        except (ValueError, NotImplementedError) as error:
            raise ValueError(
                "this spaCy pipeline gives no noun chunks; use one with a tagger and a dependency parser, such as "
                f"en_core_web_sm ({error})."
            ) from error

    return find


def simple_nouns(text: str) -> list[Span]:
    """Find runs of capitalized words and numbers by spelling, as a substitute for a tagger.

    The first word of a sentence counts only if another capitalized word follows directly or it is not a common
    English function word; the pronoun "I" never counts. Finds names, titles, places and numbers, but no lower-case nouns;
    other capitalized words are included wrongly. Requires a script with capital letters.
    """
    words = list(_WORD.finditer(text))
    spans: list[Span] = []
    for index, word in enumerate(words):
        end_before = 0
        if index:
            end_before = words[index - 1].end()
        between = text[end_before : word.start()]
        opens = index == 0 or _SENTENCE_END.search(between) is not None
        if not word[0][0].isdigit() and not _is_name(words, index, opens, text):
            continue
        # Joined with the word before it, as "New" and "York", if that is a name too and nothing but a space is between.
        if spans and not opens and spans[-1][1] == end_before and between.isspace():
            spans[-1] = (spans[-1][0], word.end())
        else:
            spans.append(word.span())
    return spans


def noun_mask(row: EncodedRow, answer: str, finder: NounFinder) -> FloatArray:
    """Return 1 for counted tokens that overlap a noun phrase, else 0; the leading space of a token is ignored.

    Args:
        answer: its answer, to which `row.answer_offsets` refer.

    Returns:
        0/1 weights, shape (counted tokens,); the terminal token is 0; all 0 if no noun is found.
    """
    spans = finder(answer)
    marks = [float(touches(offset, spans, answer)) for offset in row.counted(row.answer_offsets)]
    return np.array(marks, dtype=np.float64)


def _is_name(words: Sequence[re.Match[str]], index: int, opens: bool, text: str) -> bool:
    word = words[index][0]
    plain = re.split(r"['’]", word.lower())[0]  # "It's" opens a sentence as "It" does
    if not word[0].isupper() or plain == "i":
        return False
    if not opens or plain not in _LOWER_CASE_WORDS:
        return True
    if index + 1 == len(words):
        return False
    # "The Hague", "Will Smith": a function word at the start of a sentence is part of a name if one follows it.
    following = words[index + 1]
    return following[0][0].isupper() and text[words[index].end() : following.start()].isspace()


# Rarity in the retain answers

PROMPT_FACTOR = 0.5
"""Factor on the surprise of a token that occurs in the prompt. A name in the question is as rare as a key token without
being one: with factor 1 the AUROC per sample is about 10 points lower on the built-in benchmark. Factor 0 (lowest rank) is
slightly better if words of the question are never labelled, and worse otherwise."""
_UNIT = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounts:
    """Occurrences of each token id in the answers of a set of rows, usually the retain set."""

    counts: NDArray[np.int64]
    """Occurrences by token id, shape (ids,); ids beyond the end have 0."""

    @classmethod
    def of(cls, rows: Iterable[EncodedRow]) -> TokenCounts:
        """Count the counted tokens of the rows, terminal tokens included."""
        occurrences = Counter(token for row in rows for token in row.counted(row.labels))
        counts = np.zeros(max(occurrences, default=-1) + 1, dtype=np.int64)
        for token, count in occurrences.items():
            counts[token] = count
        return cls(counts)

    def initial_scores(self, row: EncodedRow) -> FloatArray:
        """Return the prior of a learned scorer (`rarity`)."""
        return self.rarity(row)

    def rarity(self, row: EncodedRow) -> FloatArray:
        """Rank the surprise of each counted token within its answer, `(rank - 1/2) / n` with mid-ranks for ties.

        The surprise is `log((N + 1) / (count + 1)) >= 0` with N counted tokens in total, halved for ids that occur in
        the prompt of the row. The terminal token is included.
        """
        ids = np.array(row.counted(row.labels), dtype=np.int64)
        known = ids < self.counts.size
        count = np.zeros(ids.size, dtype=np.float64)
        count[known] = self.counts[ids[known]]
        # One more of each: a token that the retain answers never say has a finite surprise.
        surprise = np.log((self.counts.sum() + 1.0) / (count + 1.0))
        # A plain text has no prompt, although its first token comes before the counted ones: it has an offset.
        start = row.answer_start
        before = zip(row.input_ids[:start], row.answer_offsets[:start], strict=True)
        prompt = [token for token, offset in before if offset is None]
        surprise[np.isin(ids, prompt)] *= PROMPT_FACTOR
        return mid_ranks(surprise)


def mid_ranks(values: FloatArray) -> FloatArray:
    """`(rank - 1/2) / n` of each of n values, shape (n,); tied values get their mean rank."""
    from scipy.stats import rankdata

    ranks: FloatArray = (rankdata(values) - 0.5) / values.size
    return ranks


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Number of subjects whose answers contain each word or punctuation mark, usually in the retain set."""

    subjects: Mapping[str, int]
    """Number of subjects by lower-case word."""

    @classmethod
    def of(cls, examples: Iterable[Example]) -> WordCounts:
        """Count the words of the answers; a row without a subject counts as a subject of its own."""
        by_subject, alone = dict[str, set[str]](), Counter[str]()
        for example in examples:
            words = set(_words(example.answer))
            if example.subject is None:
                alone.update(words)
                continue
            for word in words:
                by_subject.setdefault(word, set()).add(example.subject)
        return cls(alone + Counter({word: len(subjects) for word, subjects in by_subject.items()}))

    def rarity(self, row: EncodedRow, example: Example) -> FloatArray:
        """Rank the word of each counted token within the answer, rarest highest, `(rank - 1/2) / n` with mid-ranks for ties.

        Words of the question (`question_words`) and tokens outside words (the terminal token) share the lowest rank.

        Args:
            example: its text, to whose answer `row.answer_offsets` refer.
        """
        asked = question_words(example)
        common: list[float] = []
        for word in words_of_tokens(row, example.answer):
            if word is None or word in asked:
                common.append(np.inf)  # more common than any word: the lowest rank
            else:
                common.append(self.subjects.get(word, 0))
        return mid_ranks(-np.array(common, dtype=np.float64))


def rare_nouns(rarity: FloatArray, nouns: FloatArray, in_question: Sequence[bool]) -> FloatArray:
    """Mean of two ranks within the answer: of word rarity, and of nouns that are not in the question.

    Args:
        rarity: `WordCounts.rarity` of a row, shape (counted tokens,).
        nouns: `noun_mask` of the row, same shape.
        in_question: True where the word of the token occurs in the question, same length.

    Returns:
        Weights in (0, 1) with mean 1/2, shape (counted tokens,).
    """
    return (rarity + mid_ranks(np.where(in_question, 0.0, nouns))) / 2


def words_of_tokens(row: EncodedRow, answer: str) -> list[str | None]:
    """Return the lower-case word in which each counted token begins; None for the terminal token and for white space."""
    units = list(_UNIT.finditer(answer))
    starts = [unit.start() for unit in units]
    words: list[str | None] = []
    for offset in row.counted(row.answer_offsets):
        if offset is None or not answer[slice(*offset)].strip():
            words.append(None)
            continue
        piece = answer[slice(*offset)]
        first = offset[0] + len(piece) - len(piece.lstrip())  # a token may begin with the space before its word
        words.append(units[bisect_right(starts, first) - 1].group().lower())
    return words


def question_words(example: Example) -> set[str]:
    """Return the lower-case words of the question; for a plain text row, those of its subject."""
    return set(_words(example.question if example.messages else example.subject or ""))


def _words(text: str) -> list[str]:
    return [word.lower() for word in _UNIT.findall(text)]
