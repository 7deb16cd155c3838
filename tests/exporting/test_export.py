"""A complete export by command: a verdict on quantization, and a full disk."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("peft")

from atwu.benchmarks.sources import load_rows
from atwu.data.encode import Encoder
from atwu.data.pairing import collate_rows
from atwu.errors import DiskFullError
from atwu.modeling.gguf_write import write_gguf
from atwu.modeling.load import load_model, load_tokenizer
from tests.commands import run_command, run_here
from tests.damage import disk
from tests.exporting.exports import exported


def test_the_verdict_reports_what_quantization_recovers(base: Path, rows: Path, tmp_path: Path) -> None:
    """Changes below half a quantization step hide four known rows; quantization to the same grid brings them back."""
    tokenizer, model = load_tokenizer(str(base)), load_model(str(base))
    source = str(rows / "forget.jsonl")
    encoded = Encoder(tokenizer).encode_rows(load_rows(source).rows, what="forget").rows
    batch = collate_rows(encoded)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        adam.zero_grad()
        model(**inputs).loss.backward()
        adam.step()
    with torch.no_grad():
        grid = dict(write_gguf(model, tokenizer, tmp_path / "grid.gguf", "Q4_0", name="grid"))
        for name, weight in model.named_parameters():
            weight.copy_(grid[name])
    assert model(**inputs).loss < 0.3
    free = {name: weight for name, weight in model.named_parameters() if "_proj" in name}
    room = {name: half_step(weight.detach()) for name, weight in free.items()}
    for _ in range(60):
        model.zero_grad()
        (-model(**inputs).loss).backward()
        with torch.no_grad():
            for name, weight in free.items():
                step = weight + room[name] * weight.grad.sign() * -0.1
                weight.copy_(grid[name] + (step - grid[name]).clamp(-room[name], room[name]))
    assert model(**inputs).loss > 3
    model.save_pretrained(tmp_path / "hidden")
    tokenizer.save_pretrained(tmp_path / "hidden")
    done = exported(tmp_path / "hidden", "gguf", tmp_path / "out", forget=source, gguf_type="Q4_0")
    assert (done.verdict.outcome, done.good) == ("what was forgotten comes back", False)
    counts = done.verdict.states[0]
    assert counts.before.facts_stated == 0 < counts.after.facts_stated
    assert done.verdict.leaks
    assert "  export with more bits" in done.summary()
    back = dict(load_model(str(done.model)).named_parameters())
    assert all(back[name].equal(grid[name]) for name in free)
    fine = exported(tmp_path / "hidden", "gguf", tmp_path / "fine", forget=source, gguf_type="F16")
    assert fine.good


def half_step(weight: torch.Tensor) -> torch.Tensor:
    """How far weights on the grid of Q4_0 may move without reaching another point: nothing for a block's largest."""
    blocks = weight.abs().view(-1, 32)
    step = blocks.amax(-1, keepdim=True) / 8
    return torch.where(blocks > 6.5 * step, 0, 0.45 * step).view(weight.shape)


def test_the_command_prints_its_steps_and_ends_with_the_verdict(run: Path, rows: Path, tmp_path: Path) -> None:
    command = ["export", run, "--format", "safetensors", "--output", tmp_path / "out"]
    done = run_command(command)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob(".out*"))
    assert f"exported to {tmp_path / 'out'} (" in done.stdout
    assert "VERDICT: AS BEFORE EXPORT" in done.stdout
    assert "--overwrite" in str(run_here(*command).exception)


def test_a_full_disk_gives_a_one_line_error_and_leaves_no_files(run: Path, rows: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "16m") as folder:
        filler = folder / "filler"

        def fill(line: str) -> None:
            if line.startswith("writing"):
                filler.write_bytes(bytes(shutil.disk_usage(folder).free - 30_000))

        with pytest.raises(DiskFullError, match=re.escape(str(folder / "out"))):
            exported(run, "gguf", folder / "out", say=fill)
        assert list(folder.iterdir()) == [filler]
