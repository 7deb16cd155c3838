"""Softmax regression over a toy vocabulary: the retain loss and the log-probabilities of the forget tokens.

A context is a vector of features, a model is one weight per (word, feature). The retain loss is convex in the weights and
has one minimum; log-probabilities are concave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ToyProblem:
    """Retain rows and forget tokens.

    Attributes:
        words: the vocabulary.
        tokens: a name for each forget token, such as "in | lives".
        retain_contexts: distinct contexts of the retain rows, shape (contexts, features).
        retain_shares: share of the retain rows with this context and next word, shape (contexts, words); sums to 1.
        forget_contexts: shape (tokens, features).
        forget_words: the word at each forget token, indices into `words`, shape (tokens,).
        private: True where the context has a feature of its own, shape (tokens,).
        ridge: mu > 0, the retain loss contains mu/2 times the squared norm of the weights.
    """

    words: tuple[str, ...]
    tokens: tuple[str, ...]
    retain_contexts: Array
    retain_shares: Array
    forget_contexts: Array
    forget_words: NDArray[np.intp]
    private: Flags
    ridge: float

    def __post_init__(self) -> None:
        if self.ridge <= 0:
            raise ValueError(f"ridge must be positive, got {self.ridge}; without a ridge the minimum may not exist.")
        if not np.isclose(self.retain_shares.sum(), 1.0):
            raise ValueError(f"retain_shares must sum to 1, they sum to {self.retain_shares.sum():g}.")

    @property
    def n(self) -> int:
        """Number of forget tokens."""
        return len(self.forget_words)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the weights: (words, features)."""
        return len(self.words), self.retain_contexts.shape[1]

    @property
    def oracle(self) -> int:
        """The private tokens as a bit mask, bit t for token t."""
        return int(sum(1 << t for t in np.flatnonzero(self.private)))

    def restrict(self, tokens: list[int]) -> ToyProblem:
        """Return the problem with the same retain rows and only these forget tokens."""
        return replace(
            self,
            tokens=tuple(self.tokens[t] for t in tokens),
            forget_contexts=self.forget_contexts[tokens],
            forget_words=self.forget_words[tokens],
            private=self.private[tokens],
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """Outputs of a model: retain loss, log p of each forget token (tokens,), and all probabilities (rows, words).

    Rows are the retain contexts, then the forget contexts.
    """

    retain_loss: float
    logps: Array
    probabilities: Array


def measure(problem: ToyProblem, weights: Array) -> Measured:
    """Evaluate weights, given flat or in shape (words, features)."""
    matrix = weights.reshape(problem.shape)
    logits = np.concatenate([problem.retain_contexts, problem.forget_contexts]) @ matrix.T
    logits = logits - logits.max(axis=1, keepdims=True)
    logps = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    n_retain = len(problem.retain_contexts)
    nll = -float((problem.retain_shares * logps[:n_retain]).sum())
    return Measured(
        retain_loss=nll + 0.5 * problem.ridge * float((matrix * matrix).sum()),
        logps=logps[n_retain:][np.arange(problem.n), problem.forget_words],
        probabilities=np.exp(logps),
    )


def gradient(problem: ToyProblem, weights: Array, measured: Measured, *, retain_scale: float, slopes: Array) -> Array:
    """Compute the gradient of retain_scale * L_r + sum_t slopes_t * log p_t, flat.

    With slopes = dF/d log p this is the gradient of retain_scale * L_r + F(log p).
    """
    n_retain = len(problem.retain_contexts)
    shares = problem.retain_shares
    retain = retain_scale * (shares.sum(axis=1, keepdims=True) * measured.probabilities[:n_retain] - shares)
    forget = -slopes[:, None] * measured.probabilities[n_retain:]
    forget[np.arange(problem.n), problem.forget_words] += slopes
    matrix = retain.T @ problem.retain_contexts + forget.T @ problem.forget_contexts
    flat: Array = matrix.ravel() + retain_scale * problem.ridge * weights.ravel()
    return flat
