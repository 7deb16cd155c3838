"""What is asked for is done or refused, not left out and recorded."""

from __future__ import annotations

import pytest

from atwu import FinetuneConfig, UnlearnConfig
from tests.commands import run_here


@pytest.mark.parametrize("config", [FinetuneConfig, UnlearnConfig])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fsdp": True}, "fsdp needs several processes"),
        ({"fsdp": "full_shard"}, "fsdp must be true or false"),
        ({"fsdp_config": {"version": 2}}, "fsdp_config has no effect without fsdp"),
        ({"deepspeed": "zero3.json"}, "deepspeed is not supported: .* fsdp shards as well"),
        ({"use_liger_kernel": True}, "without its fused loss"),
        ({"parallelism_config": object()}, "tensor and context parallelism are not tested"),
        ({"fp16": True}, r"fp16 needs a GPU \(bf16 does not\)"),
        ({"torch_compile": True}, "torch_compile is not supported"),
        ({"torch_compile_backend": "cudagraphs"}, "torch_compile_backend is not supported"),
        ({"label_smoothing_factor": 0.1}, "the losses are those of the method"),
        ({"train_sampling_strategy": "group_by_length"}, "follows from seed and epoch"),
        ({"average_tokens_across_devices": False}, "the tokens of all processes"),
        ({"load_best_model_at_end": True, "metric_for_best_model": "eval_ES_delta"}, "the model of the last step"),
        ({"hub_strategy": "end"}, "the finished folder, once"),
        ({"bf16_full_eval": True}, "is set as for atwu evaluate"),
        ({"label_names": ["labels"]}, "label_names is not supported"),
        ({"per_device_eval_batch_size": 2}, "is set as for atwu evaluate"),
        ({"do_eval": True}, "what is done is what is called"),
        ({"ddp_timeout": 60}, r"ddp_timeout needs several processes \(torchrun"),
        ({"ddp_find_unused_parameters": False}, "ddp_find_unused_parameters needs several processes"),
    ],
)
def test_what_would_be_left_out_is_refused(config, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        config(output_dir=str(tmp_path), use_cpu=True, **options)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"version": 1}, "version must be 2"),
        ({"state_dict_type": "LOCAL_STATE_DICT"}, "must be one of FULL_STATE_DICT, SHARDED_STATE_DICT"),
        ({"cpu_ram_efficient_loading": True}, "leaves processes without weights"),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 9}, "does not work for lists of layers"),
        ({"cpu_offload": True}, "cpu_offload needs a GPU"),
        ({"xla": True}, "xla is not supported"),
    ],
)
def test_ways_to_shard_that_would_fail_later_are_refused(how, message, tmp_path, monkeypatch):
    monkeypatch.setattr("atwu.training.possible._several", lambda: True)
    with pytest.raises(ValueError, match=f"fsdp: .*{message}"):
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, fsdp=True, fsdp_config=how)


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED", "PARALLELISM_CONFIG"])
def test_sharding_asked_of_accelerate_alone_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(ValueError, match=f"use {name} and the run was not"):
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True)


def test_a_logger_that_is_not_installed_is_named(tmp_path):
    with pytest.raises(ImportError, match=r"nobody is not installed \("):
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, report_to=["nobody"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--fsdp",), "fsdp needs several processes"),
        (("--resume-from-checkpoint", "somewhere"), "leave resume_from_checkpoint out"),
    ],
)
def test_commands_refuse_before_a_model_is_loaded(flags, message, model_folder, data_files, tmp_path):
    rows = ("--data", data_files[0], "--output", tmp_path / "run")
    done = run_here("finetune", "--model", model_folder, *rows, *flags)
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)
    assert not list(tmp_path.iterdir())
