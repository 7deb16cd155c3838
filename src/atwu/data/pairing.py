"""Pair retain rows with forget rows and fix the order of each epoch.

Both are pure functions of (seed, epoch, index). A dataset key contains its epoch (`epoch * n + forget_index`), so workers,
processes and resumed runs need no state and produce the same pairs; sharding splits existing keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from atwu._file_reading import read_json
from atwu._files import write_json
from atwu.data.alternates import Alternates
from atwu.data.encode import EncodedRow

# Arbitrary but fixed: they make draws for different purposes independent under one seed.
_PAIRING = 0x7061_6972
_ORDER = 0x6F72_6465
_PREFER = 0x7072_6566
KEPT_TURNS = 0.25
"""Share of the turns that a forgotten row keeps while other rows are known: what is forgotten may come back."""
SAMPLER_NAME = "sampler.json"


def retain_index(*, seed: int, epoch: int, index: int, n_retain: int, draw: int = 0) -> int:
    """Draw one of `n_retain` retain rows for the forget row `index`, uniformly with replacement; `draw` counts its draws."""
    key = (draw,) if draw else ()  # a run with one draw keeps the pairs of earlier versions
    return int(np.random.default_rng([_PAIRING, seed, epoch, index, *key]).integers(n_retain))


def epoch_order(*, seed: int, epoch: int, n: int) -> NDArray[np.int64]:
    """Return the order of the forget rows in one epoch, a permutation of 0 to n - 1."""
    order: NDArray[np.int64] = np.random.default_rng([_ORDER, seed, epoch]).permutation(n).astype(np.int64)
    return order


class EpochSampler(Sampler[int]):
    """Keys of one epoch, `epoch * n + forget_index`, in the order of `epoch_order`.

    After `prefer`, most turns of forgotten rows go to rows that are still known. Turns of the current epoch are state, so that
    a resumed run repeats those that were drawn.
    """

    def __init__(self, n: int, *, seed: int, taken: int | None = None, epochs: int = 1) -> None:
        """Sample `n` forget rows, or only the first `taken` of each epoch's order; call `set_epoch` before each epoch.

        Args:
            epochs: planned number of epochs; a row that takes the turn of another one has the key of a later epoch.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}; the forget set is empty.")
        self.n = n
        self.taken = n if taken is None else taken
        self.seed = seed
        self.epochs = max(epochs, 1)
        self.epoch = 0
        self._known: tuple[int, ...] = ()
        self._forgotten: frozenset[int] = frozenset()
        self._decided, self._replaced = 0, dict[int, int]()
        """Number of turns of this epoch that were drawn, and the keys of those that another row took, by turn."""

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self._decided, self._replaced = epoch, 0, {}

    def prefer(self, known: Collection[int], forgotten: Collection[int]) -> None:
        """From now on, give most turns of forgotten rows to known ones; other rows keep theirs."""
        self._known, self._forgotten = tuple(sorted(known)), frozenset(forgotten)

    def __iter__(self) -> Iterator[int]:
        order = epoch_order(seed=self.seed, epoch=self.epoch, n=self.n)[: self.taken].tolist()
        for turn, index in enumerate(order):
            if turn == self._decided:
                self._decided += 1
                if self._known and index in self._forgotten:
                    self._decide(turn)
            yield self._replaced.get(turn, self.epoch * self.n + index)

    def _decide(self, turn: int) -> None:
        """Decide whether a known row takes the turn of a forgotten one."""
        draws = np.random.default_rng([_PREFER, self.seed, self.epoch, turn])
        if draws.random() >= KEPT_TURNS:
            epoch, place = draws.integers([self.epochs, len(self._known)])
            self._replaced[turn] = int(epoch) * self.n + self._known[int(place)]

    def __len__(self) -> int:
        return self.taken

    def save(self, folder: str) -> None:
        state = {
            "epoch": self.epoch,
            "known": self._known,
            "forgotten": sorted(self._forgotten),
            "decided": self._decided,
            "replaced": list(self._replaced.items()),
        }
        write_json(Path(folder) / SAMPLER_NAME, state)

    def load(self, folder: str) -> None:
        state = read_json(Path(folder) / SAMPLER_NAME)
        self.epoch, self._decided, self._replaced = state["epoch"], state["decided"], dict(state["replaced"])
        self.prefer(state["known"], state["forgotten"])


IndexedRow = tuple[int, EncodedRow]
"""A row with its index in its set."""


@dataclass(frozen=True, slots=True)
class PairedRow:
    """A forget row with the retain rows drawn for it."""

    forget: IndexedRow
    retain: tuple[IndexedRow, ...]
    """Empty without a retain set."""
    alternate: IndexedRow | None = None
    """The same prompt with an alternate answer, which losses such as DPO prefer to the true one; None if no loss uses one."""
    retain_alternate: tuple[IndexedRow, ...] = ()
    """The retain prompts with an alternate answer; empty if no loss uses one."""


class PairedDataset(Dataset[PairedRow]):
    """Forget rows, each with its retain rows of the epoch; indexed by `EpochSampler` keys."""

    def __init__(
        self,
        forget: Sequence[EncodedRow],
        retain: Sequence[EncodedRow] | None,
        seed: int,
        alternates: Alternates | None = None,
        forms: Mapping[str, Sequence[str]] | None = None,
        closest: Sequence[Sequence[int]] | None = None,
        retain_per_forget: int = 1,
        retain_alternates: Alternates | None = None,
    ) -> None:
        """Create the dataset.

        Args:
            retain: None for methods without a retain loss.
            forms: set -> the form of each of its rows (`rows_in_forms`); a forget row then gets a retain row of its own
                form, if there is one. Otherwise the model unlearns a form itself that only forget rows have (SUITE,
                arXiv 2607.09236).
            closest: for each forget row, its most similar retain rows of the same form (`closest_rows`), one of which every
                second draw takes: similar rows are damaged first. The other draws take any row as it is written, as people
                ask. With None or an empty entry, all draws follow `forms`.
        """
        for name, rows in (("forget", forget), ("retain", retain)):
            labelled = sum(row.token_labels is not None for row in rows or ())
            if rows is not None and not rows:
                raise ValueError(f"the {name} set is empty; pass at least one row.")
            if rows is not None and 0 < labelled < len(rows):
                raise ValueError(
                    f"{name} set: {labelled} of {len(rows)} rows have token labels and the others have none; add "
                    "forget_spans to every row ([] for a row without labelled tokens) or to none."
                )
        self.forget = forget
        self.retain = retain
        self.seed = seed
        self.alternates = alternates
        self.retain_alternates = retain_alternates
        self._forms = forms["forget"] if forms and retain is not None else None
        self._closest = closest if retain is not None else None
        self._draws = range(retain_per_forget if retain is not None else 0)
        self._of_form: dict[str, list[int]] = {}
        for index, form in enumerate(forms["retain"] if forms and retain is not None else ()):
            self._of_form.setdefault(form, []).append(index)

    def __len__(self) -> int:
        return len(self.forget)

    def __getitem__(self, key: int) -> PairedRow:
        """Return the pair of key `epoch * n + forget_index`; indices 0 to n - 1 are epoch 0."""
        if key < 0:
            raise IndexError(f"key must be epoch * {len(self)} + forget index, >= 0, got {key}.")
        epoch, index = divmod(int(key), len(self))
        retain = (
            [(row, self.retain[row]) for row in self._retain_indices(epoch, index)] if self.retain is not None else []
        )
        alternate = _alternate(self.alternates, epoch, index)
        against = (_alternate(self.retain_alternates, epoch, row) for row, _ in retain)
        return PairedRow((index, self.forget[index]), tuple(retain), alternate, tuple(filter(None, against)))

    def drawn(self, epochs: int) -> set[int]:
        """Return the indices of the retain rows drawn in the given number of epochs."""
        keys = (divmod(key, len(self)) for key in range(epochs * len(self)))
        return {row for epoch, index in keys for row in self._retain_indices(epoch, index)}

    def _retain_indices(self, epoch: int, index: int) -> Iterator[int]:
        any_row = self._of_form.get(self._forms[index]) if self._forms is not None else None
        closest = self._closest[index] if self._closest is not None else ()
        if closest:
            any_row = self._of_form.get("question", any_row)
        for draw in self._draws:
            assert self.retain is not None
            candidates = closest if closest and (epoch + index + draw) % 2 else any_row
            count = len(self.retain) if candidates is None else len(candidates)
            chosen = retain_index(seed=self.seed, epoch=epoch, index=index, n_retain=count, draw=draw)
            yield chosen if candidates is None else candidates[chosen]

    def __iter__(self) -> Iterator[PairedRow]:
        """Iterate over epoch 0 in file order (without this method, iteration would never stop)."""
        return (self[index] for index in range(len(self)))


def _alternate(alternates: Alternates | None, epoch: int, row: int) -> IndexedRow | None:
    if alternates is None:
        return None
    chosen = alternates.index(epoch=epoch, row=row)
    return chosen, alternates.rows[chosen]
