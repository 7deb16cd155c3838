"""Evidence of a model on which words of an answer carry its fact, and on which words of a text it has by heart.

A model that knows "The capital of France is Paris" predicts "Paris" for France and not for Spain, and predicts "capital"
for both. Every row is read again with other names in place of its own, in question and answer; a question without a name is
read without each of its longest content words in turn. The evidence of a unit of the answer is the largest fall of its
log-probability, in nats, over these changes (perturbation of the subject as in PERMU, Wang et al. 2025, arXiv 2502.19982, here
to find tokens, not to train on). A later phrase of an answer is read with the earlier ones hidden, too, since with them it is
likely for every name.

It needs no labels, but something to replace: the `subject` of a row, a name with capital letters, or words with spaces between
them. A row in Chinese or Japanese without `subject` has none of them, and no evidence; nor has a row that the model does not
know, or of which it says the same whatever name is asked for. The other names are those that the model reads like the given
one (`related_names.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from atwu.data.answer_units import (
    FUNCTION_WORD,
    Unit,
    answer_units,
    candidate_spans,
    fact_candidates,
    phrases,
)
from atwu.data.arrays import FloatArray
from atwu.data.fact import asked_part, gives_away
from atwu.data.fact_blanks import find_mentions, replace_spans
from atwu.data.folded_words import folded_words
from atwu.data.general_rows import general_text
from atwu.data.languages import detect_language, listed_frequency, row_language
from atwu.data.passages import cut_words, word_spans, wording_span
from atwu.data.schema import Example, Message, Span, merged_spans, overlap
from atwu.methods.weightings.related_names import NameNeighbours, mixed_names, replaceable_name

OTHER_NAMES = 6
"""Other names with which a row is read. Their probabilities are averaged, so that one that shares the fact (another city of the
same country) changes little."""
NAMES_PER_PHRASE = 3
"""Names with which a later phrase of an answer is read."""
HIDDEN = "____"
"""What stands for the earlier phrases then. With them, a later fact is likely for every name: the profession tells who has this
pet."""
MAX_WORDS = 4
"""Content words of a question that are left out in turn, at most; the longest ones."""
TOLD_APART = 1.0
"""Evidence in nats from which a model tells subjects apart: a factor of e between the true and the other subjects."""
CARRIES, CARRIES_SURELY = 0.2, 0.5
"""Share of the largest evidence of a row, and evidence in nats, from which a word carries its fact that says little alone."""
CARRIES_ALONE = 0.8
"""The same share for a word that the rule does not suggest, because it is frequent: "red", "father"."""


@dataclass(frozen=True, slots=True)
class TokenLogps:
    """Log-probabilities of the tokens of an answer, with their character ranges; None for a token without text."""

    logps: FloatArray
    offsets: Sequence[Span | None]


def sum_logps(reading: TokenLogps, spans: Sequence[Span | None], *, without: float) -> FloatArray:
    """Sum the log-probabilities of the tokens of each span, shape (spans,).

    Args:
        spans: None for one that is not there, which gets NaN.
        without: value of a span without counted tokens, as in an answer that was cut.
    """
    sums = np.full(len(spans), np.nan)
    for place, span in enumerate(spans):
        if span is None:
            continue
        inside = [index for index, offset in enumerate(reading.offsets) if overlap(offset, span)]
        sums[place] = reading.logps[inside].sum() if inside else without
    return sums


ReadRows = Callable[[Sequence[Example]], Sequence[TokenLogps]]
"""Reads rows with the original model, teacher-forced."""


@dataclass(frozen=True, slots=True)
class _Changed:
    """A row that was changed, and where the units of its answer stand now; None for a unit that was removed."""

    change: str
    row: Example
    spans: tuple[Span | None, ...]


def evidence_of(rows: Sequence[Example], read: ReadRows, neighbours: NameNeighbours) -> list[FloatArray]:
    """Compute the evidence of every unit of the answers, with the shipped names that the model reads like their own.

    Args:
        rows: question-answer rows and plain texts.
        read: reads rows with the original model.
        neighbours: finds the names.

    Returns:
        Arrays of shape (units,), one per row (`contrast`).
    """
    own = [name for row in rows if (name := replaceable_name(row)) is not None]
    nearest = neighbours.nearest(own)
    # A name of these rows is no other name: the model may know the same fact of it.
    texts = " ".join(f"{row.question} {row.answer}" for row in rows).lower()
    # Each name is looked for once in all texts, however many rows could use it.
    listed = {other for kinds in nearest.values() for kind in kinds.values() for other in kind}
    free = {other for other in listed if not find_mentions(texts, other.lower())}
    others: dict[str, list[str]] = {}
    for name, kinds in nearest.items():
        usable = [[other for other in kind if other in free] for kind in kinds.values()]
        others[name] = mixed_names(usable, OTHER_NAMES)
    return contrast(rows, read, names=others)


def contrast(rows: Sequence[Example], read: ReadRows, *, names: Mapping[str, Sequence[str]]) -> list[FloatArray]:
    """Compute the evidence of the units of each answer (`answer_units`), in nats, at least 0.

    Args:
        rows: question-answer rows; a plain text gets zeros.
        read: reads rows with the model that knows them.
        names: name in a question -> other names of its kind, the closest first.

    Returns:
        Arrays of shape (units,), one per row.
    """
    units = [answer_units(row) for row in rows]
    changed = [_change_row(row, own, names) if row.messages else [] for row, own in zip(rows, units, strict=True)]
    original = read(rows)
    # All changed rows in one call, so that the model reads them in full batches.
    readings = iter(read([change.row for several in changed for change in several]))
    evidence = []
    for own, several, reading in zip(units, changed, original, strict=True):
        true = sum_logps(reading, [unit.span for unit in own], without=0.0)
        by_change: dict[str, list[FloatArray]] = {}
        for change in several:
            by_change.setdefault(change.change, []).append(sum_logps(next(readings), change.spans, without=0.0))
        evidence.append(_largest_fall(true, by_change))
    return evidence


def fact_spans(row: Example, evidence: FloatArray) -> tuple[Span, ...]:
    """Return the phrases of an answer that carry its fact.

    Where the model tells subjects apart, these are the phrases that the rule suggests, and frequent words with much evidence.
    Elsewhere the rule decides (`fact_candidates`). Evidence takes only a word away that says little alone and is not asked for:
    of answers that a model was fine-tuned on it knows the last words best ("He was sacked for stealing diesel from the
    depot."), and a word too many costs less than the fact.

    Args:
        evidence: of the row's units, from `contrast`.
    """
    units = answer_units(row)
    usable = [place for place, unit in enumerate(units) if unit.content and not unit.asked and not unit.inflected]
    if not is_told_apart(evidence[usable]):
        return fact_candidates(row)
    largest = float(evidence[usable].max())
    least = min(CARRIES * largest, CARRIES_SURELY)
    carrying = [units[place] for place in usable if evidence[place] >= least]
    asked, language = asked_part(row), row_language(row)
    kept = []
    for span in candidate_spans(row):
        carries = any(span[0] <= unit.start < span[1] for unit in carrying)
        if carries or overlap(asked, span) or gives_away(row.answer[span[0] : span[1]], language):
            kept.append(span)
    alone = [units[place] for place in usable if evidence[place] >= CARRIES_ALONE * largest]
    return merged_spans([*kept, *phrases(row, alone)])


def is_told_apart(evidence: FloatArray) -> bool:
    """Whether the model says units of an answer, of which this is the evidence, for its own subject rather than for others.

    An answer that a model gives whatever name is asked for is made up, or no knowledge about this name.
    """
    return bool(evidence.size) and float(evidence.max()) >= TOLD_APART


def _largest_fall(true: FloatArray, by_change: Mapping[str, Sequence[FloatArray]]) -> FloatArray:
    largest = np.zeros_like(true)
    for logps in by_change.values():
        # The mean probability; a unit that a change removes has no value there and keeps what other changes say.
        known = [np.where(np.isnan(values), true, values) for values in logps]
        mean = np.logaddexp.reduce(np.array(known), axis=0) - math.log(len(known))
        largest = np.maximum(largest, true - mean)
    return largest


def _change_row(row: Example, units: Sequence[Unit], names: Mapping[str, Sequence[str]]) -> list[_Changed]:
    """Return a row with other names in place of its own, and its later phrases alone; without a name, with a word left out."""
    name = replaceable_name(row)
    if name is None or name not in names:
        return [_change_words(word, row, units, word, "") for word in _content_words(row.question)]
    changed = [_change_words("name", row, units, name, other) for other in names[name][:OTHER_NAMES]]
    for phrase in candidate_spans(row)[1:]:
        changed += [_read_alone(row, units, phrase, name, other) for other in names[name][:NAMES_PER_PHRASE]]
    return changed


def _read_alone(row: Example, units: Sequence[Unit], phrase: Span, name: str, other: str) -> _Changed:
    """Hide the phrases before one, and replace the name; only the units of this phrase are read."""
    answer = row.answer
    spans = [unit.span if phrase[0] <= unit.start and unit.end <= phrase[1] else None for unit in units]
    for start, end in reversed(candidate_spans(row)):  # from the end, so that earlier places stay valid
        if end <= phrase[0]:
            answer = answer[:start] + HIDDEN + answer[end:]
            longer = len(HIDDEN) - (end - start)
            spans = [None if span is None else (span[0] + longer, span[1] + longer) for span in spans]
    hidden = row.with_answer(answer)
    moved = [replace(unit, start=span[0], end=span[1]) for unit, span in zip(units, spans, strict=True) if span]
    replaced = _change_words(f"phrase at {phrase[0]}", hidden, moved, name, other)
    places = iter(replaced.spans)
    return replace(replaced, spans=tuple(None if span is None else next(places) for span in spans))


def _content_words(question: str) -> list[str]:
    """Return words of a question to leave out: the longest ones that are no function words."""
    language = detect_language(question)
    words = [
        question[word.start : word.end]
        for word in folded_words(question)
        if not word.unspaced and listed_frequency(word.text, language) < FUNCTION_WORD
    ]
    return sorted(dict.fromkeys(words), key=len, reverse=True)[:MAX_WORDS]


def _change_words(change: str, row: Example, units: Sequence[Unit], words: str, instead: str) -> _Changed:
    """Replace words in question and answer, or remove them; an answer that consists of them stays."""
    question = replace_spans(row.question, _places_of(row.question, words, instead), instead)
    places = _places_of(row.answer, words, instead)
    answer = replace_spans(row.answer, places, instead)
    # Nothing would be left to read.
    if not answer.strip():
        answer, places = row.answer, []
    spans: list[Span | None] = []
    for unit in units:
        if any(overlap(unit.span, place) for place in places):
            spans.append(None)
            continue
        longer = sum(len(instead) - (end - start) for start, end in places if end <= unit.start)
        spans.append((unit.start + longer, unit.end + longer))
    asked = (*row.messages[:-1], Message("user", question))
    return _Changed(change, replace(row.with_answer(answer), messages=asked), tuple(spans))


def _places_of(text: str, words: str, instead: str) -> list[Span]:
    """Return the character ranges of some words; of words to remove with the space behind them, so that no two are left."""
    mentions = find_mentions(text, words)
    if instead:
        return mentions
    return [(start, end + text[end:].startswith(" ")) for start, end in mentions]


def unit_weights(row: Example, evidence: FloatArray) -> tuple[tuple[Span, ...], FloatArray]:
    """Return the units of an answer and their weights in [0, 1].

    A weight is the mean of whether the unit carries the fact and of its evidence as a share of the largest in the row; the
    second is 0 for function words and words of the question.
    """
    spans = row.forget_spans or fact_spans(row, evidence)
    units = answer_units(row)
    # At least the threshold: where a model tells no subjects apart, its largest evidence is noise.
    largest = max(float(evidence.max(initial=0.0)), TOLD_APART)
    weights = np.zeros(len(units))
    for place, unit in enumerate(units):
        marked = any(overlap(unit.span, span) for span in spans)
        share = 0.0
        if unit.content and not unit.asked:
            share = float(evidence[place]) / largest
        weights[place] = (float(marked) + share) / 2
    return tuple(unit.span for unit in units), weights


# Which words of a text a model has by heart. A word of a memorized text is likely behind all that precedes it, and unlikely
# behind a foreign opening and the two words before it, which tell a model that never saw the text as much about grammar. The
# difference is its evidence; words that any model would say there, such as the second word of "as well as", have none: the
# preserve loss keeps them.

KEPT_BEFORE = 2
"""Words of the text before a word that are read with it behind a foreign opening: with none, its grammar would surprise; with
many, a model that memorized the text goes on with it."""
READ_TOGETHER = 2
"""Words of which the evidence comes from one foreign reading; more are faster, and the last one has more of its own text before
it."""
FOREIGN_WORDS = 16
"""Words of a foreign opening: a sentence, so that no text begins where the model reads."""
LEAST_LOGP = -2.3
"""Log-probability below which a word is not known by heart, however much its own text raises it: one in ten."""


def wording_evidence(rows: Sequence[Example], read: ReadRows) -> list[FloatArray]:
    """Compute how much each word of texts is known by heart, in nats, at least 0.

    Args:
        rows: plain texts.
        read: reads rows with the model that knows them.

    Returns:
        Arrays of shape (words,), one per text; 0 for a word that stays unlikely behind its own text.
    """
    foreign = [cut_words(text.answer, FOREIGN_WORDS)[0] for text in general_text()]
    words = [word_spans(row.answer) for row in rows]
    own = read(rows)
    readings = [_foreign_readings(row, spans, foreign) for row, spans in zip(rows, words, strict=True)]
    elsewhere = iter(read([Example((), text) for several in readings for text, _ in several]))
    evidence: list[FloatArray] = []
    for spans, reading, several in zip(words, own, readings, strict=True):
        by_heart = sum_logps(reading, spans, without=np.nan)
        by_grammar = [sum_logps(next(elsewhere), places, without=np.nan) for _, places in several]
        unknown = np.concatenate([np.array([]), *by_grammar])
        # A word without tokens of its own has no log-probability (NaN), hence no evidence.
        gain = np.nan_to_num(np.maximum(by_heart - unknown, 0.0))
        evidence.append(np.where(by_heart >= LEAST_LOGP, gain, 0.0))
    return evidence


def spans_by_heart(row: Example, evidence: FloatArray) -> tuple[Span, ...]:
    """Return the words of a text that a model has by heart, those that follow each other joined; none of its first words.

    Args:
        evidence: of the text, from `wording_evidence`.
    """
    first, _ = wording_span(row)
    joined: list[Span] = []
    before = -1
    for place, (span, nats) in enumerate(zip(word_spans(row.answer), evidence, strict=True)):
        if span[0] < first or nats < TOLD_APART:
            continue
        if joined and before == place - 1:
            joined[-1] = joined[-1][0], span[1]
        else:
            joined.append(span)
        before = place
    return tuple(joined)


def _foreign_readings(
    row: Example, words: Sequence[Span], foreign: Sequence[str]
) -> list[tuple[str, tuple[Span, ...]]]:
    """Return texts of a foreign opening and a few words of a row, with the places of the words to be read there."""
    readings = []
    for number, place in enumerate(range(0, len(words), READ_TOGETHER)):
        wanted = words[place : place + READ_TOGETHER]
        start = words[max(0, place - KEPT_BEFORE)][0]
        opening = f"{foreign[number % len(foreign)]} "
        text = opening + row.answer[start : wanted[-1][1]]
        moved = len(opening) - start
        readings.append((text, tuple((begin + moved, end + moved) for begin, end in wanted)))
    return readings
