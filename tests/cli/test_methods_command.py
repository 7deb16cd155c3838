"""Lists of methods, benchmarks and metrics, and the description of one method."""

from __future__ import annotations

import json
import re
import shlex
import sys

import pytest

from atwu.benchmarks.catalog import all_benchmarks
from atwu.cli.app import run, run_cli
from atwu.cli.listings import MethodsCommand
from atwu.evaluation.registry import all_metrics
from atwu.methods.component_registry import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options
from atwu.methods.method_table import METHODS, citations
from atwu.methods.presets import PUBLISHED, shipped_presets
from atwu.methods.recipe import recipe
from atwu.training.config import UnlearnConfig


@pytest.fixture
def printed(capsys, monkeypatch):
    """Return a function that runs the command in a terminal of some width and returns its output."""

    def at(width: int, name: str | None = None) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        MethodsCommand(name=name).run()
        return capsys.readouterr().out

    return at


@pytest.mark.parametrize(("width", "values", "source"), [(80, False, False), (110, True, False), (140, True, True)])
def test_the_list_fits_the_terminal_and_has_a_line_for_everything(printed, width, values, source):
    lines = printed(width).splitlines()
    assert max(map(len, lines)) <= width
    unbroken = [" ".join(line.split()) for line in lines]
    for name, row in METHODS.items():
        start = f"{name}{' *' if row.values_from else ''} {row.weighting} {row.forget_loss} {row.retain_loss}"
        (line,) = [line for line in unbroken if line.startswith(f"{start} ") or line == start]
        assert ("γ=" in line, line.endswith(row.cite)) == (values, source)
    for loss in FORGET_LOSSES.values():
        assert any(loss.formula.split(", mean over")[0] in line for line in unbroken)
    for name in (*WEIGHTINGS, *FORGET_LOSSES, *RETAIN_LOSSES):
        assert any(re.match(rf"{name} \S", line) for line in unbroken)
    for name in (name for name, option in component_options().items() if option.number):
        assert any(line.startswith("--" + name.replace("_", "-")) for line in lines)


@pytest.mark.parametrize("name", METHODS)
def test_one_method_is_described(printed, name):
    text = printed(80, name)
    lines, folded = text.splitlines(), " ".join(text.split())
    row, decided = METHODS[name], recipe(name)
    assert lines[0] == f"{row.title} ({name})"
    assert max(map(len, lines)) <= 80
    assert citations()[row.cite] in folded
    assert decided.weighting_components[0].formula in folded
    assert decided.forget_component.formula in folded
    assert decided.retain_component is None or decided.retain_component.formula in folded
    assert ("No values were published" in folded) == bool(row.values_from)
    presets = [
        [p for setting in settings if (p := shipped_presets(setting).get(name))] for settings in PUBLISHED.values()
    ]
    for key, value in decided.values.items():
        where = row.search.get(key, decided.options[key].search)
        searched = f"{where.low:g} to {where.high:g}" if where else ""
        published = " ".join(f"{same[0].values[key]:g}" for same in presets if same)
        flag = "--" + key.replace("_", "-")
        assert re.search(" ".join(rf"{flag} \S+ {value:g} {searched} {published}".split()), folded), key
    for preset in (preset for same in presets for preset in same):
        assert f"{preset.options['learning_rate']:.2e} ({preset.about['model']})" in folded
        assert preset.name in folded


@pytest.mark.parametrize("name", METHODS)
def test_the_example_is_a_command_that_would_run(printed, name):
    commands = printed(80, name).split("Example")[1].replace("\\\n", " ").strip().splitlines()
    words = shlex.split(commands[1])
    assert words[:2] == ["atwu", "unlearn"]
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    settings = {flag[2:].replace("-", "_"): value for flag, value in flags.items()}
    inputs = {key: settings.pop(key) for key in ("model", "forget", "retain", "output") if key in settings}
    assert set(inputs) - {"retain"} == {"model", "forget", "output"}
    needs_retain = METHODS[name].retain_loss != "none"
    assert ("retain" in inputs) == needs_retain
    settings["learning_rate"] = float(settings["learning_rate"])
    assert UnlearnConfig(**settings, use_cpu=True).recipe().name == name
    assert settings.get("noun_finder", "simple") == "simple"  # needs nothing that is not installed


def test_needs_and_published_values_of_a_method_are_listed(printed):
    retain = "retain rows (--retain)"
    for name, needs in (
        ("grad_ascent", ()),
        ("gt_ga", (retain, "labelled tokens: forget_spans in the forget rows, or --forget-words")),
        ("npo", (retain, "log-probabilities of the original model (--reference)")),
        ("dpo", (retain, "alternate answers: column alternate of the rows")),
    ):
        text = " ".join(printed(80, name).split())
        assert all(need in text for need in needs), name
        assert ("only forget rows" in text) == (not needs)
    text = " ".join(printed(100, "npo").split())
    assert "--beta β 0.1 0.05 to 0.2 0.1 0.07" in text
    assert "2.60e-05 (Llama-3.1-8B-Instruct)" in text
    assert "tofu-1b/npo, tofu-8b/npo" in text
    assert "trains mlp.down_proj of layers ℓ-2, ℓ-1 and ℓ" in " ".join(printed(80, "rmu").split())


def test_an_unknown_name_is_one_line_with_the_closest_one(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["atwu", "methods", "simpno"])
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 1
    error = capsys.readouterr().err
    assert re.fullmatch(r"error: .*'simpno'.*'simnpo'.*\n", error)


LISTS = (["methods"], ["methods", "atwu"], ["benchmarks"], ["evaluate", "--list"])


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_a_list_fits_80_columns_without_a_word_broken_in_two(words, capsys, monkeypatch):
    printed = []
    for width in ("80", "1000"):
        monkeypatch.setenv("COLUMNS", width)
        run_cli(words)
        printed.append(capsys.readouterr().out)
    narrow, wide = printed
    assert max(map(len, narrow.splitlines())) <= 80
    assert set(narrow.split()) <= set(wide.split())


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_json_has_every_entry_and_the_facts_of_the_list(words, capsys):
    run_cli([*words, "--json"])
    printed = json.loads(capsys.readouterr().out)
    if words == ["methods"]:
        assert list(printed["methods"]) == list(METHODS)
        tables = {"weightings": WEIGHTINGS, "forget_losses": FORGET_LOSSES, "retain_losses": RETAIN_LOSSES}
        for key, table in tables.items():
            assert list(printed[key]) == list(table)
        assert printed["forget_losses"]["npo"] == FORGET_LOSSES["npo"].formula
    elif words[0] == "methods":
        assert printed["forget_loss"] == METHODS["atwu"].forget_loss
        assert printed["values"] == recipe("atwu").values
    elif words == ["benchmarks"]:
        assert [entry["names"] for entry in printed["benchmarks"]] == [list(entry.names) for entry in all_benchmarks()]
    else:
        assert list(printed["metrics"]) == list(all_metrics())
        strength = printed["metrics"]["memorization"]["columns"]["extraction_strength"]
        assert strength["better"] == {"forget": "down", "retain": "up"}
        assert strength["range"] == [0, 1]
