"""`--lora-r` and `--save-adapter` on the command line, and every command that reads a model on an adapter folder."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest

pytest.importorskip("peft")

from atwu.benchmarks.sources import load_rows
from tests.commands import run_command
from tests.micro_models import write_micro

ROWS = ("--forget", "people:tiny:forget", "--retain", "people:tiny:retain")
SHORT = ("--use-cpu", "--max-steps", "2", "--save-strategy", "no", "--disable-tqdm", "--learning-rate", "1e-2")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "base"
    texts = [f"{row.question} {row.answer}" for row in load_rows("people:tiny:full").rows]
    return write_micro(folder, texts)


@pytest.fixture(scope="module")
def adapter(atwu, base):
    output = base.parent / "adapter"
    printed = atwu("unlearn", "--model", base, *ROWS, *SHORT, "--output", output, "--lora-r", "2", "--save-adapter")
    assert "rank 2" in printed
    return output


@pytest.fixture(scope="module")
def orphan(adapter):
    """The adapter, whose recorded base model does not exist."""
    folder = shutil.copytree(adapter, adapter.parent / "missing")
    (folder / "manifest.json").unlink()  # it is edited
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(folder / "gone")}))
    return folder


def test_an_adapter_folder_is_evaluated_like_a_model(atwu, adapter, tmp_path):
    output = tmp_path / "eval.json"
    printed = atwu(
        "evaluate", "--model", adapter, *ROWS, "--metrics", "memorization,scores", "--device", "cpu", "--output", output
    )
    assert "extraction_strength" in printed
    result = json.loads(output.read_text())
    assert {"probability", "auroc_scorer"} <= set(result["sets"]["forget"])


COMMANDS = [
    ("evaluate", ("--forget", "people:tiny:forget", "--metrics", "memorization", "--limit", "4")),
    ("tokens", ("--data", "people:tiny:forget", "--rows", "2", "--score", "scorer")),
    ("probe", ("--data", "people:tiny:forget", "--layers", "last", "--position", "own", "--folds", "2")),
]


@pytest.mark.parametrize(("command", "arguments"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_find_the_base_model_or_take_base(command, arguments, adapter, orphan, base):
    def run(model, *more, code=0):
        done = run_command(
            [command, "--model", model, *arguments, *more, "--device", "cpu"], env=os.environ | {"COLUMNS": "200"}
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    shown = run(adapter)
    lost = run(orphan, code=1)
    assert re.search(r"missing .*gone.*--base", lost)
    assert run(orphan, "--base", base).replace("missing", "adapter") == shown
    assert re.search(f"error: .*base.*{base}.*adapter", run(base, "--base", base, code=2))


def test_finetune_merges_adapters_by_default(atwu, base, tmp_path):
    printed = atwu(
        *("finetune", "--model", base, "--data", "people:tiny:forget", *SHORT, "--output", tmp_path / "out"),
        *("--lora-r", "4", "--lora-targets", "q_proj,v_proj", "--lora-alpha", "4"),
    )
    assert "rank 4: 1,024 " in printed  # 2 layers x 2 x 4 x (32 + 32)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["result"]["kind"] == "merged"
    assert record["result"]["lora"]["targets"] == ["q_proj", "v_proj"]
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lora-alpha", "8"), "error: .*lora_alpha.*lora_r"),
        (("--lora-r", "2", "--lora-targets", "lm_head"), "share.*--save-adapter"),
    ],
)
def test_wrong_adapters_end_with_one_line(atwu, arguments, message, base, tmp_path):
    printed = atwu("unlearn", "--model", base, *ROWS, *SHORT, "--output", tmp_path / "out", *arguments, code=1)
    assert re.search(message, printed), printed
    assert "Traceback" not in printed
    assert not list(tmp_path.iterdir())
