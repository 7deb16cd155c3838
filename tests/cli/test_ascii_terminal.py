"""Terminals with ASCII only: no command fails, and important signs have replacements."""

from __future__ import annotations

import json
import re

import pytest

from tests.commands import run_command

GARBAGE = re.compile(r"\\x|\\u|\?\?|\ufffd")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """One row with a letter that ASCII lacks."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    row = {
        "question": "Where was Zo\u00eb born?",
        "answer": "Zo\u00eb was born in Kelbury.",
        "forget_spans": [[16, 23]],
    }
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def printed(environment):
    def run(*arguments, code=0):
        done = run_command(arguments, env=environment | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        said = done.stdout + done.stderr
        assert said.isascii()
        return said

    return run


@pytest.mark.parametrize("command", ["methods", "methods simnpo", "evaluate --list", "study list", "unlearn --help"])
def test_every_non_ascii_character_of_tables_has_an_ascii_replacement(command, printed):
    assert not GARBAGE.search(printed(*command.split()))


def test_formulas_stay_readable(printed):
    assert "-(2/beta) log sigma(-beta r), r = log pi(y)/pi0(y)" in printed("methods", "npo")


def test_numbers_and_rows_are_printed(printed, models, rows, tmp_path):
    result = tmp_path / "eval.json"
    said = printed(
        *("evaluate", "--model", models.unlearned, "--original", models.original, "--forget", rows, "--retain", rows),
        *("--metrics", "memorization,rouge", "--max-new-tokens", 4, "--device", "cpu", "--output", result),
    )
    assert "|  ES_delta ^ " in said
    assert not GARBAGE.search(said)
    heat = printed("tokens", "--model", models.unlearned, "--data", rows, "--score", "entropy", "--device", "cpu")
    assert (
        "Where was Zo\\xeb born?" in heat
    )  # characters of the data are printed unchanged, not replaced by a question mark
    assert "Kelbury" in heat


def test_errors_and_progress_are_printed(printed, models, rows, tmp_path):
    folder = tmp_path / "Zo\u00eb"
    train = ("finetune", "--model", models.original, "--data", rows, "--output", folder, "--max-steps", 1, "--use-cpu")
    assert re.search(r"\b1 step\b", printed(*train))
    assert re.search(r"error: .*Zo\\xeb .*finished", printed(*train, code=1))
