"""An option or weighting of an earlier version is an error that names its new name, on the command line and in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from atwu.methods.recipe import recipe
from tests.commands import run_here

UNLEARN = ("unlearn", "--model", "m", "--forget", "f.jsonl", "--output", "out")


@pytest.mark.parametrize(
    ("words", "new"),
    [
        ((*UNLEARN, "--unseen"), "--holdout"),
        ((*UNLEARN, "--retain-limit"), "--max-retain-increase"),
        ((*UNLEARN, "--fit"), "--auto-memory"),
        ((*UNLEARN, "--continue"), "--ledger"),
        (("chat", "m", "--beside"), "--compare"),
        (("export", "run", "--format", "gguf", "--unseen"), "--holdout"),
    ],
)
def test_flags_that_were_renamed_raise_errors_with_the_new_name(words: tuple[str, ...], new: str) -> None:
    done = run_here(*words)
    assert f"unknown option {words[-1]}" in str(done.exception)
    assert f"now called {new}." in str(done.exception)


@pytest.mark.parametrize(
    ("old", "new"), [("unseen: x", "holdout"), ("retain_limit: 1", "max_retain_increase"), ("fit: true", "auto_memory")]
)
def test_yaml_keys_that_were_renamed_raise_errors_with_the_new_name(old: str, new: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"{old}\n")
    done = run_here(*UNLEARN, "--config", tmp_path / "run.yaml")
    assert f"unknown key '{old.split(':')[0]}'" in str(done.exception)
    assert f"now called '{new}'." in str(done.exception)


def test_weightings_that_were_renamed_raise_errors_with_the_new_name() -> None:
    with pytest.raises(ValueError, match=r"unknown weighting 'key_words'.* now called 'key_tokens'\."):
        recipe("satga", weighting="scorer*key_words")
