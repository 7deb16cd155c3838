"""The rule of verdicts part by part, and the commands and arguments of a request."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atwu._command import set_program
from atwu.benchmarks.base import LoadedRows
from atwu.evaluation.facts.askings import AS_WRITTEN, THOUGHT
from atwu.evaluation.facts.fact_table import FactTable
from atwu.request import auto_settings
from atwu.request.unlearn import _next_commands, unlearn
from atwu.request.unlearning_request import UnlearningRequest
from atwu.request.verdict import (
    FORGOTTEN,
    NO_NEIGHBOURS,
    NOT_FORGOTTEN,
    NOTHING,
    PARTLY,
    TOO_COSTLY,
    UNCHANGED,
    RequestVerdict,
    decide,
    nothing_to_forget,
    read_request_verdict,
)
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from tests.request.tables import KNOWN, answer, table


def verdict_on(after: FactTable | None, lost: float | None = 0.0, before: FactTable = KNOWN) -> RequestVerdict:
    """The verdict on a run that raised the retain loss by `lost`, with a limit of .15."""
    return decide(before, after, retain_loss_increase=lost, max_retain_increase=0.15)


def with_thoughts(said: FactTable, thinking: int) -> FactTable:
    """The same answers, and thoughts about every fact, of which some name it."""
    thoughts = (answer("forget", fact, THOUGHT, stated=fact < thinking) for fact in range(10))
    return FactTable((*said.records, *thoughts))


def test_a_fact_that_is_only_thought_is_not_forgotten() -> None:
    before = with_thoughts(KNOWN, 10)
    verdict = verdict_on(with_thoughts(table(0), 1), before=before)
    assert verdict.outcome == PARTLY
    assert verdict.reason == "Thinking about its own question, the model names 1 of 10 facts (10 before)."
    assert [leak.asking for leak in verdict.leaks] == [THOUGHT]
    assert verdict_on(with_thoughts(table(0), 0), before=before).outcome == FORGOTTEN
    assert not nothing_to_forget(with_thoughts(table(0), 1))


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (table(0), FORGOTTEN),
        (table(4), FORGOTTEN),  # 4 of 200: exactly 2 %
        (table(5), PARTLY),
        (table(0, own=1), PARTLY),  # one answer of 200, but to the question as written
        (table(100), PARTLY),
        (table(111), PARTLY),  # 111 of the 160 before: below 70 %
        (table(112), NOT_FORGOTTEN),
        (KNOWN, UNCHANGED),
        (table(151, own=9), NOT_FORGOTTEN),  # as many answers as before, but others
    ],
)
def test_the_part_about_facts(after: FactTable, outcome: str) -> None:
    assert verdict_on(after).outcome == outcome


@pytest.mark.parametrize(
    ("after", "lost", "missed"),
    [
        (table(0, neighbours=75), 0.0, None),  # 5 points less
        (table(0, neighbours=74), 0.0, "neighbours' answers that state theirs"),
        (table(0, neighbours=100), 0.0, None),
        (table(0, refused=5), 0.0, None),
        (table(0, refused=6), 0.0, "refusals of general questions"),
        (table(0, unreadable=20), 0.0, None),  # of 400 answers
        (table(0, unreadable=21), 0.0, "unreadable answers"),
        (table(0), 0.15, None),
        (table(0), 0.151, "retain loss increase"),
        (table(0), math.nan, "retain loss increase"),
        (table(0), None, None),  # not measured
        (table(0), -0.2, None),
    ],
)
def test_the_parts_about_cost(after: FactTable, lost: float | None, missed: str | None) -> None:
    verdict = verdict_on(after, lost)
    assert [part.name for part in verdict.criteria if not part.met] == ([] if missed is None else [missed])
    assert verdict.outcome == (FORGOTTEN if missed is None else TOO_COSTLY)
    assert verdict.good == (missed is None)
    if missed is not None:
        assert verdict.reason == next(part.sentence for part in verdict.criteria if not part.met)


def test_damage_is_named_also_where_facts_are_still_stated() -> None:
    verdict = verdict_on(table(50, neighbours=10), 0.5)
    assert verdict.outcome == PARTLY
    for part in ("50 of 200 answers", "10 state theirs (80 before)", "rose by 0.500"):
        assert part in verdict.reason
    assert "lower --learning-rate" in verdict.next_steps[0]


def test_a_limit_that_no_value_can_miss_is_not_said_to_be_met() -> None:
    before = replace(KNOWN, records=table(150, own=10, neighbours=4, refused=97).records)
    verdict = verdict_on(table(0, neighbours=0, refused=100), before=before)
    undecided = {part.name for part in verdict.criteria if not part.decided}
    assert undecided == {"neighbours' answers that state theirs", "refusals of general questions"}
    assert verdict.outcome == FORGOTTEN


def test_sets_that_were_not_asked_are_no_part_of_the_rule() -> None:
    verdict = verdict_on(table(0).select(set="forget"), before=KNOWN.select(set="forget"))
    assert verdict.outcome == FORGOTTEN
    assert [part.name for part in verdict.criteria][2:] == ["unreadable answers", "retain loss increase"]
    assert NO_NEIGHBOURS in verdict.not_tested
    assert NO_NEIGHBOURS not in verdict_on(table(0)).not_tested


@pytest.mark.parametrize(
    ("before", "nothing"), [(table(0), True), (table(4), True), (table(5), False), (table(0, own=1), False)]
)
def test_there_is_nothing_to_forget_if_the_rule_holds_before_training(before: FactTable, nothing: bool) -> None:
    assert nothing_to_forget(before) == nothing


def test_the_verdict_on_unknown_facts_says_that_nothing_was_written_and_what_was_said() -> None:
    verdict = verdict_on(None, None, before=table(1))
    assert verdict.outcome == NOTHING
    assert "1 of 200 answers about 10 facts states one, none of them to its own question" in verdict.reason
    assert verdict.reason.endswith("nothing was written.")
    assert [leak.fact for leak in verdict.leaks] == [0]
    assert "nothing was written" not in verdict_on(table(0), before=table(1)).reason  # a run of given length


def test_other_states_and_ways_of_asking_are_counted_and_decide_nothing() -> None:
    further = [answer("forget", fact, AS_WRITTEN, state="4 bits", stated=True) for fact in range(3)]
    further += [answer("forget", fact, "after examples", stated=fact == 9) for fact in range(5, 10)]
    verdict = verdict_on(FactTable((*table(2).records, *further)))
    assert verdict.outcome == FORGOTTEN
    counts = {state.name: (state.before, state.after) for state in verdict.states}
    assert list(counts) == ["as saved", "4 bits", "after examples"]
    assert [counts["as saved"][1].answers_stating, counts["as saved"][1].answers] == [2, 200]
    assert [(count.facts_stated, count.facts) for count in counts["4 bits"]] == [(3, 3), (3, 3)]
    assert [(count.facts_stated, count.facts) for count in counts["after examples"]] == [(5, 5), (1, 5)]
    assert len(verdict.leaks) == 2 + 3 + 1


@pytest.mark.parametrize(
    ("lost", "advice"), [(0.0, "raise --learning-rate or --steps"), (0.14, "raise --max-retain-increase")]
)
def test_the_retain_limit_is_raised_only_if_it_was_in_the_way(lost: float, advice: str) -> None:
    assert advice in verdict_on(table(50), lost).next_steps[0]


def test_a_verdict_is_read_back_as_written(tmp_path: Path) -> None:
    verdict = verdict_on(table(3))
    verdict.write(tmp_path)
    assert read_request_verdict(tmp_path) == verdict
    plain = json.loads((tmp_path / "verdict.json").read_text())
    assert len(plain["leaks"]) == 3
    assert plain["leaks"][0]["question"] == "What is thing 0, way 1?"
    frame = verdict.to_pandas()
    assert list(frame.columns) == ["name", "before", "after", "limit", "met"]
    assert len(frame) == len(verdict.criteria) == 6


def test_suggested_commands_can_be_pasted_and_start_the_script_that_registers_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atwu._command._program", ["atwu"])
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


def test_a_field_of_transformers_without_a_flag_is_repeated_as_json(tmp_path: Path) -> None:
    asked = UnlearningRequest(
        source=ModelSource(model="m"),
        forget_set=LoadedRows((), "rows.jsonl", ()),
        output=tmp_path,
        options={"method": "npo", "beta": 0.2, "optim": "sgd", "tf32": False, "optim_args": "momentum=0.9"},
    )
    words = shlex.split(asked.command())
    assert words[-8:-2] == ["--method", "npo", "--beta", "0.2", "--optim", "sgd"]
    assert (words[-2], json.loads(words[-1])) == ("--training-args", {"tf32": False, "optim_args": "momentum=0.9"})


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
        ({"request_note": 1}, "request_note must be text, got 1"),
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
