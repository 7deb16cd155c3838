"""Pair retain rows with forget rows, fix the order of each epoch, and pad pairs into batches.

Pairs and order are pure functions of (seed, epoch, index). A dataset key contains its epoch (`epoch * n + forget_index`), so
workers, processes and resumed runs need no state and produce the same pairs; sharding splits existing keys. Automatic runs draw
some rows by what training has measured; these draws are decided by the sampler, whose state is part of a checkpoint.

Batches have the names of transformers. Attention masks follow from row lengths, not from the pad id: the pad token may equal
the end token, which is trained.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from atwu._file_reading import read_json
from atwu._files import write_json
from atwu.data.alternates import Alternates
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX

# Arbitrary but fixed: they make draws for different purposes independent under one seed.
_PAIRING = 0x7061_6972
_ORDER = 0x6F72_6465
_PREFER = 0x7072_6566
KEPT_TURNS = 0.25
"""Smallest share of the turns that a forgotten row keeps while other rows are known: what is forgotten may come back. It keeps
more where few are known, so that these are drawn about once in a step: a step of copies of one row damages other answers."""
SAMPLER_NAME = "sampler.json"


def retain_index(*, seed: int, epoch: int, index: int, n_retain: int, draw: int = 0) -> int:
    """Draw one of `n_retain` retain rows for the forget row `index`, uniformly with replacement; `draw` counts its draws."""
    key = [_PAIRING, seed, epoch, index]
    # The first draw is keyed without its number: recorded runs drew once.
    if draw:
        key.append(draw)
    return int(np.random.default_rng(key).integers(n_retain))


def epoch_order(*, seed: int, epoch: int, n: int) -> NDArray[np.int64]:
    """Return the order of the forget rows in one epoch, a permutation of 0 to n - 1."""
    order: NDArray[np.int64] = np.random.default_rng([_ORDER, seed, epoch]).permutation(n).astype(np.int64)
    return order


Draw = int | tuple[int, tuple[int, ...]]
"""A key, `epoch * n + forget_index`, which determines the retain rows; or a key with the indices of its retain rows."""


RetainDraw = tuple[int, Collection[int]]
"""A drawn retain row, and the rows among which it was drawn."""


class EpochSampler(Sampler[Draw]):
    """Draws of one epoch, with the forget rows in the order of `epoch_order`.

    After `prefer`, most turns of forgotten rows go to rows that are still known. After `observe`, most draws of retain rows are
    damaged or new ones. Decided turns of the current epoch are state, so that a resumed run repeats them.
    """

    def __init__(
        self,
        n: int,
        *,
        seed: int,
        taken: int | None = None,
        epochs: int = 1,
        per_step: int = 8,
        pairs: PairedDataset | None = None,
        waiting: int = 0,
    ) -> None:
        """Sample `n` forget rows, or only the first `taken` of each epoch's order; call `set_epoch` before each epoch.

        Args:
            waiting: rows at the end without a turn of their own; they take turns of forgotten rows once they are preferred.
            epochs: planned number of epochs; a row that takes the turn of another one has the key of a later epoch.
            per_step: forget rows of an optimizer step.
            pairs: the dataset that is sampled, if it has retain rows; without it, `observe` has no effect.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}; the forget set is empty.")
        self.n = n
        self.served = n - waiting
        self.taken = self.served
        if taken is not None:
            self.taken = taken
        self.seed = seed
        self.epochs = max(epochs, 1)
        self.per_step = per_step
        self.pairs = pairs
        self.epoch = 0
        self._known: tuple[int, ...] = ()
        self._forgotten: frozenset[int] = frozenset()
        self._losses: dict[int, float] = {}
        """Last loss of each retain row that was trained on."""
        self._decided, self._draws = 0, dict[int, Draw]()
        """Number of turns of this epoch that were decided, and the draws that are not the turn's own key, by turn."""

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self._decided, self._draws = epoch, 0, {}

    def prefer(self, known: Collection[int], forgotten: Collection[int]) -> None:
        """From now on, give most turns of forgotten rows to known ones; other rows keep theirs."""
        self._known, self._forgotten = tuple(sorted(known)), frozenset(forgotten)

    def prefer_also(self, rows: Collection[int]) -> None:
        """Count further rows as known from now on."""
        self.prefer({*self._known, *rows}, self._forgotten.difference(rows))

    def observe(self, losses: Mapping[int, float]) -> None:
        """Note the last loss of retain rows; they are drawn in proportion to it, and new rows as if theirs were average."""
        # A divergence of equal distributions may be rounded to a negative number.
        self._losses.update((row, max(loss, 0.0)) for row, loss in losses.items())

    @functools.cached_property
    def _planned(self) -> frozenset[int]:
        """Retain rows drawn in the planned epochs; values of the original model are known for these only."""
        if self.pairs is None:
            return frozenset()
        return frozenset(self.pairs.drawn(self.epochs))

    def __iter__(self) -> Iterator[Draw]:
        order = epoch_order(seed=self.seed, epoch=self.epoch, n=self.served)[: self.taken].tolist()
        for turn, index in enumerate(order):
            # A resumed run begins the epoch again; turns that were decided before are not decided anew.
            if turn == self._decided:
                self._decided += 1
                self._decide(turn, index)
            yield self._draws.get(turn, self.epoch * self.n + index)

    def _decide(self, turn: int, index: int) -> None:
        """Decide whether a known row takes the turn of a forgotten one, and which retain rows it gets."""
        generator = np.random.default_rng([_PREFER, self.seed, self.epoch, turn])
        key = self.epoch * self.n + index
        share = min(1 - KEPT_TURNS, len(self._known) / self.per_step)
        if index in self._forgotten and generator.random() < share:
            epoch, place = generator.integers([self.epochs, len(self._known)])
            key = self._draws[turn] = int(epoch) * self.n + self._known[int(place)]
        if self._losses and self.pairs is not None:
            self._draws[turn] = key, tuple(self._damaged(*draw, generator) for draw in self.pairs.retain_draws(key))

    def _damaged(self, row: int, among: Collection[int], generator: np.random.Generator) -> int:
        """Return one of the rows among which a row was drawn, in proportion to their losses; that row if none has one."""
        rows = [other for other in among if other in self._planned]
        noted = [self._losses[other] for other in rows if other in self._losses]
        if not sum(noted):
            return row
        losses = np.array([self._losses.get(other, sum(noted) / len(noted)) for other in rows])
        return rows[int(generator.choice(len(rows), p=losses / losses.sum()))]

    def __len__(self) -> int:
        return self.taken

    def save(self, folder: str) -> None:
        state = {
            "epoch": self.epoch,
            "known": self._known,
            "forgotten": sorted(self._forgotten),
            "losses": list(self._losses.items()),
            "decided": self._decided,
            "draws": list(self._draws.items()),
        }
        write_json(Path(folder) / SAMPLER_NAME, state)

    def load(self, folder: str) -> None:
        state = read_json(Path(folder) / SAMPLER_NAME)
        self.epoch, self._decided, self._losses = state["epoch"], state["decided"], dict(state["losses"])
        self._draws = {}
        for turn, draw in state["draws"]:
            # JSON has lists in place of tuples.
            if isinstance(draw, list):
                draw = (draw[0], tuple(draw[1]))
            self._draws[turn] = draw
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
    """Forget rows, each with its retain rows of the epoch; indexed by the draws of an `EpochSampler`."""

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
        waiting: int = 0,
    ) -> None:
        """Create the dataset.

        Args:
            waiting: forget rows at the end that an `EpochSampler` gives no turn of their own.
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
        self.waiting = waiting
        self.retain = retain
        self.seed = seed
        self.alternates = alternates
        self.retain_alternates = retain_alternates
        self._forms: Sequence[str] | None = None
        self._closest = closest
        self._retain_per_forget = retain_per_forget
        self._of_form: dict[str, list[int]] = {}
        if forms and retain is not None:
            self._forms = forms["forget"]
            for index, form in enumerate(forms["retain"]):
                self._of_form.setdefault(form, []).append(index)

    def __len__(self) -> int:
        return len(self.forget)

    def __getitem__(self, draw: Draw) -> PairedRow:
        """Return the pair of a draw; the keys 0 to n - 1 are epoch 0."""
        rows: tuple[int, ...] | None = None
        if isinstance(draw, tuple):
            key, rows = draw
        else:
            key = int(draw)
        if key < 0:
            raise IndexError(f"key must be epoch * {len(self)} + forget index, >= 0, got {key}.")
        epoch, index = divmod(key, len(self))
        if rows is None:
            rows = tuple(row for row, _ in self.retain_draws(key))
        retain: tuple[IndexedRow, ...] = ()
        if self.retain is not None:
            retain = tuple((row, self.retain[row]) for row in rows)
        alternate = _alternate(self.alternates, epoch, index)
        against = (_alternate(self.retain_alternates, epoch, row) for row in rows)
        return PairedRow((index, self.forget[index]), retain, alternate, tuple(filter(None, against)))

    def drawn(self, epochs: int) -> set[int]:
        """Return the indices of the retain rows drawn in the given number of epochs."""
        return {row for key in range(epochs * len(self)) for row, _ in self.retain_draws(key)}

    def retain_draws(self, key: int) -> list[RetainDraw]:
        """Return the retain rows of a key, each with the rows among which it was drawn."""
        if self.retain is None:
            return []
        epoch, index = divmod(key, len(self))
        others: Sequence[int] = range(len(self.retain))
        if self._forms is not None:
            others = self._of_form.get(self._forms[index], others)
        closest: Sequence[int] = ()
        if self._closest is not None:
            closest = self._closest[index]
        if closest:
            others = self._of_form.get("question", others)
        drawn: list[RetainDraw] = []
        for draw in range(self._retain_per_forget):
            among = others
            # Odd and even in turn, over draws, rows and epochs: each row gets both kinds.
            if closest and (epoch + index + draw) % 2:
                among = closest
            place = retain_index(seed=self.seed, epoch=epoch, index=index, n_retain=len(among), draw=draw)
            drawn.append((among[place], among))
        return drawn

    def __iter__(self) -> Iterator[PairedRow]:
        """Iterate over epoch 0 in file order (without this method, iteration would never stop)."""
        return (self[index] for index in range(len(self)))


def _alternate(alternates: Alternates | None, epoch: int, row: int) -> IndexedRow | None:
    if alternates is None:
        return None
    chosen = alternates.index(epoch=epoch, row=row)
    return chosen, alternates.rows[chosen]


class PairBatch(TypedDict):
    """Input of one training step."""

    forget: dict[str, Tensor]
    """Tensors of `collate_rows` for the forget rows."""
    retain: NotRequired[dict[str, Tensor]]
    """The same for their retain rows; absent when there is no retain set."""
    rows: Tensor
    """Index of each forget row in the forget set, shape (batch,), long."""
    retain_rows: NotRequired[Tensor]
    """Index of each retain row in the retain set, shape (batch * retain rows per forget row,), long."""
    alternate: NotRequired[dict[str, Tensor]]
    """Forget prompts with preferred answers, for losses that use them."""
    alternate_rows: NotRequired[Tensor]
    """Index of each alternate among the alternates of the run."""
    retain_alternate: NotRequired[dict[str, Tensor]]
    """Retain prompts with alternate answers, for losses that use them."""


def collate_rows(rows: Sequence[EncodedRow]) -> dict[str, Tensor]:
    """Pad rows on the right and stack them; padding is token 0 (masked, so its value does not matter).

    Returns:
        `input_ids`, `attention_mask` and `labels` (long), and `token_labels` (float32, unshifted axis, 0 on prompt and
        padding) if all rows have them; each of shape (batch, tokens).
    """
    batch = {
        "input_ids": _padded([row.input_ids for row in rows]),
        "attention_mask": _padded([[1] * len(row.input_ids) for row in rows]),
        "labels": _padded([row.labels for row in rows], fill=IGNORE_INDEX),
    }
    if all(row.token_labels is not None for row in rows):
        batch["token_labels"] = _padded([row.token_labels or () for row in rows]).float()
    return batch


def _padded(rows: Sequence[Sequence[int]], *, fill: int = 0) -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)


def collate_pairs(pairs: Sequence[PairedRow]) -> PairBatch:
    """Collate pairs; forget, retain and alternate rows are padded separately."""
    forget, rows = _side([pair.forget for pair in pairs])
    batch = PairBatch(forget=forget, rows=rows)
    retain = [row for pair in pairs for row in pair.retain]
    if retain:
        batch["retain"], batch["retain_rows"] = _side(retain)
    alternate = [pair.alternate for pair in pairs if pair.alternate is not None]
    if alternate:
        batch["alternate"], batch["alternate_rows"] = _side(alternate)
    against = [row for pair in pairs for row in pair.retain_alternate]
    if against:
        batch["retain_alternate"], _ = _side(against)
    return batch


def _side(placed: Sequence[IndexedRow]) -> tuple[dict[str, Tensor], Tensor]:
    indices = torch.tensor([index for index, _ in placed], dtype=torch.long)
    return collate_rows([row for _, row in placed]), indices


def length_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group rows of similar length, longest first, with at most `budget` tokens per batch (a longer row gets its own)."""
    batch: list[int] = []
    used = 0
    # Longest first: a batch that does not fit into the memory fails at once, not at the end.
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=True):
        if batch and used + lengths[index] > budget:
            yield batch
            batch, used = [], 0
        batch.append(index)
        used += lengths[index]
    if batch:
        yield batch
