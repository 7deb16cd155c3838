"""An external metric: one file adds it everywhere, and a failed registration changes nothing."""

from __future__ import annotations

import csv
import importlib.util
import io
import logging
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from atwu.evaluation import metrics
from atwu.evaluation import registry as panel
from atwu.evaluation.columns import OVERALL, Column
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.metric import Metric, MetricSetting
from atwu.evaluation.registry import (
    EvaluateConfig,
    all_metrics,
    all_settings,
    column_of,
    register_metric,
    selected_metrics,
    short_name,
)
from atwu.evaluation.result import read_result
from atwu.modeling.load import model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, open_model
from tests.commands import run_here
from tests.evaluation.conftest import Speaker, invented_people, row_values
from tests.micro_models import write_micro

EXAMPLE = Path(__file__).parents[2] / "examples" / "a_metric_of_your_own.py"


@pytest.fixture
def table():
    """Remove metrics that a test registers."""
    before = dict(all_metrics())
    yield before
    panel._METRICS.clear()
    panel._METRICS.update(before)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_is_one_short_file_that_adds_a_metric(table, tmp_path):
    assert len(EXAMPLE.read_text().splitlines()) <= 40
    module = load(EXAMPLE)
    assert list(all_metrics()) == [*table, "answer_length"]
    assert EvaluateConfig().most_words == 20
    speaker = Speaker(say=lambda prompt: "one two three")
    found = evaluate(
        None,
        {"forget": invented_people(4, "F"), "retain": invented_people(4, "R")},
        Evaluation(metrics=["answer_length"], settings=EvaluateConfig(most_words=2), generator=speaker, progress=False),
    )
    found.write(tmp_path / "eval.json")
    found = read_result(tmp_path / "eval.json")
    cells = {(split, name): value for split, metrics in found.sets.items() for name, value in metrics.items()}
    assert {line: (cell.value, cell.direction, cell.digits) for line, cell in cells.items()} == {
        ("forget", "answer_words"): (3.0, "none", 1),
        ("forget", "too_long"): (1.0, "down", 3),
        ("retain", "answer_words"): (3.0, "none", 1),
        ("retain", "too_long"): (1.0, "down", 3),
    }
    assert found.settings["most_words"] == 2
    assert short_name("answer_words") == module.AnswerLength.columns[0].title == "words"
    column = column_of("too_long")
    assert column is not None
    assert column.where == "a_metric_of_your_own.py:words"


def test_the_example_of_an_attack_is_one_short_file_and_leaves_the_model_as_it_was(table, tmp_path):
    path = EXAMPLE.with_name("an_attack_of_your_own.py")
    assert len(path.read_text().splitlines()) <= 50
    module = load(path)
    model, tokenizer = open_model(str(write_micro(tmp_path / "model")), ModelLoadArgs())
    before = model_fingerprint(model)

    def altered(share, seed):
        with module.noise_added(model, share, seed):
            return model_fingerprint(model)

    assert altered(0.0, 1) == before
    assert altered(0.5, 1) == altered(0.5, 1) != altered(0.5, 2)
    found = evaluate(
        model,
        {"forget": invented_people(4, "F")},
        Evaluation(
            metrics=["noise", "memorization"],
            settings=EvaluateConfig(noise_share=0.0, max_new_tokens=2),
            progress=False,
        ),
        tokenizer=tokenizer,
    )
    values = found.rows["forget"].metrics
    assert values["extraction_strength@noise"] == values["extraction_strength"]
    assert found.settings["noise_share"] == 0.0
    assert model_fingerprint(model) == before


def test_values_of_the_example_metric_are_in_comparisons_and_reports(table, tmp_path):
    load(EXAMPLE)
    said = {"short": "one two", "long": "one two three"}
    for name, answer in said.items():
        found = evaluate(
            None,
            {"forget": invented_people(4, "F")},
            Evaluation(
                metrics=["answer_length"],
                settings=EvaluateConfig(most_words=2),
                generator=Speaker(say=lambda prompt, answer=answer: answer),
                progress=False,
                name=name,
            ),
        )
        found.write(tmp_path / f"{name}.json")
    results = [tmp_path / f"{name}.json" for name in said]
    compared = run_here("compare", *results).output
    assert re.search(r"answer_words +2\.0 +3\.0 *\n", compared)  # equal values without a bound: no interval
    assert re.search(r"too_long ↓ +0\.000 \[0\.000, 0\.602\] +1\.000 \[0\.398, 1\.000\]", compared)
    assert run_here("report", *results, "--output", tmp_path / "report.csv").exit_code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text(encoding="utf-8"))))
    assert {(row["label"], row["metric"]): (float(row["value"]), row["direction"]) for row in rows} == {
        ("short", "answer_words"): (2.0, "none"),
        ("short", "too_long"): (0.0, "down"),
        ("long", "answer_words"): (3.0, "none"),
        ("long", "too_long"): (1.0, "down"),
    }
    assert run_here("report", *results, "--output", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'title="forget too long: share of answers that are too long"' in page
    assert "Computed in <code>a_metric_of_your_own.py:words</code>" in page


def installed(folder, points):
    info = folder / "outside-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[atwu.metrics]\n{points}")


def test_entry_points_register_and_a_broken_one_is_left_out(table, tmp_path, monkeypatch, caplog):
    installed(tmp_path, "broken = no_such_module:Metric\nown = a_metric_of_your_own:AnswerLength\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(EXAMPLE.parent), *sys.path])
    panel._load_plugins.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert list(all_metrics()) == [*table, "answer_length"]
    assert re.search("broken = no_such_module:Metric", caplog.text)
    sys.modules.pop("a_metric_of_your_own")


def test_the_documented_example_equals_the_command_with_the_metric():
    done = subprocess.run([sys.executable, EXAMPLE, "evaluate", "--list"], capture_output=True, text=True, check=True)
    assert re.search(r"answer_length .*\n.*forget or retain", done.stdout)


def test_shipped_metrics_have_the_names_of_the_table_and_no_column_or_setting_twice():
    for name, metric in all_metrics().items():
        assert metric.name == name
        assert metric.about
    for kind in ("columns", "settings"):
        names = [part.name for metric in all_metrics().values() for part in getattr(metric, kind)]
        assert len(names) == len(set(names))


def test_every_metric_of_the_package_is_in_the_table():
    modules = [
        importlib.import_module(f"{metrics.__name__}.{each.name}") for each in pkgutil.iter_modules(metrics.__path__)
    ]
    defined = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Metric) and value.name
    }
    assert defined <= set(all_metrics().values())


def column(name):
    return Column(name, len, "length", "length of something")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"name": "two words"}, "letters, digits.*underscores.*'two words'"),
        ({"name": 3}, "letters, digits.*got 3"),
        ({"name": "all"}, "'all'"),
        ({"name": "judge"}, "'judge'"),
        ({"about": ""}, "about"),
        ({"columns": (column("J_P"),)}, "column.*'J_P'"),
        ({"columns": (column("twice"), column("twice"))}, "column.*'twice'"),
        ({"settings": (MetricSetting("seed", int, 1, "Again."),)}, "setting.*'seed'"),
        ({"settings": (MetricSetting("size", int, 0, "Too small.", least=1),)}, r"size.*\b1\b.*\b0\b"),
    ],
)
def test_a_failed_registration_does_not_change_the_tables(table, facts, message):
    settings = all_settings()
    metric = type("Other", (Metric,), {"name": "other", "about": "something else", **facts})
    with pytest.raises(ValueError, match=message):
        register_metric(metric)
    assert all_metrics() == table
    assert all_settings() == settings
    assert selected_metrics("all", sets=["retain"], weights=False) == [
        "rouge",
        "key_tokens",
        "fluency",
        "judge",
        "open_ended",
    ]


@pytest.mark.parametrize("given", ["answer_length", Metric(None), Column])
def test_only_metrics_can_be_registered(table, given):
    with pytest.raises(ValueError, match=r"subclass of atwu\.Metric, got"):
        register_metric(given)
    assert all_metrics() == table


def test_a_value_without_a_column_is_an_error():
    class Odd(Metric):
        name = "odd"

    with pytest.raises(ValueError, match=r"\bodd\b.*'evenness'"):
        Odd(None).record_column("forget", "evenness", (1.0,))


def test_a_derived_value_needs_a_column(table):
    from atwu.evaluation.aggregate import overall
    from atwu.evaluation.intervals import AggregateMetric, Estimate, ModelComparison, RowMetrics

    @register_metric
    class Halved(Metric):
        name, about = "halved", "half of another number"
        columns = (Column("half", len, "half", "half of it", sets=(OVERALL,)),)

        @classmethod
        def derive(cls, sides):
            mean = sides.this.mean("forget", "J_P")
            yield "half", AggregateMetric(Estimate(mean.value / 2, mean.draws / 2), (("forget", "J_P"),))

    sides = ModelComparison(RowMetrics({"forget": row_values({"J_P": [20.0, 40.0, 60.0]})}))
    assert overall(sides)["half"].value == 20.0
    Halved.columns = ()
    with pytest.raises(ValueError, match="'half'"):
        overall(sides)


def test_every_formula_can_be_found(table):
    for metric in table.values():
        for each in metric.columns:
            file, _, function = each.where.partition(":")
            module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
            assert callable(getattr(module, function)), each.name
