"""Teacher-forced passes: over a set of rows, for all metrics that need no generation, and over answers to their questions.

`OriginalReader` measures the language of a model by another one: an unlearned model's answers are read by the original model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from atwu._progress import progress_bar
from atwu.data.arrays import FloatArray, IntArray
from atwu.data.encode import UNLIMITED, EncodedRow, Encoder
from atwu.data.pairing import collate_rows, length_batches
from atwu.data.schema import Example
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.forward import TokenOutputs, forward_tokens
from atwu.modeling.layers import eval_mode


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Model outputs on the counted tokens of one row; every array has shape (tokens,)."""

    targets: IntArray
    predictions: IntArray
    """Argmax token at the position before each target."""
    logps: FloatArray
    entropy: FloatArray | None
    """Entropy of the next-token distribution, in nats; None if it was not asked for."""
    scores: FloatArray | None
    """Scores of the learned scorer; None without a scorer."""
    labels: IntArray | None
    """1 on labelled tokens; None without labels."""
    offsets: tuple[tuple[int, int] | None, ...]
    """Character range in the answer; None for the terminal token and white space of the template."""
    variance: FloatArray | None = None
    """Variance of the log-probability under the next-token distribution, or None; the mean is `-entropy`."""

    @property
    def content(self) -> NDArray[np.bool_]:
        """True on tokens of the answer text."""
        return np.array([offset is not None for offset in self.offsets], dtype=bool)


def token_batches(
    model: nn.Module, rows: Sequence[EncodedRow], batch_tokens: int
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yield the indices and the tensors of rows of similar length, without token labels, on the model's device."""
    device = next(model.parameters()).device
    for batch in length_batches([len(row.input_ids) for row in rows], batch_tokens):
        # A batch has token labels of all its rows or of none.
        tensors = collate_rows([dataclasses.replace(rows[index], token_labels=None) for index in batch])
        yield batch, {name: tensor.to(device) for name, tensor in tensors.items()}


@torch.no_grad()
def read_tokens(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    *,
    scorer: TokenScorer | None = None,
    entropy: bool = True,
    moments: bool = False,
    batch_tokens: int = 4096,
    progress: str | None = None,
) -> list[TokenRow]:
    """Read every row once; optionally with scores of the scorer, entropy, and variances of log-probabilities (for Min-K%++)."""
    results: list[TokenRow | None] = [None] * len(rows)
    if scorer is not None:
        scorer = scorer.to(next(model.parameters()).device)
    shown = progress_bar(total=len(rows), desc=progress, unit="row", shown=progress is not None, leave=False)
    with eval_mode(model), shown as bar:
        for batch, tensors in token_batches(model, rows, batch_tokens):
            temperature, scores = None, None
            # The moments are of the log-probability, whose mean is minus the entropy.
            if entropy or moments:
                temperature = 1.0
            (out,) = forward_tokens(
                model, [tensors], predictions=True, entropy_temperature=temperature, variance=moments
            )
            assert out.predictions is not None
            if scorer is not None:
                scores = _scores(scorer, out, [rows[index] for index in batch])
            mask = out.mask.cpu().numpy()
            for place, index in enumerate(batch):
                kept = mask[place]
                row = rows[index]
                # The position before a token predicts it.
                where = np.flatnonzero(kept) + 1
                labels = None
                if row.token_labels is not None:
                    labels = np.asarray(row.token_labels, dtype=np.int64)[where]
                entropies, variances, token_scores = (
                    None if values is None else values[place].double().cpu().numpy()[kept]
                    for values in (out.entropy, out.variance, scores)
                )
                results[index] = TokenRow(
                    targets=np.asarray(row.labels, dtype=np.int64)[where],
                    predictions=out.predictions[place].cpu().numpy()[kept],
                    logps=out.logps[place].double().cpu().numpy()[kept],
                    entropy=entropies,
                    scores=token_scores,
                    labels=labels,
                    offsets=tuple(row.answer_offsets[position] for position in where),
                    variance=variances,
                )
            bar.update(len(batch))
    return [row for row in results if row is not None]


def _scores(scorer: TokenScorer, out: TokenOutputs, rows: Sequence[EncodedRow]) -> Tensor:
    offsets = [offset for offset in (scorer.offset(row) for row in rows) if offset is not None]
    offset = None
    if offsets:
        offset = torch.cat(offsets).to(out.logps.device)
    return out.to_grid(scorer(out.hidden(scorer.hidden_position), offset))


MIN_TOKENS = 4
"""Shorter answers are not judged: one rare word is as unlikely as a wrong one."""
UNLIKELY_SHARE = 0.25
"""Share of the least likely tokens that is left out: names and facts that the reading model does not know. With them, a
sentence about an invented person (-5.7) is as unlikely as shuffled words (-4.8 to -8.8); without them, -3.2 against -4.2."""


@dataclass(frozen=True, slots=True)
class OriginalReader:
    """The original model, which reads what another one wrote."""

    model: Any
    tokenizer: Any
    system: str | None = None
    """System prompt of conversations without one."""

    def read(self, rows: Sequence[Example], answers: Sequence[str]) -> FloatArray:
        """Return the mean log-probability of the likelier three quarters of each answer's tokens.

        Args:
            rows: whose conversations precede the answers; their `answer` is not read.
            answers: one per row.

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
        # Questions that a model could answer fit; of a longer answer, what does not fit is left out.
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        encoder = Encoder(self.tokenizer, max_length=positions or UNLIMITED, system=self.system)
        encoded = encoder.encode_rows(told.values(), what="answers").rows
        for place, tokens in zip(told, read_tokens(self.model, encoded, entropy=False), strict=True):
            # The least likely tokens come first, and are left out.
            content = np.sort(tokens.logps[tokens.content])
            if len(content) >= MIN_TOKENS:
                logps[place] = float(np.mean(content[math.ceil(UNLIKELY_SHARE * len(content)) :]))
        return logps
