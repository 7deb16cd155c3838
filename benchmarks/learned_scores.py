"""Does ATWU's scorer find the tokens that carry the fact better than the marks it starts from, and does it forget better?

    python benchmarks/learned_scores.py --model tofu --forget forget.jsonl --labels entities.jsonl --retain retain.jsonl

Every variant trains the same number of steps from the same model. The AUROC within a row compares final scores with labels
that no variant sees; the probabilities are those of the labelled words of forget rows, and of the marked words of retain rows.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fact_tokens import by_span, read_labelled

from atwu import UnlearnConfig, UnlearnTrainer, load_rows
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.intervals import Resampler
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.metrics.score_auroc import per_sample_auroc
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.modeling.device import emulates_bfloat16
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.row_facts import ModelReader, mark_facts

DEFAULT = {"method": "satga", "weighting": "key_tokens", "preserve": "kl", "beta": 0.5, "retain_loss": "kl"}
VARIANTS: dict[str, dict[str, Any]] = {
    "marks, with preserve (as the default)": DEFAULT,
    "marks": {**DEFAULT, "preserve": None},
    "atwu, no prior": {"method": "atwu"},
    "atwu, marks as prior": {"method": "atwu", "scorer_prior": "labels"},
    "scorer, marks as prior, with preserve": {**DEFAULT, "weighting": "scorer", "scorer_prior": "labels"},
}
"""Options of each variant."""


def interval(values: Sequence[float | None], bounds: tuple[float, float], digits: int) -> str:
    """Format the mean of values, one per row, with its interval over rows."""
    measured = np.array([value for value in values if value is not None], dtype=float)
    mean = Resampler([str(place) for place in range(len(measured))]).mean(measured)
    low, high = mean.bounded(bounds).interval() or (float("nan"), float("nan"))
    return f"{mean.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def key_probabilities(rows: Sequence[Example], read: Sequence[TokenRow]) -> list[float | None]:
    return [key_token_probability(row, tokens) for row, tokens in zip(rows, read, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model that was fine-tuned on both sets")
    parser.add_argument("--forget", required=True)
    parser.add_argument("--labels", type=Path, required=True, help="forget rows with forget_spans made by hand")
    parser.add_argument("--retain", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    options = parser.parse_args()
    model, tokenizer = open_model(options.model, ModelLoadArgs())
    reader = ModelReader(TransformersGenerator(model.eval(), tokenizer), system=None, max_length=512)
    forget = mark_facts(load_rows(options.forget).rows, reader)
    retain = mark_facts(load_rows(options.retain).rows, reader)
    places = {row.messages: place for place, row in enumerate(forget)}
    labelled, labels = read_labelled(options.labels)
    pairs = [(row, spans) for row, spans in zip(labelled, labels, strict=True) if row.messages in places]
    labelled, labels = [row for row, _ in pairs], [spans for _, spans in pairs]
    marked = [forget[places[row.messages]] for row in labelled]
    encoder = Encoder(tokenizer)

    def encode(rows: Sequence[Example]) -> Sequence[EncodedRow]:
        return encoder.encode_rows(rows, what="rows").rows

    def measure(network: Any, scorer: Any = None) -> tuple[list[TokenRow], str]:
        read = read_tokens(network, encode(marked), scorer=scorer)
        rows = [replace(row, forget_spans=spans) for row, spans in zip(marked, labels, strict=True)]
        kept = read_tokens(network, encode(retain), entropy=False)
        columns = (key_probabilities(rows, read), key_probabilities(retain, kept))
        return read, " | ".join(interval(values, (0.0, 1.0), 3) for values in columns)

    read, columns = measure(model)
    truth = [by_span(tokens, own, [1.0] * len(own)) > 0 for tokens, own in zip(read, labels, strict=True)]
    spans = [row.forget_spans or () for row in marked]
    marks = [by_span(tokens, own, [1.0] * len(own)) for tokens, own in zip(read, spans, strict=True)]

    def area(scores: Sequence[np.ndarray]) -> str:
        return interval([value and 100 * value for value in per_sample_auroc(scores, truth).values], (0.0, 100.0), 1)

    print(
        f"{len(forget)} forget rows, {len(labelled)} of them labelled, {len(retain)} retain rows, {options.steps} steps\n"
    )
    print("| variant | AUROC | labelled words of forget rows | marked words of retain rows |")
    print("|---|---|---|---|")
    print(
        f"| original model; entropy | {area([t.entropy[t.content] for t in read if t.entropy is not None])} | {columns} |"
    )
    del model, reader
    for name in options.variant or VARIANTS:
        network, tokenizer = open_model(options.model, ModelLoadArgs())
        with tempfile.TemporaryDirectory() as folder:
            config = UnlearnConfig(
                **VARIANTS[name],
                output_dir=folder,
                learning_rate=options.learning_rate,
                max_steps=options.steps,
                per_device_train_batch_size=options.batch_size,
                bf16=not emulates_bfloat16(network.device),
                save_strategy="no",
            )
            trainer = UnlearnTrainer(
                network, config, forget_dataset=forget, retain_dataset=retain, processing_class=tokenizer
            )
            trainer.train()
            read, columns = measure(network, trainer.scorer)
        scores = marks
        if trainer.scorer is not None:
            scores = [tokens.scores[tokens.content] for tokens in read if tokens.scores is not None]
        print(f"| {name} | {area(scores)} | {columns} |", flush=True)
        del network, trainer


if __name__ == "__main__":
    main()
