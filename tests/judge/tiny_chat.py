"""A tiny random chat model that knows a dozen words."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SENTENCES = "YES NO Orla Venn Tavi Brook was born in Kelbury keeps bees near the harbour You check answers"
SPECIAL = ["<unk>", "<end>", "<user>", "<system>", "<assistant>"]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save_chat_model(folder: Path, template: str | None = TEMPLATE, seed: int = 13) -> LlamaForCausalLM:
    """Write a model of a few words with a chat template, and return it."""
    core = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(SPECIAL + SENTENCES.split())}, unk_token="<unk>")
    )
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", eos_token="<end>", additional_special_tokens=SPECIAL[2:]
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=40,
        bos_token_id=None,
        eos_token_id=1,
    )
    config.initializer_range = 0.6
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return model
