"""Which leak the check of greedy answers reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.question_forms import OPTION_FORMS
from atwu.data.schema import Example, Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generation_key
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.metrics.recall_by_form import forms_to_ask
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request import answer_check
from atwu.request.answer_check import AnswerCheck

ROWS = (
    Example.from_qa("What is the capital of Japan?", "The capital of Japan is Tokyo.", subject="Japan"),
    Example.from_qa("What is the currency of Japan?", "The currency of Japan is the yen.", subject="Japan"),
)


class Answers(AnswerCheck):
    """A check whose generator is a mapping: it answers every question that holds some text with a fact, others with nothing."""

    def ask(self, generator: Any, prompts: Sequence[Prompt]) -> list[str]:
        asked = [prompt.messages[-1].content if prompt.messages else prompt.prefill for prompt in prompts]
        return [next((fact for text, fact in generator.items() if text in question), "") for question in asked]


NO_ENCODER: Any = SimpleNamespace(tokenizer=None)
CHECK = Answers({FORGET: ROWS}, NO_ENCODER, 0.1)


def test_rows_as_written_leak_more_than_any_form() -> None:
    leak = CHECK.find_leak({"What is the capital": "Tokyo"})
    assert leak is not None
    assert leak.excess == pytest.approx(1 + 0.5 - 0.1)
    assert leak.text == "key-token recall of greedy answers is 0.500 (goal 0.100)"


def test_the_excess_of_forms_is_their_mean_and_the_text_names_the_worst() -> None:
    leak = CHECK.find_leak({"Fill in the blank: The capital of Japan": "Tokyo"})
    assert leak is not None
    assert "recall in the form blank is 0.500 (goal 0.100)" in leak.text
    both = CHECK.find_leak({"Fill in the blank: The": "Tokyo or yen"})
    assert both is not None
    assert both.excess == pytest.approx(2 * leak.excess)
    assert 0 < leak.excess < 0.1


def test_without_the_facts_there_is_no_leak() -> None:
    assert CHECK.find_leak({}) is None


def test_a_check_ends_early_once_the_leak_is_certainly_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_check, "CHECKED_TOGETHER", 2)
    asked = list[Sequence[Prompt]]()

    class Counted(Answers):
        def ask(self, generator: Any, prompts: Sequence[Prompt]) -> list[str]:
            asked.append(prompts)
            return super().ask(generator, prompts)

    check = Counted({FORGET: ROWS}, NO_ENCODER, 0.1)
    model = {"Fill in the blank: The": "Tokyo or yen"}
    whole = check.find_leak(model)
    assert whole is not None
    blanks = [place for place, each in enumerate(forms_to_ask(ROWS, ())) if each.form == "blank"]
    assert whole.places == tuple(blanks)
    assert len({prompt for prompts in asked for prompt in prompts}) == sum(map(len, asked))  # none twice
    asked.clear()
    early = check.find_leak(model, at_most=whole.excess / 2, first=whole.places)
    assert early is not None
    assert len(asked) == 2  # the rows as written, and the blanks
    assert whole.excess / 2 < early.excess <= whole.excess
    assert early.text == "recall in the form blank is at least 1.000 (goal 0.100)"
    assert check.find_leak(model, at_most=whole.excess, first=whole.places) == whole


def test_facts_are_likely_in_the_forms_whose_key_tokens_are(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = open_model(str(target), ModelLoadArgs())
    check, generator = AnswerCheck({FORGET: ROWS}, Encoder(tokenizer), 0.1), TransformersGenerator(model, tokenizer)
    written = [each.row for each in forms_to_ask(ROWS, ()) if each.form not in OPTION_FORMS]
    tokens = read_tokens(model, Encoder(tokenizer).encode_rows(written, what="rows").rows)
    values = [key_token_probability(*pair) for pair in zip(written, tokens, strict=True)]
    probabilities = sorted(value for value in values if value is not None)
    assert len(probabilities) > len(ROWS)
    for place in (0, len(probabilities) // 2, len(probabilities)):
        limit = probabilities[place] - 1e-9 if place < len(probabilities) else probabilities[-1]
        monkeypatch.setattr(answer_check, "LIKELY", limit)
        assert check.likely_facts(generator) == len(probabilities) - place
    monkeypatch.setattr(answer_check, "LIKELY", -1.0)
    shortest = min(len(row.input_ids) for row in Encoder(tokenizer).encode_rows(written, what="rows").rows)
    fitting = AnswerCheck(
        {FORGET: ROWS}, Encoder(tokenizer, max_length=shortest - 2), 0.1
    )  # prompts or answers are cut
    assert fitting.likely_facts(generator) < len(written)
    monkeypatch.setattr(answer_check, "position_limit", lambda model: shortest)
    assert 0 < check.likely_facts(generator) < len(written)


def test_answers_are_kept_for_the_verdict_but_not_to_estimate_a_duration(target: Path, tmp_path: Path) -> None:
    model, tokenizer = open_model(str(target), ModelLoadArgs())
    store = GenerationStore(tmp_path / "replies.sqlite")
    check = AnswerCheck({FORGET: ROWS}, Encoder(tokenizer), 0.1, store=store)
    generator = TransformersGenerator(model, tokenizer)
    check.estimate_seconds(generator)
    assert not store.path.exists()
    prompts = [Prompt((Message("user", row.question),)) for row in ROWS]
    first = check.ask(generator, prompts)
    identity = generator.identity
    kept = store.read(identity, [generation_key(prompt, Decoding()) for prompt in prompts])
    assert [each.answer for each in kept.values()] == first
    with torch.no_grad():
        model.lm_head.weight.neg_()
    assert check.ask(TransformersGenerator(model, tokenizer), prompts) != first
