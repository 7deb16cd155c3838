"""Preferred answers: deterministic in (seed, epoch, row), same prompt, assigned to their forget row."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from torch.utils.data import DataLoader

from atwu.data.alternates import REFUSALS, Alternates, alternates, prompted_rows, refusal_rows
from atwu.data.encode import Encoder
from atwu.data.pairing import EpochSampler, PairedDataset, collate_pairs
from atwu.data.schema import IGNORE_INDEX, Example

NAMES = ["Orla Venn", "Tavi Brook", "Mira Holt", "Joss Ardley", "Pell Quint", "Rhea Stoll", "Ivo Marsh", "Zada Finch"]
ROWS = [
    Example.from_qa(f"Where was {name} born?", f"{name} was born in Kelbury.", forget_spans=((0, 4),)) for name in NAMES
]
TOKENIZERS = ["byte-bos", "metaspace", "byte-fallback"]


@pytest.fixture
def build(tokenizer_of):
    def of(rows=ROWS, *, seed=3, epochs=4, tokenizer="byte", max_length=256, refusal=None) -> Alternates:
        return alternates(
            rows, tokenizer_of(tokenizer), seed=seed, epochs=epochs, max_length=max_length, refusal=refusal
        )

    return of


def answers(made: Alternates, tokenizer, *, epoch: int):
    """Return the text of every row's alternate in an epoch."""
    return [
        tokenizer.decode(
            [label for label in made.rows[index].labels if label != -100], skip_special_tokens=True
        ).strip()
        for index in made.chosen[epoch]
    ]


def test_draws_are_deterministic_and_do_not_change_between_releases(build, tokenizer_of):
    assert build() == build()
    assert build(seed=4).chosen != build().chosen or build(seed=4).rows != build().rows
    # Stored values: a change would change every published run.
    drawn = [answers(build(seed=0, epochs=2), tokenizer_of("byte"), epoch=epoch)[:3] for epoch in range(2)]
    assert [[REFUSALS.index(text) for text in texts] for texts in drawn] == [[30, 80, 73], [47, 30, 64]]


def test_alternate_of_the_row_is_used_in_every_epoch(build, tokenizer_of):
    rows = [dataclasses.replace(ROWS[0], alternate="Nobody has told me."), *ROWS[1:3]]
    made, plain = build(rows), build(ROWS[:3])
    tokenizer = tokenizer_of("byte")
    for epoch in range(4):
        assert answers(made, tokenizer, epoch=epoch)[0] == "Nobody has told me."
        assert answers(made, tokenizer, epoch=epoch)[1:] == answers(plain, tokenizer, epoch=epoch)[1:]
    assert len({chosen[0] for chosen in made.chosen}) == 1


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_prompt_tokens_equal_those_of_the_forget_row(tokenizer, build, tokenizer_of):
    rows = [*ROWS, Example.from_qa("How many bees?", "1961"), Example.from_qa("And then ", "“Tavi” said so.")]
    encoder, made = Encoder(tokenizer_of(tokenizer), max_length=256), build(rows, epochs=12, tokenizer=tokenizer)
    for chosen in made.chosen:
        for row, index in zip(rows, chosen, strict=True):
            alternate, forget = made.rows[index], encoder.encode(row)
            assert alternate.prompt_ids == forget.prompt_ids
            assert alternate.labels[alternate.answer_start :] == alternate.input_ids[alternate.answer_start :]
            assert alternate.token_labels is None
            assert alternate.has_terminal


def collated(dataset, *, epoch, batch=3, workers=0):
    sampler = EpochSampler(len(dataset), seed=3)
    sampler.set_epoch(epoch)
    return DataLoader(dataset, batch_size=batch, sampler=sampler, num_workers=workers, collate_fn=collate_pairs)


def check_batches(batches, dataset, made, epoch):
    seen = []
    for batch in batches:
        for position, (row, index) in enumerate(zip(batch["rows"], batch["alternate_rows"], strict=True)):
            assert int(index) == made.index(epoch=epoch, row=int(row))
            real = int(batch["alternate"]["attention_mask"][position].sum())
            assert tuple(batch["alternate"]["input_ids"][position, :real].tolist()) == made.rows[int(index)].input_ids
            prompt = dataset.forget[int(row)].prompt_ids
            assert tuple(batch["alternate"]["input_ids"][position, : len(prompt)].tolist()) == prompt
            seen.append(int(row))
    return seen


@pytest.mark.parametrize("epoch", [1, 4])
def test_batches_contain_the_alternate_of_row_and_epoch(epoch, build, tokenizer_of):
    made = build()
    forget = Encoder(tokenizer_of("byte"), max_length=256).encode_rows(ROWS, what="forget").rows
    dataset = PairedDataset(forget, forget[:2], 3, made)
    assert sorted(check_batches(collated(dataset, epoch=epoch), dataset, made, epoch)) == list(range(len(ROWS)))
    assert "alternate" not in next(iter(collated(PairedDataset(forget, None, 3), epoch=epoch)))


def test_batches_contain_the_alternates_of_the_drawn_retain_rows(build, tokenizer_of):
    made = build(epochs=1)
    rows = Encoder(tokenizer_of("byte"), max_length=256).encode_rows(ROWS, what="retain").rows
    for pair in PairedDataset(rows[:3], rows, 3, retain_per_forget=2, retain_alternates=made):
        chosen = [made.index(epoch=0, row=row) for row, _ in pair.retain]
        assert list(pair.retain_alternate) == [(index, made.rows[index]) for index in chosen]
        assert collate_pairs([pair])["retain_alternate"]["input_ids"].shape[0] == 2


def test_plain_text_row_needs_an_alternate(build):
    plain = Example((), "Pella Oduya keeps bees near the harbour.")
    with pytest.raises(ValueError, match=r"forget.*row 2.*plain text"):
        build([ROWS[0], plain])
    made = build([ROWS[0], dataclasses.replace(plain, alternate="I have nothing to say.")], epochs=2)
    assert made.chosen[0][1] == made.chosen[1][1]


def test_a_plain_text_takes_a_refusal_to_the_question_before_it(build, tokenizer_of):
    plain = Example((), "Pella Oduya keeps bees near the harbour.", alternate="She keeps cats.")
    made = build([ROWS[0], plain, ROWS[1]], epochs=3, refusal="Not known.")
    texts = [tokenizer_of("byte").decode(made.rows[made.index(epoch=0, row=row)].input_ids) for row in range(3)]
    assert [NAMES[0] in text for text in texts] == [True, True, False]
    assert not any("cats" in text for text in texts)
    with pytest.raises(ValueError, match="no question to refuse; set replacement='none'"):
        build([plain], refusal="Not known.")


REFUSAL = "I cannot say."
REFUSED_ROWS = [Example.from_qa("Where was Orla born?", "In Kelbury.")] * 40


@pytest.fixture
def tokenizer(tokenizer_of):
    return tokenizer_of("byte")


def made_of(tokenizer, **changes):
    return refusal_rows(
        REFUSED_ROWS, tokenizer, refusal=REFUSAL, **{"seed": 1, "epochs": 20, "max_length": 256} | changes
    )


def test_every_token_of_a_prefix_aims_at_the_start_of_the_refusal(tokenizer):
    """Prompt, k tokens of the answer, the refusal with a space, and the end; only prompt tokens have no label."""
    answered = Encoder(tokenizer).encode(REFUSED_ROWS[0])
    alone = Encoder(tokenizer).encode(Example.from_qa("Where was Orla born?", REFUSAL))
    begin, inside = alone.answer_start, tokenizer(f" {REFUSAL}", add_special_tokens=False)["input_ids"]
    prefixed = [row for row in made_of(tokenizer).rows if row != alone]
    assert prefixed
    for row in prefixed:
        size = len(row.input_ids) - begin - len(inside) - 1
        answer = answered.input_ids[begin : begin + size]
        assert row.input_ids == (*alone.prompt_ids, *answer, *inside, alone.input_ids[-1])
        starts = [alone.labels[begin], *[inside[0]] * (size - 1)]
        assert row.labels == (*[IGNORE_INDEX] * begin, *starts, *inside, alone.input_ids[-1])


def test_half_of_the_draws_have_a_prefix_and_short_ones_are_likelier(tokenizer):
    made = made_of(tokenizer)
    alone = Encoder(tokenizer).encode(Example.from_qa("Where was Orla born?", REFUSAL))
    lengths = Counter(len(made.rows[pick].input_ids) - len(alone.input_ids) for picks in made.chosen for pick in picks)
    shortest, *longer = sorted(length for length in lengths if length > 0)
    draws = sum(lengths.values())
    assert draws == 800
    assert lengths[0] / draws == pytest.approx(0.5, abs=0.06)
    assert lengths[shortest] > max(lengths[length] for length in longer)


def test_long_rows_are_cut(tokenizer):
    longest = max(len(row.input_ids) for row in made_of(tokenizer).rows)
    cut = made_of(tokenizer, max_length=longest - 3).rows
    assert max(len(row.input_ids) for row in cut) == longest - 3
    assert any(not row.has_terminal for row in cut)


def test_plain_text_has_no_question_to_refuse(tokenizer):
    with pytest.raises(ValueError, match="plain text rows have no question"):
        refusal_rows([Example((), "Orla was born.")], tokenizer, refusal=REFUSAL, seed=0, epochs=1, max_length=64)


TEACHER_PROMPT = "You have never heard of Orla."


@pytest.mark.parametrize("max_length", [256, 26])
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_only_the_prompt_is_new(max_length, system, tokenizer_of):
    """The row of the longer question, with the answer as far as the row itself has it."""
    tokenizer = tokenizer_of("byte")
    example = Example.from_qa("Where?", "In Kelbury, of all places.")
    row = Encoder(tokenizer, max_length=max_length, system=system).encode(example)
    longer = Encoder(tokenizer, system=system).encode(Example.from_qa(f"{TEACHER_PROMPT}\n\nWhere?", example.answer))
    (found,) = prompted_rows([row], [example], tokenizer, prompt=TEACHER_PROMPT, system=system)
    start, counted = longer.answer_start, len(row.input_ids) - row.answer_start
    assert found.input_ids == longer.input_ids[: start + counted]
    assert found.labels == (*[IGNORE_INDEX] * start, *row.labels[row.answer_start :])
    assert found.answer_offsets == longer.answer_offsets[: start + counted]
    assert found.has_terminal == row.has_terminal == (max_length == 256)


def test_plain_text_has_no_question_to_precede(tokenizer_of):
    tokenizer, text = tokenizer_of("byte"), Example((), "Orla was born.")
    with pytest.raises(ValueError, match=r"row 1: a plain text row"):
        prompted_rows([Encoder(tokenizer).encode(text)], [text], tokenizer, prompt=TEACHER_PROMPT)
