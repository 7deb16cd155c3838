"""Two real processes train to the same result as one."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("peft")

from safetensors.torch import load_file

from tests.commands import IN_PROCESSES, run_command

METHODS = ("gt_ga", "atwu_dpo")
ADAPTERS = {"method": "npo", "reference": "adapters", "lora_r": 2, "save_adapter": True, "learning_rate": 1e-2}
ENTRY = """
import json, sys
from atwu.cli.app import _leave_process_group
from atwu.training.config import UnlearnConfig
from atwu.training.unlearn_run import ModelSource, run_unlearn

model, rows, runs = json.loads(sys.argv[1])
for output, settings in runs.items():
    run_unlearn(ModelSource(model=model), UnlearnConfig(**settings), **rows, output=output)
_leave_process_group()
"""


@pytest.fixture(scope="module")
def trained(model_folder, data_files, tmp_path_factory):
    """Every method's run, and one of adapters, alone and in two processes."""
    folder = tmp_path_factory.mktemp("processes")
    settings = {"num_train_epochs": 2, "gradient_accumulation_steps": 2, "use_cpu": True, "disable_tqdm": True}
    settings |= {"save_strategy": "no", "learning_rate": 1e-3}
    methods = {name: {"method": name, "scorer_every": 2, "budget": "soft"} for name in METHODS} | {"adapters": ADAPTERS}
    kinds = {
        "alone": (ENTRY, {"per_device_train_batch_size": 4}),
        "together": (
            IN_PROCESSES.format(number=2, code=ENTRY),
            {"per_device_train_batch_size": 2, "ddp_backend": "gloo"},
        ),
    }
    for kind, (code, more) in kinds.items():
        runs = {str(folder / kind / name): settings | more | own for name, own in methods.items()}
        given = [str(model_folder), dict(zip(("forget", "retain"), map(str, data_files), strict=True)), runs]
        done = run_command([json.dumps(given)], code=code)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_processes_equal_one(method, trained, model_folder):
    alone, together = trained / "alone" / method, trained / "together" / method
    start = load_file(model_folder / "model.safetensors")
    one, two = load_file(alone / "model.safetensors"), load_file(together / "model.safetensors")
    moved = max((one[name] - start[name]).abs().max() for name in one)
    apart = max((one[name] - two[name]).abs().max() for name in one)
    assert moved > 1e-3
    assert apart < 2e-3 * moved
    if method.startswith("atwu"):
        learned = [load_file(folder / "scorer.safetensors") for folder in (alone, together)]
        assert learned[0]["linear.weight"].abs().max() > 1e-3
        for name in learned[0]:
            torch.testing.assert_close(learned[0][name], learned[1][name], atol=1e-5, rtol=1e-3)


@pytest.mark.slow
def test_two_processes_train_the_adapters_of_one(trained):
    one, two = (load_file(trained / kind / "adapters" / "adapter_model.safetensors") for kind in ("alone", "together"))
    moved = max(value.abs().max() for name, value in one.items() if "lora_B" in name)
    assert moved > 1e-2
    assert max((one[name] - two[name]).abs().max() for name in one) < 2e-3 * moved
