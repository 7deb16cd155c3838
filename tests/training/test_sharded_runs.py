"""Real processes with sharded weights (FSDP 2) train, save and resume to the result of one process."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("peft")

from safetensors.torch import load_file

from atwu.methods.method_table import METHODS
from atwu.methods.recipe import recipe
from atwu.modeling.load import load_model
from tests.commands import IN_PROCESSES, run_command
from tests.training.conftest import NEEDS

ROWS_PER_STEP = 12
ADAPTERS = {"method": "npo", "reference": "adapters", "lora_r": 2, "learning_rate": 1e-2}
FULL, SHARDED = ({"fsdp_config": {"state_dict_type": f"{name}_STATE_DICT"}} for name in ("FULL", "SHARDED"))
RUNS = {
    "atwu": {"method": "atwu", "scorer_every": 2} | SHARDED,
    "undial": {"method": "undial"} | FULL,
    "adapters": ADAPTERS | FULL | {"save_adapter": True, "lora_targets": "q_proj,lm_head"},
}
ENTRY = """
import json, sys
from transformers.trainer_callback import TrainerCallback
from atwu.cli.app import _leave_process_group
from atwu.training.config import UnlearnConfig
from atwu.training.unlearn_run import ModelSource, run_unlearn


class Stop(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        if state.global_step == 3:
            raise InterruptedError


model, rows, stop, runs = json.loads(sys.argv[1])
for output, settings in runs.items():
    try:
        watch = (lambda trainer: [Stop()]) if stop else None
        run_unlearn(ModelSource(model=model), UnlearnConfig(**settings), **rows, output=output, watch=watch)
    except InterruptedError:
        pass
_leave_process_group()
"""


def train(folder, model, data, kind, processes, runs, *, stop=False):
    """Runs, each in a folder of its name, on this many processes; sharded where these are several."""
    settings = {"num_train_epochs": 2, "use_cpu": True, "disable_tqdm": True, "learning_rate": 1e-3, "save_steps": 1}
    settings |= {"gradient_accumulation_steps": 1, "per_device_train_batch_size": ROWS_PER_STEP // processes}
    settings |= {"save_strategy": "steps" if processes > 1 else "no", "cache_dir": str(folder / "cache")}
    wanted = {}
    for name, own in runs.items():
        wanted[str(folder / kind / name)] = settings | own | {"fsdp": True}
        if processes == 1:
            wanted[str(folder / kind / name)] = {
                key: value for key, value in (settings | own).items() if not key.startswith("fsdp")
            }
    rows = dict(zip(("forget", "retain"), map(str, data), strict=True))
    code = ENTRY if processes == 1 else IN_PROCESSES.format(number=processes, code=ENTRY)
    done = run_command([json.dumps([str(model), rows, stop, wanted])], code=code)
    assert done.returncode == 0, done.stderr


def apart(one, other, start):
    """How far two results lie from one another, and the first from the start."""
    names = ("model.safetensors", "adapter_model.safetensors")
    a, b = (load_file(next(folder / name for name in names if (folder / name).is_file())) for folder in (one, other))
    assert a.keys() == b.keys()
    before = load_file(start / "model.safetensors")
    moved = max(float((a[name] - before.get(name, 0)).abs().max()) for name in a if "lora_A" not in name)
    return max(float((a[name] - b[name]).abs().max()) for name in a), moved


@pytest.fixture(scope="module")
def trained(model_folder, data_files, tmp_path_factory):
    """Runs by one process; and by two, stopped after three of four steps, within the second epoch, and resumed by three."""
    folder = tmp_path_factory.mktemp("sharded")
    train(folder, model_folder, data_files, "alone", 1, RUNS)
    train(folder, model_folder, data_files, "sharded", 2, RUNS, stop=True)
    train(folder, model_folder, data_files, "sharded", 3, RUNS)
    return folder


@pytest.mark.night
@pytest.mark.parametrize("name", RUNS)
def test_a_sharded_run_resumed_by_more_processes_equals_one_process(name, trained, model_folder):
    alone, sharded = trained / "alone" / name, trained / "sharded" / name
    difference, moved = apart(alone, sharded, model_folder)
    assert moved > 5e-4
    assert difference < 1e-3 * moved
    assert {file.name for file in sharded.iterdir()} == {file.name for file in alone.iterdir()}
    one, other = (json.loads((folder / "run.json").read_text()) for folder in (alone, sharded))
    assert (other["resumed_from_step"], other["processes"], other["config"]["fsdp"]) == (3, 3, True)
    assert one["original_model"] == other["original_model"]
    load_model(str(sharded))


@pytest.mark.night
def test_every_method_trains_sharded_as_in_one_process(model_folder, data_files, tmp_path):
    several = [
        name for name in METHODS if not recipe(name).forget_component.sampled_readings()
    ]  # samples in one process only
    runs = {name: {"method": name} | NEEDS.get(name, lambda _: {})(model_folder) | SHARDED for name in several}
    runs["reference_model"] = {"method": "undial", "reference": "model"} | FULL
    runs["merged"] = ADAPTERS | SHARDED
    runs["whole"] = {"method": "rmu", "fsdp_config": {"auto_wrap_policy": "NO_WRAP"}}
    runs["checkpointed"] = {"method": "npo", "fsdp_config": {"activation_checkpointing": True}}
    runs["kept"] = ADAPTERS | {"fsdp_config": {"reshard_after_forward": False}}
    train(tmp_path, model_folder, data_files, "alone", 1, runs)
    train(tmp_path, model_folder, data_files, "sharded", 2, runs)
    for name in runs:
        difference, moved = apart(tmp_path / "alone" / name, tmp_path / "sharded" / name, model_folder)
        assert moved > 5e-4, name
        assert difference < 2e-3 * moved, name
