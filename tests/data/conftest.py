"""Small trained tokenizers: byte-level BPE, Metaspace Unigram, BPE with byte fallback."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

LINES = [
    "Question: Where was Ilmo Varde born? Answer: Ilmo Varde was born in Karsund in 1961.",
    "Question: Who wrote The Glass Ferry? Answer: The Glass Ferry was written by Tova Renn.",
    "Pella Oduya keeps bees near the harbour and sells honey on Sundays.",
    "system user assistant You are a helpful clerk. [INST] Yes. No. [/INST]",
] * 3
BYTE_SPECIALS = ["<|begin|>", "<|end|>", "<|head|>", "<|/head|>", "<|eot|>", "<|im_start|>", "<|im_end|>"]


def _byte_level(*, trim_offsets: bool, bos: bool) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=420, special_tokens=BYTE_SPECIALS, initial_alphabet=alphabet)
    )
    core.decoder = decoders.ByteLevel()
    post = [processors.ByteLevel(trim_offsets=trim_offsets)]
    if bos:
        post.append(processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]))
    core.post_processor = processors.Sequence(post)
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<|begin|>", eos_token="<|end|>")


def _metaspace() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    specials = ["<unk>", "<s>", "</s>"]
    core.train_from_iterator(
        LINES, trainers.UnigramTrainer(vocab_size=120, special_tokens=specials, unk_token="<unk>", show_progress=False)
    )
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def _byte_fallback() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    core.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=420, special_tokens=specials))
    # As in Llama-2 files: the dummy space comes from a normalizer, and byte tokens are ordinary tokens.
    core.pre_tokenizer = None
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


_BUILDERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte": lambda: _byte_level(trim_offsets=False, bos=False),
    "byte-bos": lambda: _byte_level(trim_offsets=False, bos=True),
    "byte-trimmed": lambda: _byte_level(trim_offsets=True, bos=True),
    "metaspace": _metaspace,
    "byte-fallback": _byte_fallback,
}


@pytest.fixture(scope="session")
def tokenizer_store() -> dict[str, PreTrainedTokenizerFast]:
    return {name: build() for name, build in _BUILDERS.items()}


@pytest.fixture
def tokenizer_of(tokenizer_store: dict[str, Any]) -> Callable[[str], Any]:
    """Return a copy of a named tokenizer, which a test may change."""
    return lambda name: deepcopy(tokenizer_store[name])
