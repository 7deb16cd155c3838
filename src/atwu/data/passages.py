"""Sentences and passages of a document, and texts whose fact is their wording.

A document is cut into passages before a model continues it, or is to stop continuing it. Words are counted the same way in
every script: in one without spaces, two letters count as a word.

A plain text of some length without labels is a wording: a model that forgot it can no longer continue it word for word. A
request marks it (`Example.chance_run`) before training, and then its key tokens are the words that the model has by heart.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from atwu.data.languages import WORD, is_unspaced
from atwu.data.schema import Example, Span

FEWEST_TEXT_WORDS = 12
"""Words of a text from which its wording is its fact; a shorter one states a fact: "The capital of France is Paris."."""
OPENING_WORDS = 3
"""First words of a text, which no opening gives away and which are not unlearned."""
LEAST_CHANCE_RUN, MOST_CHANCE_RUN = 4, 7
"""Bounds of `chance_run`. Four common words follow each other in any text ("at the end of"). Common phrases have up to six or
seven words; a model that says more saw the text, or copies."""
MOST_RECITED = 40
"""Words behind an opening that a continuation is compared with, at most; an answer of 64 tokens has about as many."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text cut in two: its beginning, which a model is given, and the rest, which it may recite."""

    opening: str
    rest: str

    @property
    def text(self) -> str:
        return f"{self.opening}{self.rest}"


def has_wording(row: Example) -> bool:
    """Return whether a row is a text without labels that is long enough to be recited."""
    return not row.messages and not row.forget_spans and len(word_spans(row.answer)) >= FEWEST_TEXT_WORDS


def wording_span(row: Example) -> Span:
    """Return the range of a text behind its first words."""
    words = word_spans(row.answer)
    return words[min(OPENING_WORDS, len(words) - 1)][0], words[-1][1]


def cut_text(text: str, share: float) -> Passage | None:
    """Cut a text behind a share of its words, and end it `MOST_RECITED` words later.

    None if one of the two sides would have fewer than `OPENING_WORDS`.
    """
    count = len(word_spans(text))
    shown = max(OPENING_WORDS, round(share * count))
    if count - shown < OPENING_WORDS:
        return None
    opening, rest = cut_words(text, shown)
    if len(word_spans(rest)) > MOST_RECITED:
        rest, _ = cut_words(rest, MOST_RECITED)
    return Passage(opening, rest)


FEWEST_PASSAGE_WORDS = 15
"""Words of a passage, at least; shorter sentences are joined with the next one."""
MOST_WORDS = 60
"""Words of a passage, at most; what follows in a longer sentence is the next passage."""
OPENING_SHARE = 1 / 3
"""Share of a passage that a model is given."""
_SENTENCE_END = re.compile(r"(?<!\b[A-Z])(?<!\bDr)(?<!\bMr)(?<!\bSt)(?<!\bMrs)[.!?][\"'”’)*]*(?=\s|$)|\n|[。！？]")
"""End of a sentence; not behind an initial or a title."""
_CHARACTERS_PER_WORD = 2
"""Letters of a script without spaces that count as one word: most words of Chinese have two."""
_NARROWEST = 40
"""Letters of the longest line of a paragraph that an editor wrapped, at least."""


def passages(text: str) -> list[Passage]:
    """Split a document into passages of whole sentences, each divided behind its first third."""
    divided: list[Passage] = []
    for paragraph in text.split("\n\n"):
        for part in _sized_parts(" ".join(paragraph.split())):
            count = len(word_spans(part))
            # A heading or a line of a list is too short to be recited.
            if count < FEWEST_PASSAGE_WORDS // 2:
                continue
            opening, _ = cut_words(part, max(OPENING_WORDS, round(count * OPENING_SHARE)))
            divided.append(Passage(opening, part[len(opening) :]))
    return divided


def document_passages(text: str) -> list[str]:
    """Split a whole document into passages, none left out, with the line ends of verse as they are.

    A passage ends with a sentence or a paragraph, once it has enough words. Too few words at the end of the document belong to
    the passage before.
    """
    parts: list[str] = []
    gathered = ""
    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\f", "\n\n")):
        for part in _parts_of_paragraph(_unwrapped(paragraph)):
            gathered = f"{gathered}{part}"
            # A heading and its paragraph stay together, and no cut leaves a few words.
            while len(word_spans(gathered)) > MOST_WORDS + FEWEST_PASSAGE_WORDS:
                first, gathered = cut_words(gathered, MOST_WORDS)
                parts.append(first)
            # From two thirds on, the next sentence would most often reach beyond the limit and be cut.
            if len(word_spans(gathered)) >= MOST_WORDS * 2 // 3:
                parts.append(gathered.strip())
                gathered = ""
        if len(word_spans(gathered)) >= FEWEST_PASSAGE_WORDS:
            parts.append(gathered.strip())
            gathered = ""
        elif gathered.strip():
            gathered = f"{gathered.rstrip()}\n\n"
    rest = gathered.strip()
    if rest and parts and len(word_spans(rest)) < FEWEST_PASSAGE_WORDS:
        parts[-1] = f"{parts[-1]} {rest}"
    elif word_spans(rest):
        parts.append(rest)
    return parts


def _unwrapped(paragraph: str) -> str:
    """Join the lines of a paragraph that an editor wrapped: no line has room for the next word. Lines of verse stay."""
    lines = [line.strip() for line in paragraph.strip().split("\n")]
    width = max(len(line) for line in lines)
    if width < _NARROWEST:
        return "\n".join(lines)
    for line, after in itertools.pairwise(lines):
        if len(line) + 1 + len(after.partition(" ")[0]) <= width:
            return "\n".join(lines)
    return " ".join(lines)


def _parts_of_paragraph(paragraph: str) -> Iterator[str]:
    """Yield a paragraph, or of a long one its sentences with the white space behind each; a line of verse is no sentence."""
    if len(word_spans(paragraph)) <= MOST_WORDS:
        yield paragraph
        return
    start = 0
    for end in _SENTENCE_END.finditer(paragraph):
        if end.group() == "\n":
            continue
        stop = end.end()
        while stop < len(paragraph) and paragraph[stop].isspace():
            stop += 1
        yield paragraph[start:stop]
        start = stop
    if start < len(paragraph):
        yield paragraph[start:]


def sentences(text: str) -> list[str]:
    """Split a text into sentences, without those that are cut off at its end."""
    parts: list[str] = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        sentence = text[start : end.end()].strip(" \n*#-")
        if sentence:
            parts.append(sentence)
        start = end.end()
    return parts


def find_sentence_end(text: str) -> Span | None:
    """Return where the first sentence of a text ends: the range of its end mark; None if it does not end."""
    end = _SENTENCE_END.search(text)
    if end is None:
        return None
    return end.span()


def _sized_parts(paragraph: str) -> Iterator[str]:
    """Yield whole sentences, joined up to `FEWEST_PASSAGE_WORDS`; a longer one is cut at `MOST_WORDS`."""
    gathered = ""
    # A line end closes the last sentence, which may have no full stop.
    for sentence in sentences(f"{paragraph}\n"):
        gathered = f"{gathered} {sentence}".strip()
        while len(word_spans(gathered)) > MOST_WORDS:
            first, gathered = cut_words(gathered, MOST_WORDS)
            yield first
        if len(word_spans(gathered)) >= FEWEST_PASSAGE_WORDS:
            yield gathered
            gathered = ""
    if gathered:
        yield gathered


def cut_words(text: str, words: int) -> tuple[str, str]:
    """Cut a text behind a number of words and their punctuation; what follows begins without white space."""
    spans = word_spans(text)
    end = spans[min(words, len(spans)) - 1][1]
    while end < len(text) and not (text[end].isalnum() or text[end].isspace()):
        end += 1
    return text[:end], text[end:].strip()


def word_spans(text: str) -> list[Span]:
    """Return the character ranges of words; in a script without spaces, of pairs of letters."""
    spans: list[Span] = []
    for match in WORD.finditer(text):
        start, end = match.span()
        if not is_unspaced(match.group()):
            spans.append((start, end))
            continue
        spans += [(place, min(place + _CHARACTERS_PER_WORD, end)) for place in range(start, end, _CHARACTERS_PER_WORD)]
    return spans


def wording_of(text: str) -> list[str]:
    """Return the words of a text in lower case, to compare it with others word for word."""
    return [text[start:end].casefold() for start, end in word_spans(text)]


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
    wanted, spoken = _compared(wording), _compared(said)
    exact = 0
    while exact < min(len(wanted), len(spoken)) and wanted[exact] == spoken[exact]:
        exact += 1
    count = max(len(wanted), 1)
    run = _longest_run(wanted, spoken, shown=_compared(opening))
    return Recitation(len(word_spans(wording)), exact / count, _common(wanted, spoken) / count, run, chance_run)


def _compared(text: str) -> list[str]:
    """Return the words of a text in lower case; of scripts without spaces the letters, for a continuation may begin or leave
    out one, and pairs would no longer be the same."""
    words: list[str] = []
    for match in WORD.finditer(text.casefold()):
        if is_unspaced(match.group()):
            words += match.group()
        else:
            words.append(match.group())
    return words


def _longest_run(wanted: Sequence[str], spoken: Sequence[str], *, shown: Sequence[str]) -> int:
    """Return the length of the longest run of words in both, of those that a third text does not have.

    A model that repeats the opening of a refrain says words of the rest, and remembers nothing.
    """
    shown_text = f" {' '.join(shown)} "
    longest = 0
    sizes = (1 / _CHARACTERS_PER_WORD if is_unspaced(word) else 1.0 for word in wanted)
    words_before = [0.0, *itertools.accumulate(sizes)]
    before = [0] * (len(spoken) + 1)
    for place, word in enumerate(wanted, start=1):
        lengths = [0] * (len(spoken) + 1)
        for other, said in enumerate(spoken, start=1):
            if word != said:
                continue
            lengths[other] = before[other - 1] + 1
            start = place - lengths[other]
            run = int(words_before[place] - words_before[start])
            if run > longest and f" {' '.join(wanted[start:place])} " not in shown_text:
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
