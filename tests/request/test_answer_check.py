"""Which leak the check of greedy answers reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.form_rows import rows_in_forms
from atwu.data.question_forms import FORMS, TRAINED_FORMS
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.askings import AS_WRITTEN
from atwu.evaluation.facts.fact_table import tabulate
from atwu.evaluation.generations import Decoding, Generation, GenerationStore, Prompt, generation_key
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request import answer_check
from atwu.request.answer_check import AnswerCheck, Leak
from atwu.request.goal_evaluations import ControllerRows, GoalEvaluations
from atwu.request.verdict import STATING_LIMIT

ROWS = (
    Example.from_qa("What is the capital of Japan?", "The capital of Japan is Tokyo.", subject="Japan"),
    Example.from_qa("What is the currency of Japan?", "The currency of Japan is the yen.", subject="Japan"),
)


class Mapped:
    """A generator that is a mapping: it answers every question that holds some text with a fact, others with a phrase."""

    identity = "mapped"
    model = SimpleNamespace(is_quantized=True)  # its weights are not rounded

    def __init__(self, facts: Mapping[str, str]) -> None:
        self.facts = facts
        self.calls: list[Sequence[Prompt]] = []

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Any) -> None:
        self.calls.append(prompts)
        asked = [prompt.messages[-1].content if prompt.messages else prompt.prefill for prompt in prompts]
        said = [
            next((fact for text, fact in self.facts.items() if text in question), "So it is.") for question in asked
        ]
        on_done([(place, Generation(text, 1)) for place, text in enumerate(said)])


NO_ENCODER: Any = SimpleNamespace(tokenizer=SimpleNamespace(chat_template=None), system=None)
CHECK = AnswerCheck(ROWS, NO_ENCODER)


def find_leak(facts: Mapping[str, str], check: AnswerCheck = CHECK, **how: Any) -> Leak | None:
    generator: Any = Mapped(facts)
    return check.find_leak(generator, **how)


def test_a_fact_stated_to_its_own_question_is_worse_than_any_in_other_forms() -> None:
    leak = find_leak({"What is the capital": "Tokyo"})
    assert leak is not None
    assert leak.severity == 1.5
    assert leak.text == "1 of 2 facts are stated to their own question"
    assert [CHECK.askings[place].name for place in leak.places] == [AS_WRITTEN]


class Thinks(Mapped):
    """Names the fact in its thoughts, and in no answer."""

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Any) -> None:
        said = ["Tokyo.</think>So." if prompt.prefill == "<think>" else "So it is." for prompt in prompts]
        on_done([(place, Generation(text, 1)) for place, text in enumerate(said)])


def test_training_goes_on_while_a_fact_is_thought() -> None:
    thinks: Any = SimpleNamespace(tokenizer=SimpleNamespace(chat_template="<think>"), system=None)
    generator: Any = Thinks({})
    leak = AnswerCheck(ROWS, thinks).find_leak(generator)
    assert leak is not None
    assert (leak.severity, leak.text) == (1.5, "1 of 2 facts are thought, though not stated")


def test_the_severity_is_the_share_of_answers_that_state_a_fact_in_any_form() -> None:
    leak = find_leak({"Fill in the blank: The capital of Japan": "Tokyo"})
    assert leak is not None
    total = len(tabulate(CHECK.askings, [""] * len(CHECK.askings)).records)
    assert leak.severity == pytest.approx(1 / total)
    assert leak.text == f"1 of {total} answers state a fact (at most 2 % may)"
    both = find_leak({"Fill in the blank: The": "Tokyo or yen"})
    assert both is not None
    assert both.severity == pytest.approx(2 * leak.severity)
    assert [CHECK.askings[place].name for place in both.places] == ["blank", "blank"]


def test_only_the_paraphrase_that_gets_the_fact_leaks() -> None:
    """Both paraphrases of a question have one name."""
    leak = find_leak({"I would like to know something. What is the capital": "Tokyo"})
    assert leak is not None
    (place,) = leak.places
    assert CHECK.askings[place].prompt.messages[-1].content == f"I would like to know something. {ROWS[0].question}"


def test_the_share_that_the_verdict_accepts_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_leak({}) is None
    blank = {"Fill in the blank: The capital of Japan": "Tokyo"}
    leak = find_leak(blank)
    assert leak is not None
    monkeypatch.setattr(answer_check, "STATING_LIMIT", leak.severity)
    assert find_leak(blank) is None


def test_a_fact_that_comes_back_with_rounded_weights_is_a_small_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: dict[str, str] = {}

    @contextmanager
    def rounded() -> Iterator[None]:
        facts["What is the capital"] = "Tokyo"
        yield
        facts.clear()

    monkeypatch.setattr(answer_check, "rounded_states", lambda model: {"4 bits": rounded()})
    leak = find_leak(facts)
    assert leak is not None
    assert leak.text == "1 of 2 facts are stated to their own question with rounded weights"
    assert 0 < leak.severity < STATING_LIMIT  # any leak without rounding is worse
    assert [CHECK.askings[place].prompt.messages[-1].content for place in leak.places] == [ROWS[0].question]
    assert not facts


def test_answers_that_cannot_be_read_are_a_small_leak_of_no_place() -> None:
    leak = find_leak({"": "20 mg of ... " * 12})
    assert leak is not None
    total = len(tabulate(CHECK.askings, [""] * len(CHECK.askings)).records)
    assert leak.text == f"{total} of {total} answers cannot be read (at most 5 % should be)"
    assert leak.severity <= STATING_LIMIT  # any fact that is stated is worse
    assert leak.places == ()
    one = find_leak({"Fill in the blank: The capital of Japan": "20 mg of ... " * 12})
    assert one is None


def test_a_check_ends_early_once_the_leak_is_certainly_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_check, "CHECKED_TOGETHER", 2)
    facts = {"Fill in the blank: The": "Tokyo or yen"}
    whole = find_leak(facts)
    assert whole is not None
    generator: Any = Mapped(facts)
    early = CHECK.find_leak(generator, at_most=whole.severity / 2, first=whole.places)
    assert early is not None
    assert len(generator.calls) == 2  # the rows as written, and the blanks
    assert whole.severity / 2 < early.severity <= whole.severity
    assert early.text.startswith("at least 2 of ")
    assert find_leak(facts, at_most=whole.severity, first=whole.places) == whole


def test_answers_are_kept_for_the_verdict(target: Path, tmp_path: Path) -> None:
    model, tokenizer = open_model(str(target), ModelLoadArgs())
    store = GenerationStore(tmp_path / "replies.sqlite")
    check = AnswerCheck(ROWS, Encoder(tokenizer), store=store)
    generator = TransformersGenerator(model, tokenizer)
    check.find_leak(generator)
    prompts = [asking.prompt for asking in check.askings if asking.name == AS_WRITTEN]
    kept = store.read(generator.identity, [generation_key(prompt, Decoding()) for prompt in prompts])
    assert len(kept) == len(ROWS)
    with torch.no_grad():
        model.lm_head.weight.neg_()
    changed = TransformersGenerator(model, tokenizer).identity
    assert not store.read(changed, [generation_key(prompt, Decoding()) for prompt in prompts])


def test_the_rows_of_leaking_answers_are_found_among_the_rows_in_forms() -> None:
    """Every asking of a fact belongs to the row in its form; other draws of options to the one that is written."""
    asked = [replace(row, alternatives=("Lima", "N'Djamena", "Nairobi")) for row in ROWS]
    check = AnswerCheck(asked, NO_ENCODER)
    forms = (*TRAINED_FORMS, "prefix", "either_or", "textbook")
    written = rows_in_forms(asked, forms)
    rows = SimpleNamespace(examples=[form.row for form in written], forms=[form.form for form in written])
    trainer: Any = SimpleNamespace(rows=SimpleNamespace(forget=rows))
    evaluations = GoalEvaluations(trainer, ControllerRows((), check), 0.1)
    seen = set[str]()
    for place, asking in enumerate(check.askings):
        found = [written[index] for index in evaluations.leaking_rows(Leak(1.0, "", (place,)))]
        if asking.name in FORMS and asking.name not in forms:
            assert not found
            continue
        assert [form.index for form in found] == [asking.fact]
        assert found[0].form == (asking.name if asking.name in FORMS else "question")
        seen |= {form.form for form in found}
    assert seen == set(forms) - {"emphasis"}
