"""Atomic writes, and temporary files of killed processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from atwu._files import atomic_sibling, check_output_folder, check_writable, is_atomic_sibling, move, write_text
from atwu._manifest import damage, is_intact, write_manifest

SPAWNING = multiprocessing.get_context("spawn")


def _begin(path: Path, make: object, ready: Connection) -> None:
    with atomic_sibling(path, make) as temporary:
        (temporary / "weights" if temporary.is_dir() else temporary).write_text("half")
        ready.send(temporary.name)
        threading.Event().wait()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_temporary_files_of_killed_processes_are_removed_and_those_of_running_ones_are_not(make, tmp_path):
    here, there = SPAWNING.Pipe()
    process = SPAWNING.Process(target=_begin, args=(tmp_path / "out[1].json", make, there))
    process.start()
    left = tmp_path / here.recv()
    for name in ("out[1].json", "other.json"):
        write_text(tmp_path / name, "whole")
        assert left.exists()
        assert all(is_atomic_sibling(path) for path in tmp_path.iterdir() if path.name.startswith("."))
    process.kill()
    process.join()
    write_text(tmp_path / "other.json", "again")
    assert left.exists(), "it is another file's"
    write_text(tmp_path / "out[1].json", "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.json", "out[1].json"]
    assert (tmp_path / "out[1].json").read_text() == "again"


def _write(path: Path, text: str) -> None:
    for _ in range(50):
        write_text(path, text)


def test_processes_that_write_the_same_file_do_not_remove_each_others_temporary_files(tmp_path):
    path = tmp_path / "state.json"
    running = [SPAWNING.Process(target=_write, args=(path, letter * 1000)) for letter in "ab"]
    for process in running:
        process.start()
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == [0, 0]
    assert path.read_text() in ("a" * 1000, "b" * 1000)
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_no_file(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_sibling(tmp_path / "model") as folder:
        move(folder / "weights", tmp_path / "model")
    assert not list(tmp_path.iterdir())
    with atomic_sibling(tmp_path / "model") as folder:
        (folder / "weights").write_text("whole")
        move(folder, tmp_path / "model")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["model", "model/weights"]


def test_temporary_files_of_a_killed_process_do_not_belong_to_a_folder(tmp_path):
    (tmp_path / "eval.json").write_text("{}")
    left = tmp_path / ".manifest.json.abc.tmp"
    left.mkdir()
    (left / "weights").write_text("half")
    left.with_name(".manifest.json.abc.lock.tmp").touch()
    write_manifest(tmp_path)
    assert damage(tmp_path) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eval.json", "manifest.json"]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ('{"schema": 1, "files": {}}', "was written by an earlier version; it is made anew"),
        ('["weights"]', "was written by an earlier version; it is made anew"),
        ('{"files": {"wei', r"is damaged \(manifest.json cannot be read\); creating it again"),
    ],
)
def test_a_cached_folder_of_an_earlier_version_is_not_called_damaged(manifest, said, tmp_path, caplog):
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest)
    assert not is_intact(folder)
    assert not folder.exists()
    (message,) = caplog.messages
    assert re.search(said, message)


def test_an_output_that_is_no_file_is_rejected_before_any_work(tmp_path):
    cases = {os.devnull: "not a regular file", tmp_path: "not a regular file", tmp_path / "no" / "x": "does not exist"}
    for path, message in cases.items():
        with pytest.raises(OSError, match=message):
            check_writable(Path(path), overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is a file; choose another output"):
        check_output_folder(tmp_path / "file" / "figures")
