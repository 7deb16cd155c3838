"""The folder of a run: which folders are replaced, and which process may write to it."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from pathlib import Path

import pytest

from atwu._manifest import write_manifest
from atwu.training.run_folder import RECORD_SCHEMA, RunFolder


def finished(path):
    path.mkdir()
    (path / "run.json").write_text(json.dumps({"schema": RECORD_SCHEMA}))
    return path


def test_a_folder_that_is_not_a_run_is_never_replaced(tmp_path):
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match=r"thesis .*run of atwu"):
            RunFolder(mine, overwrite=overwrite)
    work = tmp_path / "out.incomplete"
    work.mkdir()
    (work / "notes.txt").write_text("also mine")
    with pytest.raises(FileExistsError, match=r"out\.incomplete .*run of atwu"):
        RunFolder(tmp_path / "out", overwrite=True)
    (tmp_path / "other.incomplete").touch()
    with pytest.raises(FileExistsError, match=r"other\.incomplete .*run of atwu"):
        RunFolder(tmp_path / "other")
    assert (mine / "chapter.tex").exists()
    assert (work / "notes.txt").exists()


def test_a_finished_run_is_replaced_only_on_request_and_atomically(tmp_path):
    path = finished(tmp_path / "run")
    with pytest.raises(FileExistsError, match="finished run"):
        RunFolder(path)
    folder = RunFolder(path, overwrite=True)
    folder.begin({"a": 1})
    (finished(folder.final) / "new").write_text("")
    write_manifest(folder.final)
    assert folder.trained()
    folder.publish()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run"]
    assert (path / "new").exists()


def test_leftovers_of_a_killed_run_are_removed_by_the_next_command_and_unfinished_runs_are_kept(tmp_path, monkeypatch):
    path = tmp_path / "run"
    folder = RunFolder(path)
    folder.begin({"a": 1})
    with monkeypatch.context() as patched:
        patched.setattr("atwu.training.run_folder.drop_unfinished", lambda _: None)
        finished(folder.final)
        write_manifest(folder.final)
        folder.publish()
    assert (path / "run.json").is_file()
    assert folder.work.is_dir()
    with pytest.raises(FileExistsError, match="finished run"):
        RunFolder(path)
    assert list(tmp_path.iterdir()) == [path]
    RunFolder(path, overwrite=True).begin({"a": 2})
    with pytest.raises(FileExistsError, match="finished run"):
        RunFolder(path)
    assert folder.work.is_dir()


def test_a_work_folder_under_construction_is_recognized(tmp_path):
    # Of several processes one makes it while the others check; and a run may be killed there.
    work = tmp_path / "run.incomplete"
    work.mkdir()
    RunFolder(tmp_path / "run")
    (work / "run.lock").touch()
    RunFolder(tmp_path / "run").begin({})


def test_an_unfinished_run_is_resumed_or_rejected_by_its_key(tmp_path):
    first = RunFolder(tmp_path / "run")
    first.begin({"config": {"beta": 1}})
    first._lock.release(force=True)
    (first.work / "checkpoint-7").mkdir()
    (first.work / "checkpoint-7/run_key.json").write_text('{"config": {"beta": 1}}')
    write_manifest(first.work / "checkpoint-7")
    again = RunFolder(tmp_path / "run")
    again.begin({"config": {"beta": 1}})
    assert (first.work / "checkpoint-7").exists()
    again._lock.release(force=True)
    with pytest.raises(FileExistsError, match=r"config\.beta"):
        RunFolder(tmp_path / "run").begin({"config": {"beta": 2}})
    RunFolder(tmp_path / "run", overwrite=True).begin({"config": {"beta": 2}})
    assert not (first.work / "checkpoint-7").exists()


def _try_to_begin(path, answers):
    try:
        RunFolder(path).begin({"a": 1})
        answers.put("began")
    except FileExistsError as error:
        answers.put(str(error))


def test_starting_the_same_run_twice_is_rejected(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin({"a": 1})
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    other = context.Process(target=_try_to_begin, args=(tmp_path / "run", answers))
    other.start()
    assert re.search(rf"\(process {os.getpid()}\)", answers.get(timeout=120))
    other.join()


def test_too_little_disk_space_is_reported_before_training(tmp_path):
    with pytest.raises(OSError, match=r"1\.0 EB.*--save-total-limit 1"):
        RunFolder(tmp_path / "deep" / "run").check_space(10**18)
    assert not (tmp_path / "deep").exists()


def test_a_published_record_contains_no_local_paths(tmp_path):
    from atwu.training.model_card import public_record

    (tmp_path / "target").mkdir()
    record = {
        "original_model": {"model": str(tmp_path / "target"), "revision": None},
        "data": {"forget": {"source": "people:tiny:forget", "rows": 24}},
        "config": {"cache_dir": "/somewhere", "scorer_from": str(tmp_path / "warm"), "learning_rate": 2e-5},
        "hub": ["org/name"],
        "versions": ("~/models/x", Path("/somewhere/y")),
        "up": "../secret/z.jsonl + people:tiny:retain + /some where/a.csv",
    }
    assert public_record(record) == {
        "original_model": {"model": "target", "revision": None},
        "data": {"forget": {"source": "people:tiny:forget", "rows": 24}},
        "config": {"scorer_from": "warm", "learning_rate": 2e-5},
        "hub": ["org/name"],
        "versions": ["x", "y"],
        "up": "z.jsonl + people:tiny:retain + a.csv",
    }


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (
            "atwu study run x --judge-url https://orla:p@w@host:8000/v1?key=k#f",
            "atwu study run x --judge-url https://host:8000/v1",
        ),
        (
            "atwu report '/home/Orla Venn/runs/x' ~/y ../z/w runs/v --title 'a b'",
            "atwu report x y w runs/v --title 'a b'",
        ),
        (
            "a --extra-retain=n=/x/y.jsonl --judge local:/m/phi people:tiny:forget",
            "a --extra-retain=n=y.jsonl --judge local:phi people:tiny:forget",
        ),
        ("not 'closed /home/orla/x", "not 'closed x"),
        (r"a 'C:\Users\orla\x' C:\Users\orla\x", "a x x"),
    ],
)
def test_local_paths_in_a_published_command_are_shortened(typed, shown):
    from atwu.training.model_card import public_command

    assert public_command(typed) == shown


def test_local_paths_in_a_published_sentence_are_shortened():
    from atwu.training.model_card import public_text

    said = public_text("NotFound: '/home/orla/x'; see https://a:b@host/c?d and J_W / J_W, 1/2")
    assert said == "NotFound: 'x'; see https://host/c and J_W / J_W, 1/2"
