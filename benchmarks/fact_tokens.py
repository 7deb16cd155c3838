"""Compare ways to find the tokens that carry a fact with labels made by hand: mean AUROC within a row, in percent.

    python benchmarks/fact_tokens.py --rows tests/data/known_fact_rows.jsonl --model smollm2
    atwu finetune --model smollm2 --data trained.jsonl --epochs 9 --learning-rate 2.5e-4 --batch-size 12 --bf16 --output trained
    python benchmarks/fact_tokens.py --rows tests/data/fact_rows.jsonl --model trained

Rows are questions and answers with `key`, the parts of the answer that carry the fact, or with `forget_spans`. Tokens of the
answer's text are compared: the AUROC of a row is the probability that a token of its key has a higher score than another one.
Intervals resample rows. `trained.jsonl` are the same rows without `key`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from atwu.data.answer_units import answer_units, candidate_spans
from atwu.data.encode import Encoder
from atwu.data.languages import detect_language, listed_frequency
from atwu.data.schema import Example, Span
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.intervals import Resampler
from atwu.evaluation.metrics.score_auroc import per_sample_auroc
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.methods.weightings.contrast import evidence_of, fact_spans
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.row_facts import ModelReader

LOW = 80.0
"""AUROC below which a row counts as one whose key a candidate does not find."""


def read_labelled(path: Path) -> tuple[list[Example], list[tuple[Span, ...]]]:
    rows, labels = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        row = Example.from_qa(record["question"], record["answer"], subject=record.get("subject"))
        spans = record.get("forget_spans")
        if spans is None:
            starts = [(row.answer.rindex(part), part) for part in record["key"]]
            spans = [(start, start + len(part)) for start, part in starts]
        rows.append(row)
        labels.append(tuple((start, end) for start, end in spans))
    return rows, labels


def by_span(read: TokenRow, spans: Sequence[Span], values: Sequence[float]) -> np.ndarray:
    """Return the largest value of the spans that each token of the answer's text overlaps, 0 for none."""
    scores = []
    for offset in read.offsets:
        if offset is None:
            continue
        inside = [
            value for (start, end), value in zip(spans, values, strict=True) if offset[0] < end and start < offset[1]
        ]
        scores.append(max(inside, default=0.0))
    return np.array(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--model", required=True, help="the model that knows the rows")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, labels = read_labelled(options.rows)
    rows, labels = rows[: options.limit], labels[: options.limit]
    model, tokenizer = open_model(options.model, ModelLoadArgs())
    reader = ModelReader(TransformersGenerator(model.eval(), tokenizer), system=None, max_length=512)
    encoder = Encoder(tokenizer)
    asked = read_tokens(model, encoder.encode_rows(rows, what="rows").rows)
    evidence = evidence_of(rows, reader, reader.neighbours)

    def spans_of(choose: Callable[[int], Sequence[Span]]) -> list[np.ndarray]:
        chosen = [choose(place) for place in range(len(rows))]
        return [by_span(read, spans, [1.0] * len(spans)) for read, spans in zip(asked, chosen, strict=True)]

    def units_of(score: Callable[[int], Sequence[float]]) -> list[np.ndarray]:
        return [
            by_span(read, [unit.span for unit in answer_units(row)], score(place))
            for place, (row, read) in enumerate(zip(rows, asked, strict=True))
        ]

    def rarity(place: int) -> list[float]:
        row = rows[place]
        language = detect_language(f"{row.question} {row.answer}")
        return [
            0.0 if unit.asked else 8.0 - listed_frequency(row.answer[unit.start : unit.end].lower(), language)
            for unit in answer_units(row)
        ]

    def marks_and_evidence(place: int) -> list[float]:
        row, values = rows[place], evidence[place]
        spans = fact_spans(row, values)
        largest = max(float(values.max(initial=0.0)), 1.0)
        scores = []
        for unit, value in zip(answer_units(row), values, strict=True):
            marked = any(start < unit.end and unit.start < end for start, end in spans)
            usable = unit.content and not unit.asked
            scores.append(float(marked) + (float(value) / largest if usable else 0.0))
        return scores

    candidates = {
        "rule: values, names and rare words that the question does not say": spans_of(
            lambda place: candidate_spans(rows[place])
        ),
        "frequency of the word in general text, words of the question 0": units_of(rarity),
        "evidence alone": units_of(lambda place: list(evidence[place])),
        "the facts that a request marks (evidence, else the rule)": spans_of(
            lambda place: fact_spans(rows[place], evidence[place])
        ),
        "weighting contrast: these marks plus the evidence": units_of(marks_and_evidence),
        "entropy": [read.entropy[read.content] for read in asked if read.entropy is not None],
        "surprise with the question": [-read.logps[read.content] for read in asked],
    }
    truth = [by_span(read, spans, [1.0] * len(spans)) for read, spans in zip(asked, labels, strict=True)]
    print(f"{options.rows.name}, {len(rows)} rows, {options.model}\n")
    print(f"| score | AUROC | 95 % interval | rows below {LOW / 100:g} |")
    print("|---|---|---|---|")
    for title, scores in candidates.items():
        values = per_sample_auroc(scores, [mark > 0 for mark in truth]).values
        measured = 100 * np.asarray(values, dtype=float)
        measured = measured[~np.isnan(measured)]
        mean = Resampler([str(place) for place in range(len(measured))]).mean(measured)
        low, high = mean.bounded((0.0, 100.0)).interval() or (float("nan"), float("nan"))
        print(f"| {title} | {mean.value:.1f} | [{low:.1f}, {high:.1f}] | {int((measured < LOW).sum())} |")


if __name__ == "__main__":
    main()
