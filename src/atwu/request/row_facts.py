"""Mark in forget rows what carries their fact, by evidence of the model that knows them, before anything is trained.

The marks are the rows' `forget_spans` and `asked_span`: everything after this, the weights of tokens, blanks, options and what
counts as stated, reads them from there. Labels of the user stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from atwu.data.answer_units import candidate_spans
from atwu.data.arrays import FloatArray
from atwu.data.encode import Encoder
from atwu.data.fact import asked_part, fact_parts
from atwu.data.passages import has_wording
from atwu.data.schema import Example, Span
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.fact_table import answerer
from atwu.evaluation.generations import GenerationStore, Prompt
from atwu.evaluation.teacher_forced import read_tokens
from atwu.methods.weightings.contrast import TokenLogps, evidence_of, fact_spans
from atwu.methods.weightings.related_names import NameNeighbours
from atwu.request.text_wording import mark_wording, measure_chance_run


@dataclass(frozen=True, slots=True)
class RowFact:
    """What carries the fact of a forget row, as recorded with the request; without the text of the row."""

    parts: tuple[Span, ...]
    asked: Span | None
    alternatives: tuple[str, ...]
    chance_run: int | None = None
    """Set if the fact is the wording of a text (`Example.chance_run`)."""

    @classmethod
    def of(cls, row: Example) -> RowFact:
        return cls(row.forget_spans or (), row.asked_span, row.alternatives, row.chance_run)

    def put_on(self, row: Example) -> Example:
        """Return the row with this fact."""
        spans: tuple[Span, ...] | None = self.parts
        if not self.parts and self.chance_run is None:
            spans = None
        return replace(
            row,
            forget_spans=spans,
            asked_span=self.asked,
            alternatives=self.alternatives,
            chance_run=self.chance_run,
        )


def with_facts(rows: Sequence[Example], facts: Sequence[RowFact]) -> tuple[Example, ...]:
    """Return rows with their recorded facts; without records, as they are."""
    if not facts:
        return tuple(rows)
    return tuple(fact.put_on(row) for row, fact in zip(rows, facts, strict=True))


class ModelReader:
    """Reads rows with a model, teacher-forced, as the evidence of facts needs them.

    Args:
        generator: holds the model and its tokenizer.
        system: system prompt of the questions.
        max_length: longest row in tokens.
    """

    def __init__(self, generator: TransformersGenerator, *, system: str | None, max_length: int) -> None:
        self.generator = generator
        self.encoder = Encoder(generator.tokenizer, max_length=max_length, system=system)
        self.neighbours = NameNeighbours(generator.model, generator.tokenizer)

    def __call__(self, rows: Sequence[Example]) -> list[TokenLogps]:
        encoded = self.encoder.encode_rows(rows, what="evidence").rows
        tokens = read_tokens(self.generator.model, encoded, entropy=False)
        return [TokenLogps(row.logps, row.offsets) for row in tokens]

    def answers(self, prompts: Sequence[Prompt]) -> Sequence[str]:
        """Return what the model says to prompts."""
        return answerer(self.generator, system=self.encoder.system, store=GenerationStore(), progress="texts")(prompts)

    def logps(self, rows: Sequence[Example]) -> list[FloatArray]:
        """Return the log-probabilities of the tokens of each answer's text."""
        return [np.array(read.logps)[[offset is not None for offset in read.offsets]] for read in self(rows)]


def mark_facts(
    rows: Sequence[Example],
    read: ModelReader,
    *,
    unseen: Sequence[Example] = (),
    evidence: Sequence[FloatArray] | None = None,
) -> tuple[Example, ...]:
    """Return rows with the parts of their answers that carry the fact, and the part that the question asks for.

    Labels stay. A plain text, which has no question, is marked by rule if it is short; of a longer one the fact is its wording
    (`text_wording.py`).

    Args:
        read: reads rows with the model that knows them.
        unseen: texts that it never saw; by default those of this project.
        evidence: of all rows, if it was computed before (`evidence_of`).
    """
    unmarked = [place for place, row in enumerate(rows) if not row.forget_spans and not has_wording(row)]
    if evidence is None:
        evidence = evidence_of([rows[place] for place in unmarked], read, read.neighbours)
    else:
        evidence = [evidence[place] for place in unmarked]
    marked = [replace(row, forget_spans=row.forget_spans or None) for row in rows]
    for place, values in zip(unmarked, evidence, strict=True):
        marked[place] = replace(rows[place], forget_spans=fact_spans(rows[place], values) or None)
    if any(has_wording(row) for row in marked):
        marked = list(mark_wording(marked, read, measure_chance_run(read.answers, unseen)))
    return tuple(_with_asked_part(row) for row in marked)


def in_brackets(row: Example) -> str:
    """Return an answer with the parts of its fact in square brackets."""
    text = row.answer
    for start, end in reversed(fact_parts(row)):
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    return text


def _with_asked_part(row: Example) -> Example:
    """Set `asked_span` of a row with several parts by rule.

    What the model finds likely is no evidence of it: the question raises each part that a model learned with it, and the digits
    of a year the most (*What illness does Orla Venn have?*).
    """
    if row.asked_span is not None or not row.messages or len(fact_parts(row)) < 2:
        return row
    return replace(row, asked_span=asked_part(row))


def alternatives_of(row: Example, answers: Sequence[Example]) -> tuple[str, ...]:
    """Return texts of the same type as a row's asked part: what the model answers about related subjects.

    Args:
        answers: the row's question about other subjects, with the model's answers.
    """
    texts = []
    for answer in answers:
        spans = candidate_spans(answer)
        if spans:
            texts.append(answer.answer[spans[0][0] : spans[0][1]])
    return tuple(dict.fromkeys(texts))
