"""A whole fine-tuning run from names and paths: targets, retain-only models, auxiliary models."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atwu.benchmarks.sources import load_rows
from atwu.modeling.scratch import scratch_shape, train_tokenizer
from atwu.training.base import TokenTrainer
from atwu.training.config import FinetuneConfig
from atwu.training.finetune import FinetuneTrainer
from atwu.training.launch import FinishedRun, Plan, encode_sets, launch, silent
from atwu.training.model import ModelSource, Say, check_training, checked_tokenizer
from atwu.training.output import OutputFolder

logger = logging.getLogger(__name__)


def run_finetune(
    source: ModelSource,
    config: FinetuneConfig,
    *,
    data: str,
    output: str | Path,
    overwrite: bool = False,
    corpus: Callable[[], list[str]] | None = None,
    say: Say = logger.info,
) -> FinishedRun:
    """Train a model on the answers of `data` and write the result to `output`.

    Args:
        source: a model to continue from, or a shape to build.
        config: the run's settings.
        data: source of the training rows (`load_rows`).
        output: folder to create.
        overwrite: replace a finished run that is there.
        corpus: texts for a new tokenizer; by default the questions and answers of `data`.
        say: receives one line of plain text per stage, in the first process.
    """
    config, say = copy.copy(config), say if config.process_index == 0 else silent
    folder = OutputFolder(output, overwrite=overwrite)
    adapter_bytes = check_training(source, config)
    rows = {"training": load_rows(data)}
    if source.model is None and source.tokenizer is None:
        texts = corpus() if corpus else [text for row in rows["training"].rows for text in (row.question, row.answer)]
        tokenizer = train_tokenizer(texts, vocab_size=scratch_shape(str(source.scratch)).vocab_size)
    else:
        tokenizer = checked_tokenizer(source, folder, config, adapter_bytes=adapter_bytes)
    encoded = encode_sets(rows, tokenizer, config, say)

    def trainer(model: Any, callbacks: list[Any], fingerprint: str) -> TokenTrainer:
        return FinetuneTrainer(
            model, config, train_dataset=encoded["training"], processing_class=tokenizer, callbacks=callbacks
        )

    return launch(Plan("finetune", source, config, folder, rows, tokenizer, trainer, {}, say))
