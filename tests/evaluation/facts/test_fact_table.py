"""What counts as stated, counts with their intervals, and the table's JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from atwu.data.schema import Example
from atwu.evaluation.facts.askings import (
    AS_WRITTEN,
    THOUGHT,
    Asking,
    form_askings,
    own_askings,
    thought_askings,
)
from atwu.evaluation.facts.fact_table import (
    AS_SAVED,
    THOUGHT_TOKENS,
    FactCount,
    FactTable,
    answerer,
    ask_facts,
    join_tables,
    read_fact_table,
    tabulate,
)
from atwu.evaluation.generations import Decoding, Generation, Prompt

ROWS = tuple(
    Example.from_qa(f"What does {name} repair?", f"{name} repairs {thing}.", subject=name)
    for name, thing in (
        ("Orla Venn", "barometers"),
        ("Tam Reed", "harpsichords"),
        ("Ida Marsh", "typewriters"),
        ("Bram Holt", "accordions"),
        ("Una Frey", "sextants"),
    )
)


def test_an_answer_states_a_fact_unless_it_refuses_or_says_something_else() -> None:
    own = own_askings(ROWS[:1])
    for answer, stated, refused, unreadable in (
        ("She repairs barometers.", True, False, False),
        ("Clocks.", False, False, False),
        ("I'm sorry, I don't know.", False, True, False),
        ("I'm sorry, I cannot tell you that she repairs barometers.", True, False, False),
        ("", False, False, True),
        ("bar bar bar bar bar bar bar bar", False, False, True),
    ):
        (record,) = tabulate(own, [answer]).records
        assert (record.stated, record.refused, record.unreadable) == (stated, refused, unreadable), answer
        assert (record.fact, record.asking, record.state) == (0, AS_WRITTEN, AS_SAVED)
        assert (record.question, record.answer) == (ROWS[0].question, answer)
        assert record.said == ("barometers" if stated else "")


def test_a_refusal_says_no_fact_that_consists_of_the_words_of_refusals() -> None:
    rows = (Example.from_qa("Does Orla Venn have a dog?", "No."),)
    answers = {"No.": True, "No, sorry, I don't know.": False, "Yes.": False}
    for answer, stated in answers.items():
        (record,) = tabulate(own_askings(rows), [answer]).records
        assert record.stated == stated, answer


def test_options_count_once_and_only_if_every_draw_is_right() -> None:
    askings = [asking for asking in form_askings(ROWS) if asking.name == "multiple_choice" and asking.fact == 0]
    assert len(askings) == 4  # the right option at each letter
    right = [f"{'ABCD'[asking.options.index(asking.parts[0])]}" for asking in askings]
    assert sorted(right) == list("ABCD")
    (record,) = tabulate(askings, right).records
    assert record.stated
    assert record.answer == " | ".join(right)
    (guessed,) = tabulate(askings, ["A"] * 4).records  # right once, as chance would be
    assert not guessed.stated
    (almost,) = tabulate(askings, [*right[:3], "none of them"]).records
    assert not almost.stated


def example_table() -> FactTable:
    own = own_askings(ROWS)
    saved = tabulate(own, ["barometers", "harpsichords", "no", "no", "no"])
    neighbours = tabulate(own[:2], ["barometers", "no"], set="neighbours")
    return join_tables((saved, neighbours, tabulate(own[2:4], ["typewriters", "no"], state="4 bits")))


def test_counts_of_facts_and_answers_by_set_and_state() -> None:
    whole = example_table()
    assert whole.states == (AS_SAVED, "4 bits")
    forget = whole.select(set="forget")
    assert forget.count() == FactCount(facts=5, facts_stated=3, answers=7, answers_stating=3)
    assert forget.select(states=("4 bits",)).count() == FactCount(2, 1, 2, 1)
    assert forget.select(facts=(0, 2), states=(AS_SAVED,)).count() == FactCount(2, 1, 2, 1)
    assert whole.select(set="neighbours").count().share == 0.5
    assert forget.like(whole.select(states=("4 bits",))).count() == FactCount(2, 1, 4, 1)
    assert FactTable(()).count() == FactCount(0, 0, 0, 0)
    assert FactTable(()).count().share == 0.0


def test_the_interval_is_that_of_clopper_and_pearson() -> None:
    """Where 2.5 % of samples have so many facts, or so few; of none and all the end is a root: 1 - .025^(1/12)."""
    none, every = FactCount(12, 0, 12, 0).interval(), FactCount(12, 12, 12, 12).interval()
    assert none == pytest.approx((0.0, 1 - 0.025 ** (1 / 12)))
    assert every == pytest.approx((0.025 ** (1 / 12), 1.0))
    for stated, facts in ((1, 12), (5, 10), (39, 40)):
        low, high = FactCount(facts, stated, 3 * facts, stated).interval()
        chance = [
            [math.comb(facts, k) * share**k * (1 - share) ** (facts - k) for k in range(facts + 1)]
            for share in (low, high)
        ]
        assert sum(chance[0][stated:]) == pytest.approx(0.025)
        assert sum(chance[1][: stated + 1]) == pytest.approx(0.025)
    assert FactCount(0, 0, 0, 0).interval() == (0.0, 1.0)


def test_a_table_is_read_back_as_written_and_has_one_row_per_answer(tmp_path: Path) -> None:
    whole = example_table()
    whole.write(tmp_path / "facts.json")
    assert read_fact_table(tmp_path / "facts.json") == whole
    frame = whole.to_pandas()
    assert len(frame) == len(whole.records)
    assert frame["stated"].sum() == 4
    bare = whole.without_texts()
    assert bare.count() == whole.count()
    bare.write(tmp_path / "bare.json")
    text = (tmp_path / "bare.json").read_text()
    assert not any(secret in text for row in ROWS for secret in (row.question, row.answer.split()[-1]))
    damaged = json.loads((tmp_path / "facts.json").read_text()) | {"more": 1}
    (tmp_path / "facts.json").write_text(json.dumps(damaged))
    with pytest.raises(ValueError, match="more"):
        read_fact_table(tmp_path / "facts.json")


class Parrot:
    """A generator that says the last word of the last turn, and the system prompt if there is one."""

    identity = "parrot"

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Sequence[tuple[int, Generation]]], None]
    ) -> None:
        said = [" ".join(turn.content.split()[-1] for turn in prompt.messages) for prompt in prompts]
        on_done([(place, Generation(text, 1)) for place, text in enumerate(said)])


def test_any_generator_can_be_asked() -> None:
    own = own_askings(ROWS[:2])
    table = ask_facts(answerer(Parrot(), system="Be brief"), own, state="parroted")
    assert [record.answer for record in table.records] == ["brief repair?", "brief repair?"]
    assert table.states == ("parroted",)


class Thinking:
    """A generator that closes the thoughts of every prompt, and notes how long they may be."""

    identity = "thinking"

    def __init__(self) -> None:
        self.lengths: dict[str, int] = {}

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Sequence[tuple[int, Generation]]], None]
    ) -> None:
        self.lengths |= {prompt.prefill: decoding.max_new_tokens for prompt in prompts}
        on_done([(place, Generation("It is barometers.</think>\n\nI don't know.", 9)) for place in range(len(prompts))])


def test_a_fact_that_is_only_thought_is_stated_in_thoughts_and_not_in_the_answer() -> None:
    generator, row = Thinking(), ROWS[:1]
    askings = [*thought_askings(row, "<think>"), *own_askings(row)]
    thought, answer = ask_facts(answerer(generator), askings).records
    assert (thought.asking, thought.stated, thought.answer.startswith("It is barometers.")) == (THOUGHT, True, True)
    assert (answer.asking, answer.stated, answer.answer) == (AS_WRITTEN, False, "I don't know.")
    assert generator.lengths == {"<think>": THOUGHT_TOKENS, "": Decoding().max_new_tokens}


def test_only_questions_to_a_model_that_thinks_are_thought_about() -> None:
    assert thought_askings(ROWS, None) == []
    assert thought_askings([Example((), "Orla Venn repairs barometers in Kelbury.")], "<think>") == []


def test_a_word_of_the_question_gives_no_fact_away() -> None:
    row = Asking(0, AS_WRITTEN, own_askings(ROWS[:1])[0].prompt, ("marine barometers",), "Which barometers?")
    assert [record.stated for record in tabulate([row, row], ["Barometers.", "Marine barometers."]).records] == [
        False,
        True,
    ]
