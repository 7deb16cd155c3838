"""Create a tokenizer and a small random Llama, for benchmarks without downloads.

The tokenizer is byte-level BPE without chat template, so prompts have the plain `Question: ...` form. The model is a randomly
initialized `LlamaForCausalLM` with tied embeddings (fewer parameters, and small models memorize in fewer epochs).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from atwu._names import lookup

PAD, BOS, EOS = "<|pad|>", "<|bos|>", "<|eos|>"
SPECIAL_TOKENS = (PAD, BOS, EOS)
"""Special tokens in the order of their ids, 0 to 2."""

MIN_VOCAB_SIZE = 256 + len(SPECIAL_TOKENS)


@dataclass(frozen=True, slots=True)
class ScratchShape:
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int


SHAPES: dict[str, ScratchShape] = {
    "micro": ScratchShape(vocab_size=300, hidden_size=32, layers=2, heads=2, intermediate_size=64),
    "tofu2m": ScratchShape(vocab_size=2048, hidden_size=192, layers=4, heads=4, intermediate_size=512),
    "rwku4m": ScratchShape(vocab_size=4096, hidden_size=256, layers=4, heads=4, intermediate_size=704),
    "tofu6m": ScratchShape(vocab_size=4096, hidden_size=256, layers=6, heads=4, intermediate_size=768),
    "people-tiny": ScratchShape(vocab_size=900, hidden_size=128, layers=2, heads=4, intermediate_size=256),
    "people-small": ScratchShape(vocab_size=1500, hidden_size=192, layers=2, heads=4, intermediate_size=384),
    "people-base": ScratchShape(vocab_size=4000, hidden_size=512, layers=8, heads=8, intermediate_size=1536),
}
"""Named shapes. `people-*` are for the built-in benchmark; `vocab_size` controls the difficulty for token scores (with fewer,
shorter tokens, other words are as uncertain as labelled words: AUROC per sample of importance on `tiny` is 69 with 900
tokens and 80 with 1200). `tofu2m` and `rwku4m` (2.2 and 4.3 M parameters) are used in the small settings of studies;
`tofu6m` (6.4 M) memorizes a few thousand TOFU rows on two cores."""


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on `texts`, deterministically.

    Args:
        vocab_size: maximum size, at least 259; a small corpus may give fewer tokens, see `len(tokenizer)`.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise ValueError(f"vocab_size must be at least {MIN_VOCAB_SIZE} for byte-level BPE, got {vocab_size}.")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )
    return fast


def scratch_config(shape: str | ScratchShape) -> LlamaConfig:
    """Return the Llama config of a named or explicit shape."""
    numbers = scratch_shape(shape)
    return LlamaConfig(
        vocab_size=numbers.vocab_size,
        hidden_size=numbers.hidden_size,
        num_hidden_layers=numbers.layers,
        num_attention_heads=numbers.heads,
        num_key_value_heads=numbers.heads,
        intermediate_size=numbers.intermediate_size,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=SPECIAL_TOKENS.index(PAD),
        bos_token_id=SPECIAL_TOKENS.index(BOS),
        eos_token_id=SPECIAL_TOKENS.index(EOS),
        attention_dropout=0.0,
        use_cache=True,
    )


def scratch_model(shape: str | ScratchShape, *, seed: int = 0) -> LlamaForCausalLM:
    """Create a randomly initialized float32 model; the global random state is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(scratch_config(shape))


def scratch_shape(shape: str | ScratchShape) -> ScratchShape:
    """Look up a named shape; an explicit one is returned unchanged."""
    if isinstance(shape, ScratchShape):
        return shape
    named: ScratchShape = lookup("scratch shape", shape, SHAPES)
    return named
