"""Pairs depend only on (seed, epoch, index), not on workers, processes or resumption."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from accelerate.data_loader import skip_first_batches
from torch.utils.data import DataLoader

from atwu.data.encode import EncodedRow
from atwu.data.pairing import (
    KEPT_TURNS,
    EpochSampler,
    PairedDataset,
    PairedRow,
    collate_pairs,
    collate_rows,
    epoch_order,
    retain_index,
)
from atwu.data.schema import Example
from atwu.data.text_similarity import closest_rows


def row(token: int) -> EncodedRow:
    ids = (1, token, 2)
    return EncodedRow(ids, (-100, token, 2), None, (None, (0, 1), None), has_terminal=True)


FORGET = [row(100 + index) for index in range(12)]
RETAIN = [row(200 + index) for index in range(50)]
DATA = PairedDataset(FORGET, RETAIN, seed=3)


def pairs_of(loader):
    """Return (forget token, retain token) of each row, in order."""
    out = []
    for batch in loader:
        forget, retain = batch["forget"]["input_ids"][:, 1], batch["retain"]["input_ids"][:, 1]
        assert (forget - 100).tolist() == batch["rows"].tolist()
        out += list(zip(forget.tolist(), retain.tolist(), strict=True))
    return out


def loader(epoch: int, *, workers: int = 0, batch: int = 4) -> DataLoader:
    sampler = EpochSampler(len(DATA), seed=3)
    sampler.set_epoch(epoch)
    return DataLoader(DATA, batch_size=batch, sampler=sampler, num_workers=workers, collate_fn=collate_pairs)


def test_draws_do_not_change_between_releases():
    # Stored values: a change would change every published run.
    assert [retain_index(seed=0, epoch=0, index=index, n_retain=1000) for index in range(4)] == [440, 508, 253, 753]
    assert epoch_order(seed=0, epoch=0, n=8).tolist() == [2, 7, 6, 1, 4, 3, 0, 5]


def test_dataset_reads_the_key():
    pair = DATA[2 * 12 + 5]
    drawn = retain_index(seed=3, epoch=2, index=5, n_retain=50)
    assert pair.forget == (5, FORGET[5])
    assert pair.retain == ((drawn, RETAIN[drawn]),)
    assert len(DATA) == len(list(DATA)) == 12
    alone = PairedDataset(FORGET, None, seed=3)[5]
    assert alone.retain == ()


def test_any_number_of_workers_gives_the_same_pairs():
    expected = pairs_of(loader(1))
    assert len({forget for forget, _ in expected}) == 12
    assert pairs_of(loader(1, workers=2)) == expected
    assert pairs_of(loader(2)) != expected


def test_a_resumed_epoch_continues_with_the_same_pairs():
    full = pairs_of(loader(1))
    assert pairs_of(skip_first_batches(loader(1), 2)) == full[8:]
    assert pairs_of(islice(loader(1), 2)) == full[:8]


def test_forgotten_rows_give_most_turns_to_known_ones_from_then_on():
    known, forgotten, plain = (0, 7), range(2, 7), list(iter(EpochSampler(12, seed=3, epochs=5)))
    sampler = EpochSampler(12, seed=3, epochs=5, per_step=2)
    turns = iter(sampler)
    drawn = list(islice(turns, 4))
    sampler.prefer(known, forgotten)
    drawn += turns
    assert drawn[:4] == plain[:4]
    replaced = [turn for turn in range(12) if drawn[turn] != plain[turn]]
    assert replaced
    assert all(turn >= 4 and plain[turn] in forgotten and drawn[turn] % 12 in known for turn in replaced)
    assert all(drawn[turn] < 5 * 12 for turn in replaced)
    for per_step, share in ((2, KEPT_TURNS), (8, 1 - 2 / 8)):  # a known row about once in a step
        sampler.per_step, kept = per_step, 0
        for epoch in range(200):
            sampler.set_epoch(epoch)
            kept += sum(key % 12 in forgotten for key in sampler)
        assert kept / (200 * len(forgotten)) == pytest.approx(share, abs=0.03)
    sampler.prefer((), range(12))  # all rows are forgotten
    sampler.set_epoch(3)
    assert [key % 12 for key in sampler] == epoch_order(seed=3, epoch=3, n=12).tolist()


def test_a_resumed_sampler_repeats_its_turns_although_other_rows_are_known_now(tmp_path):
    sampler = EpochSampler(12, seed=3, epochs=5, per_step=1)
    sampler.set_epoch(2)
    turns = iter(sampler)
    drawn = list(islice(turns, 3))
    sampler.prefer((0,), range(1, 9))
    drawn += islice(turns, 5)
    sampler.prefer((4, 5), (0, 9, 10, 11))
    sampler.save(str(tmp_path))
    resumed = EpochSampler(12, seed=3, epochs=5, per_step=1)
    resumed.load(str(tmp_path))
    resumed.set_epoch(2)
    assert list(islice(resumed, 8)) == drawn
    assert list(resumed) == [*drawn, *turns]


def test_waiting_rows_have_no_turn_until_they_are_preferred_and_then_keep_it_after_resuming(tmp_path):
    """Of 12 rows the last 4 wait; one of them then takes turns of forgotten rows, beside a known one."""
    data = PairedDataset(FORGET, RETAIN, seed=3, waiting=4)
    sampler = EpochSampler(12, seed=3, epochs=5, per_step=2, pairs=data, waiting=4)
    sampler.set_epoch(1)
    assert sorted(sampler) == list(range(12, 20))
    sampler.set_epoch(2)
    turns = iter(sampler)
    drawn = list(islice(turns, 2))
    sampler.prefer((0,), range(1, 8))
    sampler.prefer_also((9,))
    assert sampler.taken == len(sampler) == 8
    sampler.save(str(tmp_path))
    rest = list(turns)
    assert {key % 12 for key in rest} >= {9}
    assert {key % 12 for key in rest}.isdisjoint({8, 10, 11})
    resumed = EpochSampler(12, seed=3, epochs=5, per_step=2, pairs=data, waiting=4)
    resumed.load(str(tmp_path))
    resumed.set_epoch(2)
    assert list(resumed) == [*drawn, *rest]
    assert data[rest[0]].retain


def test_rows_that_are_preferred_no_longer_count_as_forgotten():
    sampler = EpochSampler(6, seed=3, epochs=500)
    sampler.prefer((), range(6))
    sampler.prefer_also((2,))
    turns = []
    for epoch in range(400):
        sampler.set_epoch(epoch)
        turns += [key % 6 for key in sampler]
    # A known row keeps its turn, and takes some of the turns of the others.
    assert turns.count(2) > 400


def test_retain_rows_are_drawn_in_proportion_to_their_damage(tmp_path):
    forms = {"forget": ["blank"] * len(FORGET), "retain": ["question", "blank"] * (len(RETAIN) // 2)}
    data = PairedDataset(FORGET, RETAIN, seed=3, forms=forms, closest=[(1, 3, 5)] * len(FORGET), retain_per_forget=2)
    sampler = EpochSampler(12, seed=3, epochs=500, pairs=data)
    assert all(isinstance(key, int) for key in sampler)
    sampler.observe({0: 3.0, 2: 1.0, 4: 0.5, 6: -1e-9, 3: 0.5, 7: 9.0})  # 7: a blank that is not among the closest
    drawn = dict.fromkeys(range(len(RETAIN)), 0)
    for epoch in range(1, 500):
        sampler.set_epoch(epoch)
        for draw in sampler:
            assert draw[0] in range(12 * epoch, 12 * (epoch + 1))
            assert [row for row, _ in data[draw].retain] == list(draw[1])
            for row in draw[1]:
                drawn[row] += 1
    turns, average = 12 * 499, 4.5 / 4
    total = 4.5 + 21 * average  # 21 rows as written are new
    for row, loss in ((0, 3.0), (2, 1.0), (4, 0.5), (6, 0.0), (8, average), (48, average)):
        assert drawn[row] / turns == pytest.approx(loss / total, abs=0.01)
    assert drawn[3] / turns == pytest.approx(1 / 3, abs=0.02)  # the same loss as the new ones, 1 and 5
    assert drawn[7] == 0
    sampler.save(str(tmp_path))
    resumed = EpochSampler(12, seed=3, epochs=500, pairs=data)
    resumed.load(str(tmp_path))
    for epoch in (500, 7):
        sampler.set_epoch(epoch)
        resumed.set_epoch(epoch)
        assert list(resumed) == list(sampler)


def test_only_rows_of_the_planned_epochs_are_drawn():
    planned = DATA.drawn(2)
    sampler = EpochSampler(12, seed=3, epochs=2, pairs=DATA)
    sampler.observe(dict.fromkeys(planned, 1.0))
    drawn = set()
    for epoch in range(50):
        sampler.set_epoch(epoch)
        drawn |= {row for _, rows in sampler for row in rows}
    assert drawn == planned < set(range(50))


def test_without_damage_the_draws_of_the_dataset_stay():
    sampler = EpochSampler(12, seed=3, pairs=DATA)
    sampler.observe(dict.fromkeys(range(50), 0.0))
    sampler.set_epoch(1)
    assert [DATA[draw] for draw in sampler] == [DATA[12 + index] for index in epoch_order(seed=3, epoch=1, n=12)]


def test_errors():
    with pytest.raises(ValueError, match=r"\bn\b.* 1"):
        EpochSampler(0, seed=0)
    with pytest.raises(ValueError, match=r"forget.*empty"):
        PairedDataset([], None, seed=0)
    with pytest.raises(ValueError, match=r"retain.*empty"):
        PairedDataset(FORGET, [], seed=0)
    with pytest.raises(IndexError, match="-1"):
        DATA[-1]
    marked = EncodedRow((1, 5, 2), (-100, 5, 2), (0, 1, 0), (None, (0, 1), None), has_terminal=True)
    with pytest.raises(ValueError, match=r"forget.*1 of 13 rows"):
        PairedDataset([*FORGET, marked], None, seed=0)


def test_a_forget_row_gets_a_retain_row_of_its_own_form():
    forms = {"forget": ["question", "blank"] * 6, "retain": ["question"] * 20 + ["blank"] * 10 + ["complete"] * 20}
    data = PairedDataset(FORGET, RETAIN, seed=3, forms=forms)
    for epoch in range(3):
        for index in range(len(FORGET)):
            ((drawn, _),) = data[epoch * len(data) + index].retain
            assert forms["retain"][drawn] == forms["forget"][index]
    assert {forms["retain"][index] for index in data.drawn(3)} == {"question", "blank"}


def test_a_form_without_retain_rows_gets_any_retain_row():
    forms = {"forget": ["reversed"] * 12, "retain": ["question"] * 50}
    data = PairedDataset(FORGET, RETAIN, seed=3, forms=forms)
    assert [pair.retain for pair in data] == [pair.retain for pair in DATA]


def test_every_second_time_the_retain_row_is_one_of_the_closest():
    closest = [(index, index + 20) if index != 3 else () for index in range(len(FORGET))]
    data = PairedDataset(FORGET, RETAIN, seed=3, closest=closest)
    for epoch in range(4):
        for index in range(len(FORGET)):
            key = epoch * len(data) + index
            ((drawn, _),) = data[key].retain
            if closest[index] and (epoch + index) % 2:
                assert drawn in closest[index]
            else:
                assert drawn == DATA[key].retain[0][0]


def test_of_two_retain_rows_one_is_closest_and_the_first_is_that_of_one():
    closest = [(index,) for index in range(len(FORGET))]
    data = PairedDataset(FORGET, RETAIN, seed=3, closest=closest, retain_per_forget=2)
    one = PairedDataset(FORGET, RETAIN, seed=3, closest=closest)
    for key in range(4 * len(FORGET)):
        first, second = data[key].retain
        assert (first,) == one[key].retain
        assert (first[0] == key % 12) != (second[0] == key % 12) or first[0] == second[0]
    drawn = {row for key in range(24) for row, _ in data[key].retain}
    assert data.drawn(2) == drawn


def test_beside_the_closest_row_of_its_form_a_forget_row_gets_any_row_as_written():
    forms = {"forget": ["blank"] * len(FORGET), "retain": ["question", "blank"] * (len(RETAIN) // 2)}
    closest = [(1, 3)] * len(FORGET)
    data = PairedDataset(FORGET, RETAIN, seed=3, forms=forms, closest=closest, retain_per_forget=2)
    drawn = [sorted(row for row, _ in pair.retain) for key in range(5 * len(FORGET)) for pair in [data[key]]]
    assert all(sum(row in (1, 3) for row in rows) == 1 for rows in drawn)
    assert {row for rows in drawn for row in rows} - {1, 3} <= set(range(0, len(RETAIN), 2))
    alone = PairedDataset(FORGET, RETAIN, seed=3, forms=forms)
    assert all(row % 2 for key in range(5 * len(FORGET)) for row, _ in alone[key].retain)


def test_the_closest_rows_have_the_most_similar_questions_of_the_same_form():
    def row(question):
        return Example.from_qa(question, "An answer.")

    forget = [row("What is the capital of France?"), row("Fill in the blank: the capital of France is ____")]
    retain = [
        row("How do bees sleep?"),
        row("What is the capital of Peru?"),
        row("Fill in the blank: the capital of Peru is ____"),
        row("What is the capital of a company?"),
    ]
    found = closest_rows(forget, retain, count=2)
    assert set(found[0]) == {1, 3}
    assert found[1][0] == 2
    forms = (["question", "blank"], ["question", "question", "blank", "question"])
    assert closest_rows(forget, retain, forms=forms)[1] == (2,)
    assert closest_rows(forget, retain, forms=(["question", "reversed"], forms[1]))[1] == ()


X = -100
SHORT = EncodedRow((5, 6, 0), (X, 6, 0), (0, 1, 0), (None, (0, 2), None), has_terminal=True)
LONG = EncodedRow((5, 7, 8, 9, 0), (X, X, 8, 9, 0), (0, 0, 0, 1, 0), (None, None, (0, 1), (1, 2), None), True)
BARE = EncodedRow((5, 6, 0), (X, 6, 0), None, (None, (0, 2), None), has_terminal=True)


def test_whole_batch():
    batch = collate_rows([SHORT, LONG])
    # The end token has the id of the padding (0): it is attended to and trained, padding is not.
    assert batch["input_ids"].tolist() == [[5, 6, 0, 0, 0], [5, 7, 8, 9, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[X, 6, 0, X, X], [X, X, 8, 9, 0]]
    assert batch["token_labels"].tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]
    assert {name: tensor.dtype for name, tensor in batch.items()} == {
        "input_ids": torch.long,
        "attention_mask": torch.long,
        "labels": torch.long,
        "token_labels": torch.float32,
    }


def test_token_labels_only_when_every_row_has_them():
    assert "token_labels" not in collate_rows([BARE, BARE])
    assert "token_labels" not in collate_rows([SHORT, BARE, BARE])


def test_pairs():
    pairs = [PairedRow((4, SHORT), ((9, BARE),)), PairedRow((2, LONG), ((9, BARE),))]
    batch = collate_pairs(pairs)
    assert batch["rows"].tolist() == [4, 2]
    assert batch["rows"].dtype == torch.long
    assert batch["forget"]["input_ids"].tolist() == [[5, 6, 0, 0, 0], [5, 7, 8, 9, 0]]
    assert batch["retain"]["input_ids"].tolist() == [[5, 6, 0], [5, 6, 0]]
    assert "token_labels" in batch["forget"]
    assert "token_labels" not in batch["retain"]
