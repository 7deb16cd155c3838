"""Weights sharded over two real processes (FSDP2) give the log-probabilities and gradients of whole ones."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.modeling.abilities import abilities_of
from atwu.modeling.forward import forward_tokens

dist.init_process_group("gloo")


def build():
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))


ids = torch.randint(3, 64, (3, 10), generator=torch.Generator().manual_seed(dist.get_rank()))
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
abilities = abilities_of(sharded, torch.device("cpu"))
assert abilities.fused_head and abilities.packed and abilities.last_mlp, abilities
torch.testing.assert_close(got.logps, expected.logps)
got.logps.sum().backward()
for (name, one), two in zip(whole.named_parameters(), sharded.parameters(), strict=True):
    dist.all_reduce(one.grad)
    torch.testing.assert_close(two.grad.full_tensor(), one.grad / 2, msg=name)
dist.barrier()
os._exit(0)  # every check is done; gloo's threads may abort an orderly exit
"""


@pytest.mark.slow
def test_sharded_equals_whole(tmp_path):
    script = tmp_path / "sharded.py"
    script.write_text(SCRIPT)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}", str(script)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
