"""Commands start quickly: slow imports wait until they are needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from atwu.cli.app import COMMANDS, DISTRIBUTED, run_cli
from atwu.cli.cli_options import cli_options_of
from atwu.cli.shared import say, stand_out
from atwu.cli.train import FROM_TRANSFORMERS, TRAINING_ARGS
from atwu.errors import UsageError
from atwu.request.screen import shorten
from atwu.training.training_options import FURTHER_FLAGS

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "tofu-part"
ASK = """
import sys
sys.argv = ["atwu", *{arguments!r}]
from atwu.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("imported:", *(name for name in {names!r} if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("arguments", "kept_out"),
    [
        (["--help"], ("torch", "transformers", "numpy", "nltk", "optuna", "matplotlib", "pandas")),
        (["methods", "atwu"], ("transformers", "nltk", "scipy")),
        (["report", str(RECORDED)], ("torch", "transformers", "matplotlib")),
        (["compare", str(RECORDED / "original.json"), str(RECORDED / "retain-only.json")], ("torch", "transformers")),
    ],
)
def test_commands_that_only_read_import_no_heavy_package(arguments, kept_out):
    script = ASK.format(arguments=arguments, names=kept_out)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("imported:")


ANSWERS = """
import contextlib, io, re, sys
from atwu.cli.app import COMMANDS, run_cli
from atwu.errors import UsageError
from atwu.training.training_options import FURTHER_FLAGS

for name in COMMANDS:
    options = []
    for flag in ("--help", "--help-all"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            run_cli([*name.split(), flag])
        options.append(len(re.findall("^  -", printed.getvalue(), re.M)))
        assert f"Example: atwu {name}" in printed.getvalue(), name
    try:
        run_cli([*name.split(), "--hlep"])
    except UsageError as error:
        assert "unknown option --hlep" in str(error), error
    heavy = {"torch", "transformers", "datasets", "scipy", "pandas", "matplotlib"}.intersection(sys.modules)
    print(*options, *heavy)
"""


def test_help_and_typos_of_every_command_import_no_heavy_package():
    done = subprocess.run([sys.executable, "-c", ANSWERS], capture_output=True, text=True, check=True)
    for name, line in zip(COMMANDS, done.stdout.splitlines(), strict=True):
        common, every, *heavy = line.split()
        assert not heavy, (name, heavy)
        assert 1 <= int(common) <= 40, name
        assert int(common) <= int(every), name
        if name in ("unlearn", "finetune", "plan"):
            assert int(every) > 40, name


def test_options_of_transformers_exist_in_the_installed_version_and_have_its_types():
    from transformers import TrainingArguments

    assert [option.name for option in FROM_TRANSFORMERS] == [*FURTHER_FLAGS, TRAINING_ARGS]
    defined = {option.name: option for option in cli_options_of(TrainingArguments)}
    for option in FROM_TRANSFORMERS:
        if option.name != TRAINING_ARGS:
            assert defined[option.name].kind is option.kind, option.name


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - DISTRIBUTED))
def test_commands_for_one_process_are_rejected_in_several_processes(name, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=f"{name} .*process.* 2"):
        run_cli(name.split())


def test_a_closed_pipe_or_stream_is_no_traceback():
    command = [sys.executable, "-c", "from atwu.cli import main; main()", "methods"]
    cut = subprocess.run(["sh", "-c", '"$@" | head -c 1', "sh", *command], capture_output=True, text=True, check=False)
    assert (len(cut.stdout), cut.stderr) == (1, "")
    for closed in (">&-", "2>&-"):
        done = subprocess.run(
            ["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True, text=True, check=True
        )
        assert not done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("--version",), ("methods",), ("chat", "--help"), ()])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(words, unbuffered):
    command = [sys.executable, "-m", "atwu", *words]
    with open("/dev/full", "w") as full:
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert re.fullmatch(r"error: No space left on device: cannot write the output; free some space .*\n", done.stderr)
    assert done.returncode == 1


def test_control_characters_of_answers_do_not_reach_the_terminal(capsys):
    say("a\x1b[2J\x07b\nc")
    stand_out("d\x1b]0;title\x07")
    assert tuple(capsys.readouterr()) == ("a\ufffd[2J\ufffdb\nc\n", "d\ufffd]0;title\ufffd\n")
    assert shorten("a\x1b[2J b") == "a\ufffd[2J b"
