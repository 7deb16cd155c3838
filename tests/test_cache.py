"""The cache returns what was stored or builds it again; damaged, stale or incomplete files are never used. Keys of runs are
plain JSON, and what differs between two of them is named.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
from pathlib import Path

import pytest
import torch

from atwu._cache import cache_folder, cached_tensors, key_differences, run_key, short_hash, warn_uncached
from atwu.benchmarks.sources import load_rows
from atwu.evaluation.generations import Generation, GenerationStore

KEY = {"model": "abc", "rows": [1, 2], "nested": {"b": 1, "a": None}}


def some_tensors():
    generator = torch.Generator().manual_seed(0)
    return {
        "half": torch.randn(5, 3, generator=generator).bfloat16(),
        "double": torch.randn(4, generator=generator, dtype=torch.float64),
        "whole": torch.tensor([-(2**40), 0, 7]),
        "truth": torch.tensor([True, False, True]),
        "nothing": torch.zeros(0, 4),
        "scalar": torch.tensor(3.0),
    }


def never():
    raise AssertionError("built although it was there")


def equal(found, expected):
    return found.keys() == expected.keys() and all(
        found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in expected.items()
    )


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_tensors_are_built_once_and_read_with_their_dtypes(tmp_path):
    folder = tmp_path / "deep" / "cache"
    assert equal(cached_tensors(folder, KEY, some_tensors), some_tensors())
    assert the_file(folder).name == f"{short_hash(KEY)}.safetensors"
    assert equal(cached_tensors(folder, KEY, never), some_tensors())
    reordered = dict(reversed(KEY.items()))
    assert equal(cached_tensors(folder, reordered, never), some_tensors())


DAMAGE = {
    "empty": lambda raw: b"",
    "one byte short": lambda raw: raw[:-1],
    "last byte": lambda raw: raw[:-1] + bytes([raw[-1] ^ 0x80]),
    "not the header's letters": lambda raw: raw.replace(b'"dtype":"I64"', b'"dtype":"U64"'),
    "another name": lambda raw: raw.replace(b'"double"', b'"duoble"'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_rebuilt_with_a_warning(damage, tmp_path, caplog):
    cached_tensors(tmp_path, KEY, some_tensors)
    path = the_file(tmp_path)
    raw = path.read_bytes()
    path.write_bytes(DAMAGE[damage](raw))
    assert path.read_bytes() != raw
    with caplog.at_level(logging.WARNING, logger="atwu._cache"):
        assert equal(cached_tensors(tmp_path, KEY, some_tensors), some_tensors())
    (said,) = caplog.records
    assert str(path) in said.getMessage()
    assert the_file(tmp_path) == path
    assert equal(cached_tensors(tmp_path, KEY, never), some_tensors())


def test_a_file_of_another_key_is_rejected(tmp_path, caplog):
    cached_tensors(tmp_path, {"model": "other"}, lambda: {"x": torch.ones(2)})
    the_file(tmp_path).rename(tmp_path / f"{short_hash(KEY)}.safetensors")
    assert cached_tensors(tmp_path, KEY, lambda: {"x": torch.zeros(2)})["x"].tolist() == [0, 0]
    assert "damaged" in caplog.text


@pytest.mark.parametrize("there_before", [False, True])
def test_failed_builds_and_writes_leave_no_files(there_before, tmp_path, monkeypatch):
    if there_before:
        (tmp_path / f"{short_hash(KEY)}.safetensors").write_bytes(b"damaged")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        cached_tensors(tmp_path, KEY, lambda: {"x": torch.ones(1 // 0)})
    assert sorted(tmp_path.iterdir()) == before

    def full(tensors, path, metadata):
        Path(path).write_bytes(b"half of it")
        raise ValueError("something else")

    with monkeypatch.context() as patched:
        patched.setattr("safetensors.torch.save_file", full)
        with pytest.raises(ValueError, match="something else"):
            cached_tensors(tmp_path, KEY, some_tensors)
    assert sorted(tmp_path.iterdir()) == before
    assert equal(cached_tensors(tmp_path, KEY, some_tensors), some_tensors())


def _write_together(folder, other, own):
    torch.set_num_threads(1)  # a fork has none of its parent's threads

    def build():
        own.touch()
        while not other.exists():  # both have looked up the key before either writes
            time.sleep(0.001)
        return {"x": torch.arange(200_000.0)}

    assert torch.equal(cached_tensors(folder, {"k": 1}, build)["x"], torch.arange(200_000.0))


def test_two_concurrent_processes_leave_one_complete_file(tmp_path):
    folder, signs = tmp_path / "cache", [tmp_path / "a", tmp_path / "b"]
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=_write_together, args=(folder, signs[1 - index], signs[index])) for index in (0, 1)]
    for process in running:
        process.start()
    for process in running:
        process.join(timeout=120)
    assert [process.exitcode for process in running] == [0, 0]
    assert the_file(folder).suffix == ".safetensors"
    assert torch.equal(cached_tensors(folder, {"k": 1}, never)["x"], torch.arange(200_000.0))


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("ATWU_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "all"))
    assert cache_folder() == tmp_path / "all" / "atwu"
    for unset in (lambda: monkeypatch.setenv("XDG_CACHE_HOME", ""), lambda: monkeypatch.delenv("XDG_CACHE_HOME")):
        unset()
        assert cache_folder() == Path.home() / ".cache" / "atwu"


@pytest.mark.parametrize("cache", ["/dev/null", "file"])
def test_a_cache_that_is_no_folder_is_done_without(cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / cache))
    warn_uncached.cache_clear()
    tensors = some_tensors()
    assert equal(cached_tensors(cache_folder() / "references", {"a": 1}, lambda: tensors), tensors)
    store = GenerationStore()
    store.append("one", [("key", Generation("text", 1))])
    assert store.read("one", ["key"]) == {}
    assert load_rows([{"question": "Who?", "answer": "Pella."}]).rows[0].answer == "Pella."
    assert (tmp_path / "file").read_text() == "mine"


def test_a_cache_in_the_home_folder_may_be_named_with_a_tilde(monkeypatch):
    monkeypatch.setenv("ATWU_CACHE", "~/somewhere")
    assert cache_folder() == Path.home() / "somewhere"


def key_of_run(**changes: object) -> dict[str, object]:
    parts = {
        "options": {"seed": 1, "space": {"beta": (0.1, 5.0)}},
        "model": "a1",
        "rows": {"forget": "b2"},
        "inputs": {"words": Path("words.txt")},
    }
    return run_key("unlearn", **parts | changes)


def test_a_key_equals_the_one_that_is_read_from_its_file() -> None:
    assert json.loads(json.dumps(key_of_run())) == key_of_run()
    assert key_of_run()["options"] == {"seed": 1, "space": {"beta": [0.1, 5.0]}}


def test_every_difference_is_named_by_its_place() -> None:
    other = key_of_run(
        options={"seed": 2, "space": {"beta": (0.1, 9.0)}}, model="a9", rows={"forget": "b2", "retain": "c3"}
    )
    assert key_differences(key_of_run(), other) == ["model", "options.seed", "options.space.beta", "rows.retain"]
    assert key_differences(key_of_run(), key_of_run()) == []
