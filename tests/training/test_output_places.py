"""Output paths: links, unusual and long names, and file modes."""

from __future__ import annotations

import os
import re
import stat

import pytest

from atwu import UnlearnConfig
from atwu.training.run_folder import output_path
from atwu.training.unlearn_run import ModelSource, run_unlearn
from tests.commands import run_command, run_here


def finetune(model, rows, output, *more):
    return [
        *("finetune", "--model", model, "--data", rows[0], "--output", output, "--max-steps", 1, "--use-cpu"),
        *("--disable-tqdm", "--save-strategy", "no", *more),
    ]


@pytest.mark.parametrize("name", ["two\nlines", "-dash 'Zo\u00eb-\u540d\""])
def test_odd_names_work(name, model_folder, data_files, tmp_path):
    done = run_command(finetune(model_folder, data_files, tmp_path / name))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("n" * 245, "245 bytes.* 244"),
        ("file/x", "folder"),
        ("loop", "folder"),
        ("to-file", "run of atwu"),
        ("to-folder", "run of atwu"),
        ("not\udcffutf8", "UTF-8"),
        ("/", "folder"),
    ],
)
@pytest.mark.parametrize("command", ["finetune", "unlearn"])
def test_unwritable_outputs_are_rejected_before_a_model_is_loaded(command, name, message, data_files, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for link, target in (("loop", "loop"), ("to-file", "file"), ("to-folder", "folder")):
        (tmp_path / link).symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    rows = ["--data" if command == "finetune" else "--forget", data_files[0]]
    done = run_here(command, "--model", "nowhere/to-be-found", *rows, "--output", tmp_path / name)
    assert isinstance(done.exception, OSError)
    assert re.search(message, str(done.exception))
    assert sorted(tmp_path.rglob("*")) == before


def test_links_are_followed(model_folder, data_files, tmp_path):
    (tmp_path / "link").symlink_to("there/run")
    arguments = finetune(model_folder, data_files, tmp_path / "link")
    for more in ((), ("--overwrite",)):
        assert run_command([*arguments, *more]).returncode == 0
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there" / "run" / "run.json").is_file()
    assert "finished run" in run_command(arguments).stderr
    result = tmp_path / ("r" * 255)
    (tmp_path / "result").symlink_to(result.name)
    measure = ("evaluate", "--model", model_folder, "--forget", data_files[0], "--metrics", "memorization")
    done = run_command([*measure, "--device", "cpu", "--output", tmp_path / "result"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "result").is_symlink()
    assert result.is_file()


def test_file_modes_follow_the_umask(model_folder, data_files, tmp_path):
    mask, source = 0o027, ModelSource(model=str(model_folder))
    settings = {"use_cpu": True, "disable_tqdm": True, "max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    before = os.umask(mask)
    try:
        run_unlearn(
            source,
            UnlearnConfig(**settings),
            forget=str(data_files[0]),
            retain=str(data_files[1]),
            output=tmp_path / "run",
        )
    finally:
        os.umask(before)
    found = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    assert {"model.safetensors", "scorer.safetensors", "run.json", "log.jsonl"} <= {p.name for p in found}
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in found}
    assert modes == {path: (0o777 if path.is_dir() else 0o666) & ~mask for path in found}


def test_an_empty_output_is_not_the_current_folder():
    with pytest.raises(OSError, match="the output is empty"):
        output_path(" ")
