"""Dataclasses as commands: flags, YAML, defaults, and error messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atwu.cli.cli_options import CliOption, cli_option, listed_options, parse_command
from atwu.errors import UsageError
from tests.commands import run_here

OPTIONS = (
    CliOption("learning_rate", float, 1e-3, "How fast.", alias=("--lr",)),
    CliOption("seed", int, 0),
    CliOption("bf16", bool, False),
    CliOption("detach", bool, None),
    CliOption("optim", str, "adamw", "Which optimizer.", common=False),
    CliOption("eval_steps", int, None, "Every so many.", common=False),
)


@dataclass(kw_only=True)
class Hive:
    """Where bees live."""

    boxes: int = cli_option("How many boxes.", 3, least=1, alias=("-b",))
    wood: str = cli_option("Of what.", "pine", choices=("pine", "oak", "ash"))
    paint: str | None = cli_option("What colour.", None, needs="brush")
    brush: bool = cli_option("Paint them.", False)
    frames: int | None = cli_option("Frames.", None, alias=("-f",), excludes="kilos")
    kilos: int | None = cli_option("Kilos.", None, excludes="frames")
    empty: bool = cli_option("Without bees.", False, excludes="frames")


@dataclass(kw_only=True)
class Keep:
    """Keep bees.

    Example: atwu keep bees.jsonl
    """

    rows: list[Path] = cli_option("Files.", positional=True)
    name: str = cli_option("Who keeps them.")
    flower: list[str] | None = cli_option("What they like; 95 % of all.", None)
    config: Path | None = cli_option("YAML.", None)
    hive: Hive
    settings: dict[str, Any] = listed_options(lambda: OPTIONS)


def keep(*words: str) -> Keep:
    return parse_command(Keep, words, name="keep")


def test_arguments_become_fields_of_the_dataclass():
    done = keep("a.jsonl", "--name", "Orla", "b.jsonl", "-b", "5", "--flower", "thyme", "--flower=heather")
    assert done == Keep(
        rows=[Path("a.jsonl"), Path("b.jsonl")], name="Orla", flower=["thyme", "heather"], hive=Hive(boxes=5)
    )


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--lr", "1e-4"], {"learning_rate": 1e-4}),
        (["--learning-rate=-1e-4"], {"learning_rate": -1e-4}),
        (["--seed=-1", "--bf16", "--no-detach"], {"seed": -1, "bf16": True, "detach": False}),
        (["--bf16", "--no-bf16"], {"bf16": False}),
        (["--optim", "sgd"], {"optim": "sgd"}),
        (["--learn", "2", "--eval", "3"], {"learning_rate": 2.0, "eval_steps": 3}),
    ],
)
def test_settings_contain_only_options_that_were_given(words, settings):
    assert keep("a", "--name", "Orla", *words).settings == settings


def test_a_switch_that_is_off_excludes_nothing():
    assert keep("a", "--name", "Orla", "-f", "1", "--no-empty").hive == Hive(frames=1)


def test_flags_win_over_yaml(tmp_path):
    file = tmp_path / "keep.yaml"
    file.write_text("name: Tavi\nboxes: 7\nlearning_rate: 1e-5\noptim: sgd\nabout: {source: Kelbury}\nwood:\n")
    done = keep("a", "--config", str(file), "--boxes", "2", "--lr", "3e-5")
    assert (done.name, done.hive) == ("Tavi", Hive(boxes=2))
    assert done.settings == {"learning_rate": 3e-5, "optim": "sgd"}
    file.write_text("name: Tavi\nkilos: 7\npaint: red\n")
    assert keep("a", "--config", str(file), "--frames", "2", "--brush").hive == Hive(frames=2, paint="red", brush=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("boxs: 2", "keep.yaml.*'boxs'.*'boxes'"),
        ("eval_step: 2", "'eval_step'.*'eval_steps'"),
        ("seed: 1.5", "keep.yaml.*seed.* 1.5"),
        ("seed: true", "seed.* True"),
        ("name: [Tavi]", r"name.*\['Tavi'\]"),
        ("bf16: maybe", "bf16.*'maybe'"),
        ("wood: ivy", "wood.*pine, oak.*ash.*'ivy'"),
        ("- name", "'key: value'.*list"),
    ],
)
def test_the_error_of_a_wrong_yaml_names_it(text, message, tmp_path):
    file = tmp_path / "keep.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        keep("a", "--config", str(file))
    assert not isinstance(raised.value, UsageError)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "--name .*--config"),
        (["--name", "Orla"], "ROWS"),
        (["a", "--name"], "--name "),
        (["a", "--name", "Orla", "--boxes", "0"], "--boxes .* 0"),
        (["a", "--name", "Orla", "--boxes", "two"], "--boxes .*'two'"),
        (["a", "--name", "Orla", "--wood", "ivy"], "--wood .*pine, oak.*ash.*'ivy'"),
        (["a", "--name", "Orla", "--learning-rat", "1", "--lernin-rate", "1"], "--lernin-rate.*--learning-rate"),
        (["a", "--name", "Orla", "--optin", "1"], "--optin.*--optim"),
        (["a", "--name", "Orla", "-x"], "-x"),
        (["a", "--name", "Orla", "--paint", "red"], "--paint has no effect without --brush"),
        (["a", "--name", "Orla", "-f", "1", "--kilos", "2"], "--frames/-f and --kilos exclude each other"),
        (["a", "--name", "Orla", "-f", "1", "--empty"], "--empty and --frames/-f exclude each other"),
        (["a", "--name", "Orla", "--s", "1", "--b", "2"], "--b .*--b"),
    ],
)
def test_the_error_of_a_wrong_argument_names_it(words, message):
    with pytest.raises(UsageError, match=message):
        keep(*words)


def test_help_wraps_lines_and_shows_examples(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit) as stopped:
        keep("--help")
    assert not stopped.value.code
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 60
    for words in ("Example: atwu keep", "95 % of all", "--lr, --learning-rate X", "(default 0.001)", "{pine,oak,ash}"):
        assert words in shown
    assert "--optim" not in shown
    assert "--no-bf16" not in shown
    with pytest.raises(SystemExit):
        keep("--help-all")
    assert "--optim TEXT" in capsys.readouterr().out


UNLEARN = ("unlearn", "--model", "m", "--forget", "f.jsonl", "--output", "out")


def test_errors_of_unknown_options_name_the_closest_one(tmp_path):
    said = str(run_here(*UNLEARN, "--auto-memry").exception)
    assert "unknown option --auto-memry. Did you mean --auto-memory?" in said
    (tmp_path / "run.yaml").write_text("auto_memry: true\n")
    said = str(run_here(*UNLEARN, "--config", tmp_path / "run.yaml").exception)
    assert "unknown key 'auto_memry'" in said
    assert "Did you mean 'auto_memory'?" in said
    (tmp_path / "run.yaml").write_text("batch_size: 4\n")
    said = str(run_here(*UNLEARN, "--config", tmp_path / "run.yaml").exception)
    assert "the key of --batch-size is per_device_train_batch_size" in said


def test_the_device_option_of_other_commands_is_answered_with_that_of_training():
    said = str(run_here(*UNLEARN, "--device=cpu").exception)
    assert "unknown option --device; training takes the GPU if there is one, and the CPU with --use-cpu." in said
