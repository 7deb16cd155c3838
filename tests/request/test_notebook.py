"""The notebook for a free GPU: its cells are run here with a tiny model that learned its rows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nbformat
import pytest
from transformers import LlamaConfig

from atwu.benchmarks.sources import load_rows
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.training.config import FinetuneConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.unlearn_run import run_finetune
from tests.commands import run_command
from tests.request.measurements import few_measurements
from tests.snippets import ROOT

NOTEBOOK = nbformat.read(ROOT / "examples" / "forget.ipynb", as_version=4)
LARGE = LlamaConfig(
    hidden_size=32768, intermediate_size=131072, num_hidden_layers=4, num_attention_heads=64, vocab_size=300
)


def run_cells(cells: int | None = None) -> dict[str, Any]:
    """Run the code cells behind the installation, all or some, and return what they define."""
    names: dict[str, Any] = {}
    code = [cell.source for cell in NOTEBOOK.cells if cell.cell_type == "code"]
    assert "%pip install" in code[0]
    for source in code[1:][:cells]:
        exec(source, names)
    return names


@pytest.fixture
def here(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ATWU_CACHE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, environment[name])
    # Cells start `python -m atwu`, which imports everything anew.
    monkeypatch.setattr(subprocess, "run", lambda command, **_: run_command(command[command.index("atwu") + 1 :]))
    return tmp_path


def test_it_is_stored_without_outputs_and_names_no_machine():
    nbformat.validate(NOTEBOOK)
    for cell in NOTEBOOK.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert "/home" not in cell.source


@pytest.mark.night
def test_its_cells_end_with_a_verdict(here, monkeypatch, capsys):
    rows = run_cells(1)["ROWS"]
    tokenizer = train_tokenizer((f"{row['question']} {row['answer']}" for row in rows), vocab_size=400)
    scratch_model(ScratchShape(len(tokenizer), 64, 2, 2, 128)).save_pretrained("base")
    tokenizer.save_pretrained("base")
    learns = FinetuneConfig(
        num_train_epochs=60,
        learning_rate=5e-3,
        per_device_train_batch_size=6,
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    run_finetune(ModelSource(model="base"), learns, data="forget.jsonl", output="target")
    monkeypatch.setenv("FORGET_MODEL", "target")
    monkeypatch.setenv("FORGET_RETAIN", "people:tiny:retain:8")
    options = {"max_steps": 4, "learning_rate": 3e-3, "use_cpu": True, "disable_tqdm": True, "forms": "none"}
    monkeypatch.setenv("FORGET_OPTIONS", json.dumps(options))
    with few_measurements():
        result = run_cells()["result"]
    printed = capsys.readouterr().out
    assert "first strategy that fits" in printed
    assert result.verdict.criteria[1].before == 1.0  # the model stated all facts
    assert result.verdict.outcome in result._repr_html_()
    assert len(load_rows("forget.jsonl").rows) == 6
    assert (here / "unlearned" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_model_that_is_too_large_is_refused_with_what_to_do(here, monkeypatch, capsys):
    LARGE.save_pretrained("large")
    train_tokenizer(["Where does Orla Venn live?"], vocab_size=300).save_pretrained("large")
    monkeypatch.setenv("FORGET_MODEL", "large")
    with pytest.raises(SystemExit, match="does not fit here; nothing was downloaded"):
        run_cells()
    printed = capsys.readouterr().out
    assert "this run needs about" in printed
    assert "Set MODEL to a smaller one" in printed
