"""How likely a model finds answers: one teacher-forced pass over any answers to the questions of rows.

It measures the language of a model by another one: an unlearned model's answers are read by the original model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.teacher_forced import read_tokens

MIN_TOKENS = 4
"""Shorter answers are not judged: one rare word is as unlikely as a wrong one."""
UNLIKELY_SHARE = 0.25
"""Share of the least likely tokens that is left out: names and facts that the reading model does not know. With them, a
sentence about an invented person (-5.7) is as unlikely as shuffled words (-4.8 to -8.8); without them, -3.2 against -4.2."""
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
    """Return the mean log-probability of the likelier three quarters of each answer's tokens.

    Args:
        model: the reading model, in general not the one that gave the answers.
        tokenizer: its tokenizer.
        rows: whose conversations precede the answers; their `answer` is not read.
        answers: one per row.
        system: system prompt of conversations without one.
        batch_tokens: tokens per batch; changes speed and memory only.

    Returns:
        Shape (rows,), at most 0; NaN for an answer of fewer than `MIN_TOKENS` tokens, without the terminal token.
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
        content = np.sort(tokens.logps[tokens.content])
        if len(content) >= MIN_TOKENS:
            logps[place] = float(np.mean(content[math.ceil(UNLIKELY_SHARE * len(content)) :]))
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
