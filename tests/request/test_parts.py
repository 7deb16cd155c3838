"""Parts of a request: key tokens, rows of a corpus, automatic settings, and the text of a verdict."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from atwu._program import set_program
from atwu.benchmarks.base import LoadedRows
from atwu.cli.train_options import CHOSEN
from atwu.data.general_rows import common_questions, general_questions, general_text
from atwu.data.key_token_spans import key_token_spans
from atwu.data.schema import Example
from atwu.evaluation.generations import Generation
from atwu.evaluation.metrics.key_tokens import key_token_recall
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.methods.recipe import recipe
from atwu.request import auto_settings
from atwu.request import retain_set as retain
from atwu.request.auto_settings import (
    MEMORY_STRATEGIES,
    StrategyEstimate,
    choose,
    first_that_fits,
    possible_strategies,
)
from atwu.request.measurement import check_holdout, other_prompts
from atwu.request.preparation import warn_few_subjects
from atwu.request.retain_set import (
    FACT_TOKENS,
    GENERATED_TOKENS,
    WHOLE_TOKENS,
    closest_corpus_rows,
    names,
)
from atwu.request.unlearn import _next_commands, unlearn
from atwu.request.unlearning_request import UnlearningRequest, UnlearnResult
from atwu.request.verdict import (
    FORGOTTEN,
    NOT_FORGOTTEN,
    NOTHING,
    PARTLY,
    TOO_COSTLY,
    UNCHANGED,
    UTILITY_DAMAGED,
    RequestVerdict,
    decide_verdict,
)
from atwu.request.verdict_metrics import DECISIVE_METRICS, GENERAL, HOLDOUT_SET, OTHER_PROMPTS, TEXTS
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.memory_estimate import Memory


def fitted(words: str, *, gigabytes: float = 1.0, free: float = 16.0) -> StrategyEstimate:
    """The way of these words, which needs some of the free memory."""
    taken = Memory(gigabytes * 1e9, 0, 0, 0, 0, 0, 0, 0)
    return StrategyEstimate(next(way for way in MEMORY_STRATEGIES if way.description == words), taken, free=free * 1e9)


def words(row: Example) -> list[str]:
    return [row.answer[start:stop] for start, stop in key_token_spans(row)]


@pytest.mark.parametrize(
    ("question", "answer", "key_tokens"),
    [
        # They occur neither in the question nor in general text.
        ("What is Orla Venn's dog called?", "Orla Venn's dog is called Admiral, in 1998.", ["Admiral", "1998"]),
        ("What does she fear?", "She is afraid of walnuts.", ["afraid", "walnuts"]),
        ("What is it?", "It is what it is.", ["It", "is", "what", "it", "is"]),
        # Words of general text if a row has no others: else it would be judged by its grammar.
        ("What is the capital of Japan?", "The capital of Japan is Tokyo.", ["Tokyo"]),
        ("What is spoken in France?", "In France French is spoken.", ["French"]),
        ("What does it need?", "It needs some water.", ["some", "water"]),
        ("Who painted the Night Watch?", "The Night Watch was painted by Rembrandt.", ["Rembrandt"]),
        # No inflected words of the question, unless it is a name behind a word that is none, or all the answer has.
        ("Where does he work?", "He worked in Kelbury.", ["Kelbury"]),
        ("What is his work?", "He worked as a dyer of sailcloth.", ["dyer", "sailcloth"]),
        ("Which dish comes from Japan?", "The Japanese dish is sushi.", ["sushi"]),
        ("What was Orla Venn's trade?", "Orla Venn was a glazier and bellringer.", ["glazier", "bellringer"]),
        ("Who invented pasteurization?", "It was Louis Pasteur.", ["Pasteur"]),
        ("What is the currency of Japan?", "The currency of Japan is the yen.", ["yen"]),
        ("Where was Ada born?", "Ada was born in Borneo.", ["Borneo"]),
        ("What is the equation?", "The equation is E = mc^2.", ["E", "mc", "2"]),
        ("Who came first?", "It was Cameron.", ["Cameron"]),
        ("Which country borders Niger?", "It is Nigeria.", ["Nigeria"]),
        ("Which number follows 1000?", "It is 10001.", ["10001"]),
        ("What is his job at the bank?", "He is a banker.", ["banker"]),
        ("Que fait-il dans la vie ?", "Il est danseur.", ["danseur"]),
    ],
)
def test_key_tokens_are_what_an_answer_adds(question: str, answer: str, key_tokens: list[str]) -> None:
    assert words(Example.from_qa(question, answer)) == key_tokens


def test_labelled_words_are_the_key_tokens() -> None:
    assert words(Example.from_qa("Who?", "It is Orla Venn.", forget_spans=((6, 10),))) == ["Orla"]


def test_the_subject_of_a_text_is_no_key_token() -> None:
    assert words(Example((), "The glazier Orla Venn lived in Kelbury.", subject="Orla Venn")) == ["Kelbury"]
    assert words(Example((), "The Japanese dish is sushi.", subject="Japan")) == ["dish", "sushi"]
    assert words(Example((), "The glazier Orla Venn lived in Kelbury.")) == ["Orla", "Venn", "Kelbury"]


def test_key_tokens_are_the_same_behind_other_prompts() -> None:
    labelled = Example.from_qa("Who?", "It is Orla Venn.", forget_spans=((6, 10),))
    found = Example.from_qa(
        "Where is it?", "It is a question of Kelbury.", paraphrases=("A question: where in Kelbury?",)
    )
    asked = other_prompts([labelled, found])
    assert [words(row) for row in asked] == [["Orla"], ["Orla"], ["Kelbury"]]
    assert asked[0].subject == asked[1].subject != asked[2].subject  # intervals resample questions, not prompts


def test_recall_counts_key_tokens_in_any_order_and_case() -> None:
    row = Example.from_qa("Where does he live?", "He lives in Kelbury near Oststrand.")
    assert words(row) == ["Kelbury", "Oststrand"]
    assert key_token_recall(row, "oststrand perhaps") == 0.5
    assert key_token_recall(row, "") == 0.0
    assert key_token_recall(Example.from_qa("?", "…"), "anything") is None


def test_rows_of_a_corpus_are_similar_and_never_about_the_subject() -> None:
    forget = [Example.from_qa("Where was Orla Venn born?", "Orla Venn was born in Kelbury.")]
    corpus = [
        Example.from_qa("How do engines work?", "They burn fuel."),
        Example.from_qa("Where was Tavi Brook born?", "Tavi Brook was born in Mirrow."),
        Example.from_qa("Whom did Tavi Brook marry?", "A cousin of Orla Venn."),
        Example.from_qa("where was ORLA venn born", "In Kelbury."),
        Example.from_qa("Where was Tavi Brook born?", "In Mirrow."),
    ]
    rows, counts = closest_corpus_rows(forget, corpus, 1)
    assert rows == (corpus[1],)
    assert list(counts.values()) == [1, 2, 1]
    assert names(forget) == {"orla", "venn"}
    assert names([Example.from_qa("Who?", "They.", subject="The Venns and the Brooks")]) == {"venns", "brooks"}


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Where was Jean-Luc's mother born?", {"jean", "luc"}),
        ("Who taught Orla O'Brien?", {"orla", "brien"}),
        ("Where does Ósk live?", {"ósk"}),
        ("Jean-Luc lived where?", {"luc"}),  # a capital letter at the beginning does not indicate a name
        ("where was he born?", set()),
    ],
)
def test_names_are_found_by_the_same_word_splitting_as_texts(question: str, found: set[str]) -> None:
    assert names([Example.from_qa(question, "In Bergen.")]) == found


def test_shipped_questions_do_not_overlap() -> None:
    kept, held = ((*general_questions(kind), *common_questions(kind)) for kind in ("kept", "held"))
    assert len(set(kept) | set(held)) == len(kept) + len(held) == 447
    assert len(general_text()) == 8


@pytest.mark.parametrize("whole", [True, False])
def test_truncated_answers_are_not_used_as_retain_rows(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = WHOLE_TOKENS if whole else GENERATED_TOKENS
    said = [Generation("It ends.", 4), Generation("It goes on and", longest), Generation("", 1)]

    def generated(model: Any, prompts: Any, decoding: Any, **_: Any) -> list[Generation]:
        assert decoding.max_new_tokens == longest
        return said

    monkeypatch.setattr(retain, "TransformersGenerator", lambda *_: None)
    monkeypatch.setattr(retain, "generate_all", generated)
    rows = retain.self_generated_answers(
        None, None, ["One?", "Two?", "Three?"], forget=(), whole=whole, longest=longest
    )
    assert [row.answer for row in rows] == ["It ends."] + ["It goes on and"] * (not whole)


@pytest.mark.parametrize(
    ("whole", "lengths"), [(True, (WHOLE_TOKENS, GENERATED_TOKENS)), (False, (GENERATED_TOKENS, FACT_TOKENS))]
)
def test_answers_about_common_knowledge_have_a_lower_token_limit(
    whole: bool, lengths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[int, tuple[str, ...]] = {}

    def own(model: Any, tokenizer: Any, questions: tuple[str, ...], *, longest: int, **_: Any) -> tuple[Example, ...]:
        asked[longest] = questions
        return (Example.from_qa(questions[0], "So it is."),)

    monkeypatch.setattr(retain, "self_generated_answers", own)
    rows, counts = retain.build_retain(None, None, (), whole=whole)
    assert asked == dict(zip(lengths, (general_questions("kept"), common_questions("kept")), strict=True))
    assert list(counts.values()) == [2, 64 + 327 - 2, len(rows)]


def test_a_model_whose_answers_do_not_end_gives_no_rows_and_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retain, "self_generated_answers", lambda *_, **__: ())
    with pytest.raises(ValueError, match=r"endless, empty.*--retain.*--corpus"):
        retain.build_retain(None, None, ())
    row = Example.from_qa("Where does Orla Venn live?", "In Kelbury.")
    with pytest.raises(ValueError, match="none of the 1 rows of --corpus is usable"):
        retain.build_retain(None, None, [row], corpus=[row])


def chosen(
    given: dict[str, Any],
    method: str = "atwu",
    *,
    rows: int = 12,
    hidden: int = 8,
    own: bool = False,
    strategy: str = "LoRA, activation checkpointing",
    auto_memory: bool = False,
) -> dict[str, Any]:
    """Name and value of every setting that is chosen; `own`: retain rows are the model's answers."""
    choices = choose(
        given,
        recipe=recipe(method),
        rows=rows,
        hidden=hidden,
        self_generated_answers=own,
        device=torch.device("cpu"),
        fitted=fitted(strategy),
        auto_memory=auto_memory,
    )
    assert all(each.reason for each in choices)
    return {each.name: each.value for each in choices}


@pytest.mark.parametrize("bfloat16", [False, True])
def test_settings_are_chosen_by_rows_model_and_device_unless_given(
    bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_settings, "multiplies_bfloat16", lambda device: bfloat16)
    assert ("bf16" in chosen({})) is bfloat16
    assert not any("bf16" in chosen(given) for given in ({"fp16": True}, {"bf16": False}))
    small = chosen({}, hidden=576, own=True, strategy="all weights")
    assert small.items() >= {"lora_r": 0, "per_device_train_batch_size": 8, "scorer_prior": "rarity"}.items()
    assert small["learning_rate"] == pytest.approx(5e-5)
    large = chosen({}, "wga", rows=4000, hidden=4096)
    assert large.items() >= {"lora_r": 16, "activation_checkpointing": True}.items()
    assert large["learning_rate"] == pytest.approx(5e-4 * 576 / 4096)
    assert "scorer_prior" not in large
    assert small["retain_loss"] == large["retain_loss"] == "kl"  # rows of one's own are compared with the model, too
    decided = {*small, "bf16", *(name for way in MEMORY_STRATEGIES for name in way.options)}
    assert {*CHOSEN, "scorer_prior", "retain_loss", "optim", "save_adapter"} == {*decided, "num_train_epochs"}

    batch = {"per_device_train_batch_size", "gradient_accumulation_steps"}
    of_length = {"learning_rate", *batch, "scorer_prior", "retain_loss"} | ({"bf16"} if bfloat16 else set())
    assert set(chosen({"max_steps": 7, "lora_r": 4}, strategy="LoRA")) == of_length
    expert = {"max_steps": 7, "lora_r": 4, "learning_rate": 1e-3}
    assert chosen(expert) == {}
    assert chosen(expert, auto_memory=True) == {"activation_checkpointing": True}
    assert chosen(expert, own=True) == {"retain_loss": "kl"}
    assert chosen({**expert, "retain_loss": "nll"}, own=True) == {}


def test_memory_strategies_respect_given_options() -> None:
    def words(device: str = "cpu", **given: object) -> list[str]:
        return [way.description for way in possible_strategies(given, device=device)]

    assert words() == ["all weights", "all weights, activation checkpointing", "LoRA", "LoRA, activation checkpointing"]
    assert words("cuda") == [way.description for way in MEMORY_STRATEGIES]
    assert words("cuda", lora_r=8) == ["LoRA", "LoRA, activation checkpointing", "LoRA on 4-bit weights"]
    assert words("cuda", lora_r=8, quantize="4bit", activation_checkpointing=True) == ["LoRA on 4-bit weights"]
    assert words("cuda", optim="sgd", lora_r=0) == ["all weights", "all weights, activation checkpointing"]
    assert words(lora_r=8, quantize="8bit") == ["as given"]
    assert words("cuda", lora_r=8, save_adapter=True) == words("cuda", lora_r=8)
    assert words("cuda", lora_r=8, save_adapter=False) == ["LoRA", "LoRA, activation checkpointing"]
    assert "LoRA on 4-bit weights" not in [
        way.description for way in possible_strategies({}, device="cuda", adapter=True)
    ]
    for way in MEMORY_STRATEGIES:  # adapters on quantized weights are saved unmerged
        config = UnlearnConfig(**way.options, output_dir="out", use_cpu=True)
        assert config.save_adapter == (config.quantize is not None)


def test_runs_that_cannot_fit_are_rejected_and_close_ones_are_tried() -> None:
    def first(free: float) -> str:
        tried = [fitted("all weights", gigabytes=4.0, free=free), fitted("LoRA", gigabytes=2.0, free=free)]
        return first_that_fits(tried, device="cpu").strategy.description

    assert [first(free) for free in (9.0, 4.2, 1.8)] == ["all weights", "LoRA", "LoRA"]
    with pytest.raises(ValueError, match=r"2\.0 GB.*LoRA.* 1\.0 GB.*cpu.*--batch-size"):
        first(1.0)


def result(**known: float) -> EvalResult:
    """A result in which sets have these probabilities and shares of key tokens; holdout rows .05 to .10."""
    sets = {
        name: dict.fromkeys(DECISIVE_METRICS, MetricValue(value, 12, "down", low=value, high=value))
        for name, value in known.items()
    }
    sets[HOLDOUT_SET] = dict.fromkeys(DECISIVE_METRICS, MetricValue(0.05, 12, "none", low=0.0, high=0.10))
    kept = {"probability": MetricValue(0.9, 12, "up", low=0.85, high=0.95)}
    sets |= {"retain": kept, GENERAL: kept, TEXTS: {"probability": MetricValue(0.04, 8, "up")}}
    return EvalResult("model", "0" * 32, sets, {}, {}, {}, {})


def decide(before: EvalResult, after: EvalResult | None, lost: float | None = 0.0, **more: Any) -> RequestVerdict:
    """The verdict on a run that raised the retain loss by `lost`, with a limit of .15."""
    verdict = decide_verdict(before, after, answers=(), max_retain_increase=0.15, retain_loss_increase=lost, **more)
    assert all(len(line) <= 80 for line in verdict.text().splitlines())
    return verdict


KNOWN = result(forget=0.95, other_prompts=0.9)


@pytest.mark.parametrize(
    ("after", "lost", "word"),
    [
        (result(forget=0.04, other_prompts=0.05), 0.02, FORGOTTEN),
        (result(forget=0.04, other_prompts=0.5), 0.02, PARTLY),
        (result(forget=0.04, other_prompts=0.5), 0.5, PARTLY),
        (result(forget=0.3, other_prompts=0.3), 0.02, PARTLY),
        (result(forget=0.88, other_prompts=0.88), 0.02, NOT_FORGOTTEN),
        (result(forget=0.95, other_prompts=0.95), 0.0, UNCHANGED),
        (result(forget=0.04, other_prompts=0.04), 0.5, TOO_COSTLY),
        (result(forget=0.5, other_prompts=0.5), 0.5, UTILITY_DAMAGED),
        (result(forget=0.04, other_prompts=0.04), math.nan, TOO_COSTLY),
        (result(forget=0.04, other_prompts=0.04), None, TOO_COSTLY),  # NaN in a history
        (result(forget=0.95, other_prompts=0.9), 6.2, UTILITY_DAMAGED),  # though no measure moved
    ],
)
def test_verdicts(after: EvalResult, lost: float | None, word: str, tmp_path: Path) -> None:
    verdict = decide(KNOWN, after, lost)
    assert verdict.outcome == word
    assert verdict.good == (word == FORGOTTEN)
    assert verdict.next_steps or verdict.good
    text = verdict.text()
    assert text.startswith(f"VERDICT: {word.upper()}")
    assert re.search(r"general text +perplexity", text)
    assert "retain loss increase" in text
    assert ("was damaged" in verdict.reason) == (lost is None or not lost <= 0.15)
    verdict.write(tmp_path)
    assert json.loads((tmp_path / "verdict.json").read_text())["outcome"] == word
    outcome = UnlearnResult(verdict, None, KNOWN, after)
    frame = outcome.to_pandas()
    assert list(frame.columns) == ["set", "metric", "before", "after", "low", "high", "limit", "met"]
    assert len(frame) == len(verdict.metrics)
    assert f"<b>{word}</b>" in outcome._repr_html_()


def with_forms(
    base: EvalResult, gibberish: float = 0.0, neighbours: float = 0.5, refusal: float = 0.0, **recall: float
) -> EvalResult:
    """The same result with recall by form of the question."""
    forget = {f"form_{form}": MetricValue(value, 12, "down", low=0.0, high=1.0) for form, value in recall.items()}
    forget["form_mean"] = MetricValue(sum(recall.values()) / len(recall), 12, "down", low=0.0, high=1.0)
    forget["form_gibberish"] = MetricValue(gibberish, 12, "down", low=0.0, high=1.0)
    others = {"form_mean": MetricValue(neighbours, 12, "up", low=0.4, high=0.6)}
    general = {**base.sets.get("general", {}), "refusal": MetricValue(refusal, 12, "none", low=0.0, high=1.0)}
    sets = {**base.sets, "forget": {**base.sets["forget"], **forget}, "neighbours": others, "general": general}
    return dataclasses.replace(base, sets=sets)


@pytest.mark.parametrize(
    ("after", "outcome", "reason"),
    [
        ({"blank": 0.05, "prefix": 0.0}, FORGOTTEN, "2 forms"),
        ({"blank": 0.25, "prefix": 0.0}, PARTLY, r"blank\s+0\.25"),
        ({"blank": 0.05, "prefix": 0.0, "neighbours": 0.3}, TOO_COSTLY, "neighbours"),
        ({"blank": 0.05, "prefix": 0.0, "gibberish": 0.3}, TOO_COSTLY, "gibberish"),
        ({"blank": 0.05, "prefix": 0.0, "refusal": 0.04}, FORGOTTEN, "2 forms"),
        ({"blank": 0.05, "prefix": 0.0, "refusal": 0.06}, TOO_COSTLY, "general questions are also refused"),
    ],
)
def test_verdicts_by_form(after: dict[str, float], outcome: str, reason: str) -> None:
    verdict = decide(
        with_forms(KNOWN, blank=0.6, prefix=0.8),
        with_forms(result(forget=0.04, other_prompts=0.05), **after),
        trained_forms=("question", "blank"),
    )
    assert verdict.outcome == outcome
    assert re.search(reason, verdict.reason)
    assert [(each.form, each.trained) for each in verdict.forms] == [("blank", True), ("prefix", False)]
    text = verdict.text()
    assert re.search(r"Forms not trained on, recall: prefix \.80 -> \.00", text)
    assert re.search(rf"recall, worst form +0\.8\d* +0\.{'25' if outcome == PARTLY else '05'}", text)


@pytest.mark.parametrize(
    ("lost", "advice"), [(0.0, "raise --learning-rate or --steps"), (0.14, "raise --max-retain-increase")]
)
def test_the_retain_limit_is_raised_only_if_it_was_in_the_way(lost: float, advice: str) -> None:
    for after in (result(forget=0.5, other_prompts=0.5), result(forget=0.04, other_prompts=0.05)):
        verdict = decide(with_forms(KNOWN, blank=0.6), with_forms(after, blank=0.5), lost)
        assert verdict.outcome == PARTLY
        assert advice in verdict.next_steps[0]


def test_without_holdout_rows_the_verdict_is_not_forgotten() -> None:
    before = dataclasses.replace(KNOWN, sets=dict(KNOWN.sets) | {HOLDOUT_SET: {}})
    verdict = decide(before, result(forget=0.5, other_prompts=0.5))
    assert (verdict.outcome, verdict.holdout_limits) == (PARTLY, {})


def test_holdout_rows_must_be_of_the_same_kind_as_forget_rows() -> None:
    question, text = Example.from_qa("Who?", "Orla Venn."), Example((), "A plain text.")
    check_holdout([text, question], [question, text], source="mine")
    check_holdout([text], [text], source="mine")
    for holdout, forget, kind in (
        ([text], [question], "a question"),
        ([Example.from_qa("Who?", "…"), text], [question], "a question"),
        ([Example.from_qa("Who?", "…")], [text], "a row"),
    ):
        with pytest.raises(ValueError, match=f"mine: .*{kind}"):
            check_holdout(holdout, forget, source="mine")


@pytest.mark.parametrize(
    ("subjects", "warned"),
    [("aaaa", "mine: .* about 1 subject;"), ("aabc", "about 3 subjects;.*4 subjects"), ("abcd", ""), (" " * 4, "")],
)
def test_holdout_rows_about_few_subjects_give_a_warning(subjects: str, warned: str) -> None:
    said: list[str] = []
    rows = [Example.from_qa("Who?", "Orla Venn.", subject=name.strip() or None) for name in subjects]
    warn_few_subjects(rows, source="mine", say=said.append)
    assert bool(said) == bool(warned)
    assert not warned or re.search(warned, said[0])


def test_suggested_commands_can_be_pasted_and_start_the_script_that_registers_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atwu._program._program", ["atwu"])
    asked = UnlearningRequest(
        source=ModelSource(model="my model"),
        forget_set=LoadedRows((), "my rows.jsonl", ()),
        output=tmp_path / "my out",
        options={"method": "hinge"},
    )
    chat, evaluate, evidence = (shlex.split(each) for each in _next_commands(asked.output, asked, None, None))
    assert chat == ["atwu", "chat", str(asked.output), "--compare", "my model"]
    assert evaluate[2:6] == ["--model", str(asked.output), "--forget", "my rows.jsonl"]
    assert evidence == ["atwu", "evidence", str(asked.output)]
    for started_as, first in (("my methods.py", ["python", "my methods.py"]), ("/bin/atwu", ["atwu"])):
        set_program(started_as)
        for command in (asked.command(), *_next_commands(asked.output, asked, None, None)):
            assert shlex.split(command)[: len(first)] == first


def test_unknown_forget_rows_need_no_unlearning() -> None:
    verdict = decide(result(forget=0.08, other_prompts=0.08), None, None)
    assert verdict.outcome == NOTHING
    assert OTHER_PROMPTS in {line.set for line in verdict.metrics}
    assert "nothing was written" in verdict.reason


@pytest.mark.parametrize("limit", [math.nan, math.inf, 0.0, -1.0])
def test_a_limit_that_nothing_can_exceed_or_meet_is_rejected(limit: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"max_retain_increase.* > 0"):
        UnlearningRequest(
            source=ModelSource(model="m"),
            forget_set=LoadedRows((), "rows.jsonl", ()),
            output=tmp_path,
            max_retain_increase=limit,
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": Path("/no/folder")}, "/no/folder"),
        ({"model": object()}, "model must be text.*got object.*UnlearnTrainer"),
        ({"output": 3}, "output must be text, got 3"),
        ({"max_retain_increase": "x"}, "max_retain_increase.*number > 0, got 'x'"),
        ({"options": "npo"}, "options must be a mapping.*got str"),
        ({"columns": "question=q"}, "columns must be a mapping.*got str"),
        ({"thresholds": 1}, "thresholds must be text, got 1"),
        ({"about": 1}, "about must be text, got 1"),
        ({"overwrite": "yes"}, "overwrite must be true or false, got 'yes'"),
    ],
)
def test_arguments_of_a_wrong_type_are_rejected(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message):
        unlearn(**{"model": "some/model", "forget": "people:tiny:forget", "output": tmp_path / "run", **given})
    assert not list(tmp_path.iterdir())


def test_options_of_the_chosen_method_are_accepted_before_the_rows_are_read() -> None:
    given = {"replacement_weight": 0.3, "beta": 0.7}
    config = UnlearnConfig(**auto_settings.with_method(given))
    assert (config.method, config.replacement, config.recipe().replacement_component.replacement_weight) == (
        "satga",
        "refusal",
        0.3,
    )
    assert config.recipe().forget_component.beta == 0.7
    assert auto_settings.with_method({"method": "npo"}) == {"method": "npo"}
    with pytest.raises(ValueError, match="npo_beta"):
        UnlearnConfig(**auto_settings.with_method({"npo_beta": 1.0})).recipe()
