"""`evaluate`: every metric of this package on a model and its forget and retain rows.

Works on any checkpoint, whoever made it. One teacher-forced pass serves extraction strength, exact memorization,
probability and token scores; one greedy generation serves ROUGE.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from atwu._files import versions
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation import induced
from atwu.evaluation.extraction import exact_memorization, extraction_strength
from atwu.evaluation.generate import generate
from atwu.evaluation.likelihood import answer_probability
from atwu.evaluation.overlap import rouge_l_recall
from atwu.evaluation.result import Direction, EvalResult, MetricValue
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.evaluation.token_scores import per_sample_auroc
from atwu.modeling.fingerprint import model_fingerprint
from atwu.weighting.scorer import TokenScorer

_PER_ROW: Mapping[str, Callable[[TokenRow], float | None]] = {
    "extraction_strength": lambda row: _strength(row, floor=False),
    "extraction_strength_floored": lambda row: _strength(row, floor=True),
    "exact_memorization": lambda row: exact_memorization(row.predictions[row.content], row.targets[row.content]),
    "probability": lambda row: answer_probability(row.logps) if row.logps.size else None,
}


def evaluate(
    model: Any,
    tokenizer: Any,
    *,
    forget: Sequence[Example] = (),
    retain: Sequence[Example] = (),
    scorer: TokenScorer | None = None,
    rouge: bool = True,
    max_length: int = 512,
    max_new_tokens: int = 64,
    batch_tokens: int = 4096,
    progress: bool = True,
    name: str = "model",
) -> EvalResult:
    """Measure a model on rows.

    Args:
        model: causal language model, on its device.
        tokenizer: its fast tokenizer.
        forget: rows whose knowledge should be gone; every metric is better when lower, token-score AUROC excepted.
        retain: rows whose knowledge should be there; every metric is better when higher.
        scorer: the learned scorer of an unlearned model, for its AUROC.
        rouge: also generate answers greedily and compute ROUGE-L recall (the slow part).
        max_length: rows are cut to this many tokens, with a warning.
        max_new_tokens: cap on generated tokens.
        batch_tokens: tokens per forward pass.
        progress: show progress bars.
        name: how the result calls the model.

    Raises:
        ValueError: no rows at all.
    """
    given: dict[str, tuple[Sequence[Example], Direction]] = {"forget": (forget, "down"), "retain": (retain, "up")}
    given = {split: pair for split, pair in given.items() if pair[0]}
    if not given:
        raise ValueError("nothing to evaluate: give forget rows, retain rows or both.")
    start = time.perf_counter()
    sets: dict[str, dict[str, MetricValue]] = {}
    warnings: list[str] = []
    encoder = Encoder(tokenizer, max_length=max_length)
    for split, (examples, direction) in given.items():
        encoded = encoder.encode_rows(examples, what=split)
        warnings += encoded.warnings
        rows = read_tokens(
            model,
            encoded.rows,
            scorer=scorer,
            batch_tokens=batch_tokens,
            progress=f"read {split}" if progress else None,
        )
        values = {metric: _summary([measure(row) for row in rows], direction) for metric, measure in _PER_ROW.items()}
        if rouge:
            recalls = _rouge(model, tokenizer, examples, encoded.rows, max_new_tokens, batch_tokens, progress)
            values["rouge_l_recall"] = _summary(recalls, direction)
        sets[split] = values | _aurocs(rows)
    return EvalResult(
        model=name,
        fingerprint=model_fingerprint(model),
        sets=sets,
        rows={split: len(examples) for split, (examples, _) in given.items()},
        settings={"max_length": max_length, "max_new_tokens": max_new_tokens if rouge else None},
        versions=versions(),
        seconds=round(time.perf_counter() - start, 3),
        warnings=tuple(warnings),
    )


def _strength(row: TokenRow, *, floor: bool) -> float | None:
    content = row.content
    return extraction_strength(row.predictions[content], row.targets[content], floor=floor) if content.any() else None


def _summary(values: Sequence[float | None], direction: Direction) -> MetricValue:
    kept = np.array([value for value in values if value is not None], dtype=float)
    return MetricValue(
        value=float(kept.mean()) if kept.size else None,
        n=int(kept.size),
        direction=direction,
        std=float(kept.std()) if kept.size else None,
        skipped=len(values) - int(kept.size),
    )


def _aurocs(rows: Sequence[TokenRow]) -> dict[str, MetricValue]:
    labelled = [row for row in rows if row.labels is not None]
    if not labelled:
        return {}
    results = {}
    for name in induced.available(labelled):
        if name == "labels":
            continue
        scores = [induced.SCORES[name](row)[row.content] for row in labelled]
        summary = per_sample_auroc(scores, [row.labels[row.content] for row in labelled if row.labels is not None])
        results[f"auroc_{name}"] = MetricValue(
            value=summary.mean,
            n=summary.n,
            direction="none" if name != "scorer" else "up",
            std=summary.std,
            skipped=summary.skipped + len(rows) - len(labelled),
        )
    return results


def _rouge(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    encoded: Sequence[EncodedRow],
    max_new_tokens: int,
    batch_tokens: int,
    progress: bool,
) -> list[float | None]:
    """ROUGE-L recall per row; None for text rows, which have no prompt to continue."""
    asked = [index for index, row in enumerate(encoded) if examples[index].messages]
    outputs = generate(
        model,
        tokenizer,
        [encoded[index].prompt_ids for index in asked],
        max_new_tokens=max_new_tokens,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    recalls: list[float | None] = [None] * len(encoded)
    for index, ids in zip(asked, outputs, strict=True):
        recalls[index] = rouge_l_recall(examples[index].answer, tokenizer.decode(ids, skip_special_tokens=True).strip())
    return recalls
