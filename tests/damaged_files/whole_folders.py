"""Whole folders to damage, and what is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.adapters import Lora, attach
from atwu.modeling.generate import end_ids
from atwu.modeling.gguf_write import write_gguf
from atwu.modeling.load import load_model
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.scratch import train_tokenizer

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
ROW = Example.from_qa("Where was Orla Venn born?", "In Kelbury.")


def write_whole(folder: Path) -> None:
    """Write the folders `model`, `adapter` and `scorer`, and `gguf` with a GGUF file."""
    tokenizer = train_tokenizer(["Question: Where was Orla Venn born?", "Answer: In Kelbury."], vocab_size=280)
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "gguf").mkdir()
    list(write_gguf(LlamaForCausalLM(config), tokenizer, folder / "gguf" / "small.gguf", "F32", name="s"))
    adapted = attach(load_model(str(folder / "model")), Lora(r=2), seed=0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.ones_(parameter)
    adapted.save_pretrained(folder / "adapter")
    scorer = TokenScorer(32)
    torch.nn.init.normal_(scorer.linear.weight)
    (folder / "scorer").mkdir()
    scorer.save_pretrained(folder / "scorer")


def read_folder(folder: Path, of: str) -> Any:
    """Return what a command reads from a folder: logits, token ids and end tokens, or scores."""
    if of == "scorer":
        with torch.no_grad():
            return TokenScorer.from_pretrained(folder)(torch.ones(1, 32)).tolist()
    model, tokenizer = open_model(str(folder / "small.gguf" if of == "gguf" else folder), ModelLoadArgs(), device="cpu")
    row = Encoder(tokenizer).encode(ROW)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([row.input_ids])).logits
    return row.input_ids, sorted(end_ids(model, tokenizer)), tokenizer.decode(row.input_ids), logits.tolist()
