"""Untrained models of a few thousand parameters, written to folders with a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.benchmarks.people_rows import people
from atwu.modeling.scratch import scratch_model, train_tokenizer

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def write_models(*folders: Path) -> None:
    """Write models of different seeds with one tokenizer, for the built-in benchmark."""
    tokenizer = train_tokenizer((f"{row.question} {row.answer}" for row in people("tiny").full), vocab_size=500)
    for seed, folder in enumerate(folders):
        torch.manual_seed(seed)
        LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SHAPE)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def write_micro(folder: Path, texts: Iterable[str] = ("Where does Orla Venn live?",)) -> Path:
    """Write the model of shape `micro` with a tokenizer of these texts; return its folder."""
    scratch_model("micro").save_pretrained(folder)
    train_tokenizer(texts, vocab_size=300).save_pretrained(folder)
    return folder
