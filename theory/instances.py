"""Problems of `make theory`: one with four private and four shared words, and random ones.

The forget set has sentences about invented people, such as "Orla lives in Kelbury" and "Tavi works as tanner". Words after a
name or a verb also occur in the retain rows; the place where Orla lives is private: its context has a feature that no retain
row has.
"""

from __future__ import annotations

import numpy as np

from theory.problem import ToyProblem

_WORDS = ("lives", "works", "in", "as", "Kelbury", "Marsk", "Dorne", "glazier", "tanner", "baker")
_CONTEXTS = ("name", "lives", "works", "in", "as")
_VERB, _PREPOSITION = 5, 6  # features that two contexts share
_CLASS = {"lives": _VERB, "works": _VERB, "in": _PREPOSITION, "as": _PREPOSITION}
_SHARED_FEATURES = 7
_RETAIN = {
    "name": {"lives": 12, "works": 9},
    "lives": {"in": 18, "as": 1},
    "works": {"as": 14, "in": 1},
    "in": {"Kelbury": 5, "Marsk": 6, "Dorne": 8},
    "as": {"glazier": 5, "tanner": 6, "baker": 6},
}
# Context, word, strength of the private feature (0: none).
_FORGET = (
    ("in", "Kelbury", 2.0),
    ("in", "Marsk", 2.0),
    ("as", "glazier", 1.6),
    ("as", "tanner", 1.3),
    ("name", "lives", 0.0),
    ("name", "works", 0.0),
    ("lives", "in", 0.0),
    ("works", "as", 0.0),
)


def separated_problem(*, ridge: float = 0.01) -> ToyProblem:
    """Return eight forget tokens, four of them private; forgetting a private one raises the retain loss far less."""
    return _people(_RETAIN, ridge)


def overlapping_problem(*, ridge: float = 0.01) -> ToyProblem:
    """Return the same problem with few retain rows that contain the word after "works", so forgetting it is cheap."""
    return _people(_RETAIN | {"works": {"as": 1, "in": 1, "lives": 1}}, ridge)


def _people(retain: dict[str, dict[str, int]], ridge: float) -> ToyProblem:
    private = [strength > 0 for _, _, strength in _FORGET]
    contexts = np.zeros((len(_CONTEXTS), _SHARED_FEATURES + sum(private)))
    counts = np.zeros((len(_CONTEXTS), len(_WORDS)))
    for row, context in enumerate(_CONTEXTS):
        contexts[row, row] = 1.0
        if context in _CLASS:
            contexts[row, _CLASS[context]] = 0.6
        for word, count in retain[context].items():
            counts[row, _WORDS.index(word)] = count
    forget = np.stack([contexts[_CONTEXTS.index(context)] for context, _, _ in _FORGET])
    for own, t in enumerate(np.flatnonzero(private)):
        forget[t, _SHARED_FEATURES + own] = _FORGET[t][2]
    return ToyProblem(
        words=_WORDS,
        tokens=tuple(f"{word} | {context}" + " + own" * (strength > 0) for context, word, strength in _FORGET),
        retain_contexts=contexts,
        retain_shares=counts / counts.sum(),
        forget_contexts=forget,
        forget_words=np.array([_WORDS.index(word) for _, word, _ in _FORGET], dtype=np.intp),
        private=np.array(private),
        ridge=ridge,
    )


def random_problem(seed: int, *, private: int = 2, shared: int = 2, words: int = 5, ridge: float = 0.02) -> ToyProblem:
    """Return a problem with random contexts and words, with or without separation.

    Args:
        seed: seed of all draws.
        private: number of forget tokens with a feature of their own.
        shared: number of forget tokens whose context and most frequent word occur in the retain rows; at most 4.
        words: size of the vocabulary.
        ridge: as in `ToyProblem`.
    """
    draw = np.random.default_rng([seed, private, shared, words])
    rows, common = 4, 3
    contexts = np.zeros((rows, common + private))
    contexts[:, :common] = 0.7 * draw.normal(size=(rows, common))
    shares = draw.dirichlet(np.full(words, 2.0), size=rows) * draw.dirichlet(np.full(rows, 2.0))[:, None]
    forget = contexts[[*draw.integers(rows, size=private), *range(shared)]].copy()
    forget[np.arange(private), common + np.arange(private)] = draw.uniform(2.0, 4.0, size=private)
    targets = [*draw.integers(words, size=private), *shares[:shared].argmax(axis=1)]
    return ToyProblem(
        words=tuple(f"w{number}" for number in range(words)),
        tokens=tuple(f"private {t}" for t in range(private)) + tuple(f"shared {t}" for t in range(shared)),
        retain_contexts=contexts,
        retain_shares=shares,
        forget_contexts=forget,
        forget_words=np.array(targets, dtype=np.intp),
        private=np.arange(private + shared) < private,
        ridge=ridge,
    )
