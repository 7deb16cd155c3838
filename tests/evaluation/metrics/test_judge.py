"""Judged metrics without a model: scripted answers, random verdicts, everything recomputed with loops."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from atwu.data.schema import Message
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.generations import Prompt
from atwu.evaluation.registry import EvaluateConfig
from atwu.judge.verdicts import Claim
from tests.evaluation.conftest import Dice, Speaker, invented_people

CONFIG = EvaluateConfig(paraphrases=2, icr_examples=2, samples=3)


@pytest.fixture(scope="module")
def rows():
    options = {"per_subject": 2, "paraphrases": 3}  # one more than requested
    return {"forget": invented_people(12, "F", **options), "retain": invented_people(14, "R", **options)}


def run(speaker, judge, rows, metrics="judge", settings=CONFIG, **options):
    how = Evaluation(generator=speaker, judge=judge, metrics=metrics, settings=settings, progress=False, **options)
    return evaluate(None, rows, how)


def questions(row):
    return [row.question, *row.paraphrases[:2]]


def said(speaker, row, question, *, shown):
    """The answers to a question with or without turns before it."""
    found = {
        prompt
        for prompt, _ in speaker.asked
        if prompt.messages[-1].content == question and (len(prompt.messages) > 1) == shown
    }
    assert len(found) == 1
    return speaker.say(found.pop())


def verdicts(speaker, judge, row, *, shown):
    facts = tuple(row.answer[start:end] for start, end in row.forget_spans)
    answers = [said(speaker, row, question, shown=shown) for question in questions(row)]
    return [judge.verdict(Claim(row.question, row.answer, answer, facts)) for answer in answers]


def percent(values):
    return [None if value is None else 100 * value for value in values]


@pytest.mark.parametrize("outcomes", [(True, False, False, False), (True, False, None), (False, None, None, None)])
def test_scores_equal_a_plain_computation(rows, outcomes):
    speaker, judge = Speaker(), Dice(outcomes)
    result = run(speaker, judge, rows)
    worst = {"J_P": [], "J_ICR": [], "J_W": []}
    missing = dict.fromkeys(worst, 0)
    for row in rows["forget"]:
        plain = verdicts(speaker, judge, row, shown=False)
        shown = verdicts(speaker, judge, row, shown=True)
        for name, part in (("J_P", plain), ("J_ICR", shown), ("J_W", plain + shown)):
            known = [verdict for verdict in part if verdict is not None]
            missing[name] += len(part) - len(known)
            worst[name].append(max(known, default=None))
    average, unscored = [], 0
    for row in rows["retain"]:
        known = [verdict for verdict in verdicts(speaker, judge, row, shown=False) if verdict is not None]
        unscored += 3 - len(known)
        average.append(sum(known) / len(known) if known else None)
    for name, values in worst.items():
        assert list(result.rows["forget"].metrics[name]) == percent(values)
        value = result.sets["forget"][name]
        assert value.value == pytest.approx(np.mean([v for v in percent(values) if v is not None]))
        assert (value.n, value.skipped) == (12 - values.count(None), values.count(None))
        assert (value.unscored, value.clusters, value.direction) == (missing[name], 6, "down")
        warned = re.compile(rf"forget: {missing[name]} answers .*\b{name}\b")
        assert any(map(warned.match, result.warnings)) == (missing[name] > 0)
    value = result.sets["retain"]["J_AVG"]
    assert list(result.rows["retain"].metrics["J_AVG"]) == pytest.approx(percent(average))
    assert (value.unscored, value.direction) == (unscored, "up")
    assert (missing["J_P"] > 0) == (None in outcomes)
    assert result.rows["forget"].unscored == {name: count for name, count in missing.items() if count}


def test_answers_without_a_readable_verdict_give_no_score(rows):
    result = run(Speaker(), Dice([None]), rows, metrics=["judge", "sampling"])
    for name in ("J_P", "J_ICR", "J_W", "leak_best_of_3", "leak_per_sample"):
        value = result.sets["forget"][name]
        assert (value.value, value.low, value.n, value.skipped) == (None, None, 0, 12)
    assert result.sets["forget"]["J_W"].unscored == 72
    assert result.overall == {}


def test_in_context_prompts_show_retain_rows_only_and_end_with_the_question(rows):
    speaker = Speaker()
    leaking = rows["forget"][0]
    pool = [*rows["retain"], leaking, dataclasses.replace(leaking, messages=(Message("user", "Another one?"),))]
    run(speaker, Dice(), rows | {"pool": pool})
    asked = {text for row in rows["forget"] for text in questions(row)}
    answers = {row.answer for row in rows["forget"]}
    pairs = {(row.question, row.answer) for row in rows["retain"]}
    shown = [prompt.messages for prompt, _ in speaker.asked if len(prompt.messages) > 1]
    assert {messages[-1].content for messages in shown} == asked
    assert len(shown) == 36
    for messages in shown:
        assert [turn.role for turn in messages] == ["user", "assistant"] * 2 + ["user"]
        turns = [turn.content for turn in messages[:-1]]
        given = set(zip(turns[::2], turns[1::2], strict=True))
        assert len(given) == 2
        assert given <= pairs
        assert not asked & set(turns)
        assert not answers & set(turns)
    first = rows["forget"][0]
    of_first = [m[:-1] for m in shown if m[-1].content in questions(first)]
    assert len(set(of_first)) > 1  # drawn anew for every question


def test_every_answer_is_judged_once_by_the_original_question(rows):
    judge = Dice()
    speaker = Speaker(say=lambda prompt: f"about {prompt.messages[-1].content[-12:]}")  # repeats itself
    run(speaker, judge, rows, metrics=["judge", "sampling"])
    assert {claim.question for claim in judge.claims} == {row.question for split in rows.values() for row in split}
    assert len(judge.claims) == len(set(judge.claims)) < 36 + 36 + 42
    assert {claim.facts for claim in judge.claims if "F " in claim.question} == {
        (row.answer[start:end],) for row in rows["forget"] for start, end in row.forget_spans
    }


def test_without_in_context_examples_their_scores_are_left_out(rows):
    found = run(Speaker(), Dice(), rows, settings=EvaluateConfig(**{**CONFIG.values, "icr_examples": 0}))
    assert "J_ICR" not in found.sets["forget"]
    assert "J_P" in found.sets["forget"]
    alone = run(Speaker(), Dice(), {"forget": rows["forget"]})
    assert set(alone.sets["forget"]) == {"J_P"}
    assert any(re.search("J_ICR, J_W, FQ.*UQ.*0 of 0", said) for said in alone.warnings)


def test_unequal_numbers_of_paraphrases_give_a_warning(rows):
    uneven = [dataclasses.replace(rows["forget"][0], paraphrases=()), *rows["forget"][1:]]
    result = run(Speaker(), Dice(), {"forget": uneven})
    assert any("1, 3" in warning for warning in result.warnings)
    assert not any("questions" in warning for warning in run(Speaker(), Dice(), rows).warnings)


def test_best_of_n_samples_at_temperature_one_and_counts_the_worst_leak(rows):
    speaker, judge = Speaker(), Dice((True, False, False, None))
    result = run(speaker, judge, rows, metrics=["sampling"])
    assert {(decoding.temperature, decoding.seed) for _, decoding in speaker.asked} == {(1.0, 42)}
    assert sorted(prompt.draw for prompt, _ in speaker.asked) == [0] * 12 + [1] * 12 + [2] * 12
    for place, row in enumerate(rows["forget"]):
        found = [
            judge.verdict(Claim(row.question, row.answer, speaker.say(Prompt(row.messages, draw=draw))))
            for draw in range(3)
        ]
        known = [verdict for verdict in found if verdict is not None]
        metrics = result.rows["forget"].metrics
        assert metrics["leak_best_of_3"][place] == (100.0 * any(known) if known else None)
        assert metrics["leak_per_sample"][place] == (pytest.approx(100 * np.mean(known)) if known else None)


def test_the_worst_family_score_is_the_maximum_over_families(rows):
    judge = Dice((True, False, False, False, None))
    result = run(Speaker(), judge, rows, metrics=["families"])
    metrics = dict(result.rows["forget"].metrics)
    overall = metrics.pop("leak_worst_family")
    assert len(metrics) == 9
    for place, worst in enumerate(overall):
        known = [column[place] for column in metrics.values() if column[place] is not None]
        assert worst == max(known, default=None)
    assert 0 < result.sets["forget"]["leak_worst_family"].value <= 100
    assert result.sets["forget"]["leak_worst_family"].unscored == sum(
        result.sets["forget"][name].unscored for name in metrics
    )


def test_win_rate_shows_the_answer_of_the_original_model_first(rows):
    first, second = Speaker("original"), Speaker("unlearned")
    original = run(first, Dice(), rows, metrics=["open_ended"], name="original")
    assert "win_rate" not in original.sets["instructions"]
    judge = Dice((True, False, None))
    result = run(second, judge, rows, metrics=["open_ended"], original=original)
    assert {(pair.first.split()[0], pair.second.split()[0]) for pair in judge.pairs} == {("original", "unlearned")}
    ratings = [preference.second for preference in Dice((None,)).prefer(judge.pairs)]
    expected = [50.0 + 50.0 * np.sign(rating - 5) for rating in ratings if rating is not None]
    value = result.sets["instructions"]["win_rate"]
    assert value.value == pytest.approx(np.mean(expected))
    assert value.unscored == value.skipped == ratings.count(None) > 0
    assert {decoding.max_new_tokens for _, decoding in second.asked} == {128}
    assert result.references == {"original": original.fingerprint}


def test_claims_are_announced_before_judging_and_the_caller_may_stop(rows):
    judge = Dice()
    told = {}

    def stop(claims, pairs):
        told.update(claims=claims, pairs=pairs)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Speaker(), judge, rows, before_judging=stop)
    assert judge.claims == []
    run(Speaker(), judge, rows)
    assert judge.claims == told["claims"]
    assert told["pairs"] == []


def test_instructions_of_a_file_replace_the_built_in_ones(rows, tmp_path):
    file = tmp_path / "alpaca_eval.json"
    asked = [{"instruction": f"Write {n} words.", "output": "One.", "generator": "model"} for n in (1, 2)]
    file.write_text(json.dumps(asked))
    speaker, config = Speaker(), EvaluateConfig(instructions=str(file))
    result = run(speaker, Dice(), rows, metrics=["open_ended"], settings=config)
    assert {prompt.messages[-1].content for prompt, _ in speaker.asked} == {"Write 1 words.", "Write 2 words."}
    assert result.sets["instructions"]["repetitiveness"].n == 2
