"""A full disk and an unwritable folder, on real file systems: one line, and no data is lost."""

from __future__ import annotations

import re
import subprocess

import pytest
import torch
from safetensors.torch import save_file

from atwu._cache import cached_tensors
from atwu._files import explain_full_disk, write_json
from atwu.errors import DiskFullError
from atwu.evaluation.generations import Generation, GenerationStore
from tests.damage import disk


@pytest.fixture
def small_disk(tmp_path):
    with disk(tmp_path / "disk", "256k") as folder:
        yield folder


def test_a_full_disk_is_a_one_line_error_in_every_library(small_disk):
    big = torch.zeros(100_000)
    for write in (
        lambda: save_file({"a": big}, small_disk / "a"),
        lambda: torch.save({"a": big}, small_disk / "b"),
        lambda: write_json(small_disk / "c", "x" * 10**6),
        lambda: big.numpy().tofile(small_disk / "d"),
    ):
        with pytest.raises(DiskFullError, match=rf"{small_disk}") as caught, explain_full_disk(small_disk):
            write()
        assert "\n" not in str(caught.value)
        for path in small_disk.iterdir():
            path.unlink()


def test_other_errors_are_not_changed(tmp_path):
    with pytest.raises(FileNotFoundError), explain_full_disk(tmp_path):
        (tmp_path / "none").read_text()
    with pytest.raises(ValueError, match=r"^disk$"), explain_full_disk(tmp_path):
        raise ValueError("disk")


@pytest.mark.parametrize("closed", [True, False])
def test_a_cache_that_cannot_be_written_gives_one_warning(closed, small_disk, caplog):
    folder, store = small_disk / "references", GenerationStore(small_disk / "replies.sqlite")
    if closed:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    big = torch.arange(100_000.0)
    for _ in range(2):
        assert torch.equal(cached_tensors(folder, {"a": 1}, lambda: {"x": big})["x"], big)
        store.append("one", [("key", Generation("x" * 300_000, 1))])
    reasons = ("Read-only file system|No space left", "Read-only|disk is full")
    for said, reason in zip(sorted(caplog.messages), reasons, strict=True):
        assert re.search(rf"^warning: .*{small_disk}.* \(.*({reason})", said)
