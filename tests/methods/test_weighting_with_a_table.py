"""examples/a_weighting_with_a_table.py: its table, its loss and a run, against values from plain code."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from atwu.benchmarks.people_rows import people
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.methods.component import FixedWeighting
from atwu.methods.component_inputs import LossTerms
from atwu.methods.component_registry import FORGET_LOSSES, WEIGHTINGS
from atwu.methods.method_table import METHODS
from atwu.modeling.scratch import scratch_model, train_tokenizer
from atwu.training.config import UnlearnConfig
from atwu.training.precompute import OriginalModel, fixed_tables
from atwu.training.training_rows import unlearning_rows
from tests.commands import run_command
from tests.micro_models import write_micro

EXAMPLE = Path(__file__).parents[2] / "examples" / "a_weighting_with_a_table.py"
SPEC = importlib.util.spec_from_file_location("a_weighting_with_a_table", EXAMPLE)
assert SPEC is not None
assert SPEC.loader is not None
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


@pytest.fixture
def registered():
    example.register()
    yield
    del METHODS["patient_npo"], WEIGHTINGS["unasked"], FORGET_LOSSES["patient_npo"]


@pytest.fixture(scope="module")
def world():
    benchmark = people("tiny")
    tokenizer = train_tokenizer(benchmark.texts(), vocab_size=300)
    return scratch_model("micro").eval(), tokenizer, benchmark.forget[:4], benchmark.retain[:4]


def read_alone(model, prompt, answer):
    """Log-probabilities of answer tokens behind a prompt, one row at a time."""
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([[*prompt, *answer]])).logits[0].double(), dim=-1)
    return np.array([table[len(prompt) + place - 1, token].item() for place, token in enumerate(answer)])


def table_of(world, folder, weighting="unasked", **options):
    model, tokenizer, forget, retain = world
    config = UnlearnConfig(output_dir=str(folder), weighting=weighting, **{"method": "patient_npo"} | options)
    rows = unlearning_rows(forget, retain, config, tokenizer=tokenizer)
    start = OriginalModel(model, folder, autocast=nullcontext, progress=False)
    return rows.forget, fixed_tables(config.recipe(), rows, start, Encoder(tokenizer))[weighting]


def test_table_is_the_surprise_without_the_question_over_its_mean_in_the_row(world, tmp_path, registered):
    model, tokenizer, forget, _ = world
    rows, table = table_of(world, tmp_path)
    for index, (row, text) in enumerate(zip(rows.rows, forget, strict=True)):
        prompt = Encoder(tokenizer).encode(Example.from_qa("", text.answer)).prompt_ids
        assert len(prompt) < len(row.prompt_ids)
        surprise = -read_alone(model, prompt, row.input_ids[row.answer_start :])
        np.testing.assert_allclose(table.rows([index]), surprise / surprise.mean(), rtol=1e-4)


class Asked(FixedWeighting):
    """The difference that another question makes."""

    reads_original = True
    ask = staticmethod(lambda question: question)

    def precompute(self, context):
        pairs = zip(context.ref_logps_asked(type(self).ask), context.ref_logps(), strict=True)
        return [one - other for one, other in pairs]


@pytest.fixture
def asked(registered, monkeypatch):
    monkeypatch.setitem(WEIGHTINGS, "asked", Asked)


def test_the_question_as_it_is_gives_the_log_probabilities_of_the_row(world, tmp_path, asked):
    _, table = table_of(world, tmp_path, "asked")
    assert table.values.abs().max() < 1e-6


def test_a_text_without_a_question_is_read_as_it_is(world, tmp_path, asked, monkeypatch):
    monkeypatch.setattr(Asked, "ask", staticmethod(lambda question: "Who is it?"))
    model, tokenizer, forget, retain = world
    text = dataclasses.replace(forget[1], messages=(), forget_spans=None)
    rows, table = table_of((model, tokenizer, [forget[0], text], retain), tmp_path, "asked")
    assert len(rows.rows) == 2
    assert table.rows([0]).abs().max() > 1e-3
    assert table.rows([1]).abs().max() == 0


def test_a_loss_that_counts_the_question_is_refused(world, tmp_path, asked):
    with pytest.raises(ValueError, match="forget set, row 1: this forget loss counts the tokens of the question"):
        table_of(world, tmp_path, "asked", method="lunar")


def test_loss_has_a_beta_of_each_row():
    logps = torch.log(torch.tensor([[0.5, 0.25, 1.0], [0.5, 0.5, 0.5]]))
    original = torch.log(torch.tensor([[0.5, 0.5, 1.0], [0.1, 0.1, 0.1]]))
    mask = torch.tensor([[True, True, False], [True, True, True]])
    weights = torch.tensor([[0.5, 1.5, 0.0], [1.0, 1.0, 1.0]])
    values = example.PatientNPO(beta=0.1).values(LossTerms(logps * mask, mask, original * mask), weights)
    # Row 1: mean surprise log 2, r = 1.5 log(1/2). Row 2: mean surprise log 10, r = 3 log 5.
    expected = []
    for surprise, ratio in ((math.log(2), -1.5 * math.log(2)), (math.log(10), 3 * math.log(5))):
        beta = 0.1 * (1 + surprise)
        expected.append(2 / beta * math.log(1 + math.exp(beta * ratio)))
    assert values.tolist() == pytest.approx(expected, rel=1e-5)


def test_it_is_short():
    assert len(EXAMPLE.read_text().splitlines()) < 60


@pytest.mark.slow
def test_command_runs_it_and_records_its_numbers(tmp_path):
    write_micro(tmp_path / "target")
    rows = ["--forget", "people:tiny:forget:6", "--retain", "people:tiny:retain:6"]
    arguments = ["unlearn", "--method", "patient_npo", "--beta", "0.2", "--model", "target", *rows]
    arguments += ["--max-steps", "1", "--output", "run"]
    surroundings = os.environ | {"ATWU_CACHE": str(tmp_path / "cache")}
    code = f"import runpy, sys; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    finished = run_command(arguments, code=code, env=surroundings, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    recipe = json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]
    assert recipe["weighting"] == "unasked"
    assert recipe["values"] == {"forget_weight": 0.5, "retain_weight": 1.0, "beta": 0.2}
