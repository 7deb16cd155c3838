"""Training arguments are supported or rejected, never ignored."""

from __future__ import annotations

import re

import pytest

from atwu import FinetuneConfig, UnlearnConfig
from tests.commands import run_here


@pytest.mark.parametrize("config", [FinetuneConfig, UnlearnConfig])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fsdp": True}, "fsdp .*processes"),
        ({"fsdp": "full_shard"}, "fsdp .*true.*false"),
        ({"fsdp_config": {"version": 2}}, "fsdp_config .*fsdp"),
        ({"deepspeed": "zero3.json"}, "deepspeed .*fsdp"),
        ({"use_liger_kernel": True}, "use_liger_kernel"),
        ({"parallelism_config": object()}, "parallelism"),
        ({"fp16": True}, "fp16 .*GPU.*bf16"),
        ({"torch_compile": True}, "torch_compile "),
        ({"torch_compile_backend": "cudagraphs"}, "torch_compile_backend"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy"),
        ({"data_seed": 3}, "data_seed .*follows from seed"),
        ({"average_tokens_across_devices": False}, "average_tokens_across_devices"),
        ({"load_best_model_at_end": True, "metric_for_best_model": "eval_ES_delta"}, "load_best_model_at_end"),
        ({"save_only_model": True}, "save_only_model .*save_strategy='no'"),
        ({"remove_unused_columns": True}, "remove_unused_columns .*tokens"),
        ({"logging_nan_inf_filter": True}, "logging_nan_inf_filter .*stop"),
        ({"save_strategy": "best"}, "save_strategy='best' .*eval_strategy"),
        ({"save_strategy": "steps", "save_steps": 0}, "save_steps must be .* > 0, got 0"),
        (
            {"lr_scheduler_kwargs": {"cycles": 2}},
            "lr_scheduler_type linear .*{'cycles': 2}: .*unexpected keyword.*'cycles'",
        ),
        (
            {"lr_scheduler_type": "warmup_stable_decay"},
            "lr_scheduler_type warmup_stable_decay .*=None: .*num_decay_steps",
        ),
        ({"optim": "admw_torch"}, "admw_torch is not a valid OptimizerNames.*adamw_torch"),
        ({"lr_scheduler_type": "linar"}, "linar is not a valid SchedulerType.*linear"),
    ],
)
def test_arguments_that_would_be_ignored_are_rejected(config, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        config(output_dir=str(tmp_path), use_cpu=True, **options)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"version": 1}, "version.* 2"),
        ({"state_dict_type": "LOCAL_STATE_DICT"}, "FULL_STATE_DICT, SHARDED_STATE_DICT"),
        ({"cpu_ram_efficient_loading": True}, "cpu_ram_efficient_loading"),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 9}, "SIZE_BASED_WRAP"),
        ({"cpu_offload": True}, "cpu_offload .*GPU"),
        ({"xla": True}, "xla"),
    ],
)
def test_sharding_options_that_would_fail_later_are_rejected(how, message, tmp_path, monkeypatch):
    monkeypatch.setattr("atwu.training.config._several", lambda: True)
    with pytest.raises(ValueError, match=f"fsdp: .*{message}"):
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, fsdp=True, fsdp_config=how)


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED", "PARALLELISM_CONFIG"])
def test_sharding_configured_only_in_accelerate_is_rejected(name, tmp_path, monkeypatch):
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(ValueError, match=name):
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True)


def test_errors_name_loggers_that_are_not_installed(tmp_path):
    with pytest.raises(ImportError, match="nobody"):
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, report_to=["nobody"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--fsdp",), "fsdp .*processes"),
        (("--training-args", '{"resume_from_checkpoint": "somewhere"}'), "resume_from_checkpoint"),
        (("--training-args", '{"tf33": true}'), "unknown field of TrainingArguments 'tf33'.* Did you mean 'tf32'"),
        (("--training-args", '{"seed": 1}'), "sets seed, which has a flag: give it as --seed"),
        (("--training-args", '{"output_dir": "x"}'), "sets output_dir, which a command does not let you choose"),
        (("--training-args", "[1]"), "--training-args must be a JSON object"),
        (("--training-args", "{"), "--training-args, line 1, column 2: invalid JSON"),
        (("--training-args", '{"deepspeed": "zero3.json"}'), "deepspeed is not supported"),
        (("--steps", "2", "--epochs", "1"), "--steps and --num-train-epochs/--epochs exclude each other"),
        (("--hub-model-id", "me/model"), "--hub-model-id .*--push-to-hub"),
        (("--tokenizer", "somewhere"), "--tokenizer .*--scratch"),
        (("--revision", "v1"), "revision='v1' requires the Hub name .*on this machine; leave out revision"),
    ],
)
def test_commands_reject_arguments_before_a_model_is_loaded(flags, message, model_folder, data_files, tmp_path):
    rows = ("--data", data_files[0], "--output", tmp_path / "run")
    done = run_here("finetune", "--model", model_folder, *rows, *flags)
    assert isinstance(done.exception, ValueError)
    assert re.search(message, str(done.exception))
    assert not list(tmp_path.iterdir())
