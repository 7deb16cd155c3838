"""Weights sharded over two real processes (FSDP2) give the log-probabilities and gradients of whole ones."""

from __future__ import annotations

import pytest

from tests.commands import run_command

SCRIPT = """
import multiprocessing
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.modeling.single_pass import fast_path_support
from atwu.modeling.forward import forward_tokens


def build():
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))


def check(rank):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
    ids = torch.randint(3, 64, (3, 10), generator=torch.Generator().manual_seed(rank))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :3] = -100
    rows = {"input_ids": ids, "attention_mask": mask, "labels": labels}

    whole = build()
    (expected,) = forward_tokens(whole, [rows])
    expected.logps.sum().backward()
    sharded, mesh = build(), init_device_mesh("cpu", (2,))
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    (got,) = forward_tokens(sharded, [rows])
    abilities = fast_path_support(sharded, torch.device("cpu"))
    assert abilities.fused_head and abilities.packed and abilities.last_mlp, abilities
    torch.testing.assert_close(got.logps, expected.logps)
    got.logps.sum().backward()
    for (name, one), two in zip(whole.named_parameters(), sharded.parameters(), strict=True):
        dist.all_reduce(one.grad)
        torch.testing.assert_close(two.grad.full_tensor(), one.grad / 2, msg=name)
    dist.barrier()
    os._exit(0)  # every check is done; gloo's threads may abort an orderly exit


processes = [multiprocessing.get_context("fork").Process(target=check, args=(rank,)) for rank in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(max(abs(process.exitcode) for process in processes))
"""


@pytest.mark.night
def test_a_sharded_model_equals_an_unsharded_one(tmp_path):
    done = run_command([tmp_path / "meeting"], code=SCRIPT)
    assert done.returncode == 0, done.stderr[-3000:]
