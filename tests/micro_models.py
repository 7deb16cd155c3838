"""Untrained models of a few thousand parameters for the built-in benchmark."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.benchmarks.people.people_rows import people
from atwu.modeling.scratch import train_tokenizer

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def write_models(*folders: Path) -> None:
    """Write models of different seeds with one tokenizer."""
    tokenizer = train_tokenizer((f"{row.question} {row.answer}" for row in people("tiny").full), vocab_size=500)
    for seed, folder in enumerate(folders):
        torch.manual_seed(seed)
        LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SHAPE)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
