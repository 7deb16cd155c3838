"""How likely a model finds answers: one teacher-forced pass over any answers to the questions of rows.

It measures the language of a model by another one: an unlearned model's answers are read by the original model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.teacher_forced import read_tokens

MAX_TOKENS = 1024
"""Longest question and answer; longer answers are truncated."""


def answer_logps(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Example],
    answers: Sequence[str],
    *,
    system: str | None = None,
    batch_tokens: int = 4096,
) -> FloatArray:
    """Return the mean log-probability per token of answers, without the terminal token.

    Args:
        model: the reading model, in general not the one that gave the answers.
        tokenizer: its tokenizer.
        rows: whose conversations precede the answers; their own answers are not read.
        answers: one per row.
        system: system prompt of conversations without one.
        batch_tokens: tokens per batch; changes speed and memory only.

    Returns:
        Shape (rows,), at most 0; NaN for an answer without any visible character.
    """
    logps = np.full(len(rows), np.nan)
    told = {
        place: Example(row.messages, answer)
        for place, (row, answer) in enumerate(zip(rows, answers, strict=True))
        if answer.strip()
    }
    if not told:
        return logps
    encoded = Encoder(tokenizer, max_length=MAX_TOKENS, system=system).encode_rows(told.values(), what="answers").rows
    for place, tokens in zip(told, read_tokens(model, encoded, entropy=False, batch_tokens=batch_tokens), strict=True):
        logps[place] = float(np.mean(tokens.logps[tokens.content]))
    return logps


@dataclass(frozen=True, slots=True)
class OriginalReader:
    """The original model, which reads what another one wrote."""

    model: Any
    tokenizer: Any
    system: str | None = None
    """System prompt of conversations without one."""

    def read(self, rows: Sequence[Example], answers: Sequence[str]) -> FloatArray:
        """Return `answer_logps` of answers to the questions of rows."""
        return answer_logps(self.model, self.tokenizer, rows, answers, system=self.system)
