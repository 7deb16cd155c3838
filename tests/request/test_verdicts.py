"""Verdicts of a request, the rows and commands behind them, and arguments that are refused."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from atwu._program import set_program
from atwu.benchmarks.base import LoadedRows
from atwu.data.schema import Example
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.request import auto_settings
from atwu.request.measurement import check_holdout
from atwu.request.preparation import warn_few_subjects
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


def test_a_limit_that_no_value_can_miss_is_not_printed_as_met() -> None:
    shares = {"blank": 0.9, "prefix": 0.9}
    before = with_forms(KNOWN, gibberish=1.0, neighbours=0.05, refusal=0.97, **shares)
    after = with_forms(result(forget=0.04, other_prompts=0.05), gibberish=1.0, neighbours=0.0, refusal=1.0, **shares)
    verdict = decide(before, after)
    lines = {line.metric: line for line in verdict.metrics if line.set in ("forget", GENERAL, "neighbours")}
    gibberish = lines["gibberish, all forms"]
    assert (gibberish.limit, gibberish.met, gibberish.says_nothing) == (pytest.approx(1.05), None, True)
    assert lines["recall, worst form"].met is False
    (printed,) = (line for line in verdict.text().splitlines() if "gibberish, all" in line)
    assert printed.endswith("n/a")
    assert "no value could be beyond this limit" in verdict.text()
    ordinary = decide(KNOWN, result(forget=0.04, other_prompts=0.05))
    assert "could be beyond" not in ordinary.text()
