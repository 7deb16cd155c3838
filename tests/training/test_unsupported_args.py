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
        ({"average_tokens_across_devices": False}, "average_tokens_across_devices"),
        ({"load_best_model_at_end": True, "metric_for_best_model": "eval_ES_delta"}, "load_best_model_at_end"),
        ({"metric_for_best_model": "eval_ES_delta"}, "metric_for_best_model .*eval_strategy"),
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
        ({"optim": "admw_torch"}, "optim is 'admw_torch'; choose from adamw_torch, .* Did you mean 'adamw_torch'"),
        ({"lr_scheduler_type": "linar"}, "lr_scheduler_type is 'linar'; choose from linear, .* Did you mean 'linear'"),
        ({"optim": "sgd", "optim_args": "momentum=no"}, "optim_args sets momentum='no', which is not a valid value"),
        ({"optim_args": "rank"}, "optim_args must be NAME=VALUE pairs .*'rank'"),
        (
            {"optim_args": "foo=1"},
            "optim_args sets 'foo', but the optimizer adamw_torch.* takes none; leave optim_args",
        ),
        (
            {"optim": "sgd", "optim_args": "momentum=0.9, foo=1"},
            "'foo', but the optimizer sgd takes momentum, dampening, weight_decay, nesterov",
        ),
        (
            {"optim": "adamw_torch_fused", "optim_args": "fused=False"},
            "sets 'fused', but the optimizer adamw_torch_fused takes none",
        ),
        ({"hub_strategy": "end"}, "hub_strategy"),
        ({"bf16_full_eval": True}, "bf16_full_eval"),
        ({"label_names": ["labels"]}, "label_names"),
        ({"per_device_eval_batch_size": 2}, "per_device_eval_batch_size"),
        ({"do_eval": True}, "do_eval"),
        ({"dataloader_num_workers": -1}, "dataloader_num_workers .*>= 0, got -1"),
        ({"ddp_timeout": 60}, "ddp_timeout .*torchrun"),
        ({"ddp_find_unused_parameters": False}, "ddp_find_unused_parameters .*processes"),
    ],
)
def test_arguments_that_would_be_ignored_are_rejected(config, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        config(output_dir=str(tmp_path), use_cpu=True, **options)


@pytest.mark.parametrize(
    ("optim", "taken"),
    [
        ("sgd", "momentum=0.9, nesterov=true"),
        ("adagrad", "lr_decay=0.1"),
        ("rmsprop", "alpha=0.9,centered=true"),
        ("lomo", "clip=1"),  # not installed, or needs a model
    ],
)
def test_options_that_an_optimizer_takes_are_accepted(optim, taken, tmp_path):
    FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, optim=optim, optim_args=taken)


@pytest.mark.parametrize("optim", ["rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit"])
def test_options_that_transformers_passes_on_as_text_are_rejected(optim, tmp_path):
    pytest.importorskip("bitsandbytes")
    with pytest.raises(ValueError, match=f"sets 'alpha', but the optimizer {optim} takes none; leave optim_args out"):
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, optim=optim, optim_args="alpha=0.9")


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
        (("--resume-from-checkpoint", "somewhere"), "resume_from_checkpoint"),
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
