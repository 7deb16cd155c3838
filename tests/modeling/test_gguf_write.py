"""GGUF files that we write: transformers reads the same model and tokenizer from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaForCausalLM, LlamaTokenizer, PreTrainedTokenizerFast

from atwu.modeling import named_models as named
from atwu.modeling.gguf_write import LLAMA3, check_gguf, read_back_tokenizer, word_splitting, write_gguf
from atwu.modeling.load import check_vocabulary, load_config, load_model, load_tokenizer
from atwu.modeling.quantization import relative_change
from atwu.modeling.scratch import train_tokenizer

TEXTS = ("Where does Orla Venn live?", "In 1789, she's there:  twice.\n\n ünï — 東京", "<|eos|>no<|bos|>")
IDS = torch.tensor([[1, 5, 9, 200, 30, 40]])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, vocab_size=300)


@pytest.fixture
def model(tiny_llama: Callable[..., LlamaForCausalLM]) -> LlamaForCausalLM:
    """Return a model with unusual head size, fewer key heads, and more embeddings than tokens."""
    return tiny_llama(
        vocab_size=320, hidden_size=64, intermediate_size=96, head_dim=8, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )


def logits(model: LlamaForCausalLM) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.mark.parametrize(
    ("kind", "most", "near"),
    [("F32", 0.0, 0.0), ("F16", 3e-4, 1e-3), ("BF16", 3e-3, 1e-2), ("Q8_0", 6e-3, 2e-2), ("Q4_0", 0.1, 0.3)],
)
def test_model_round_trip_within_quantization_error(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, kind: str, most: float, near: float
) -> None:
    path = tmp_path / "small.gguf"
    told = relative_change(model, write_gguf(model, tokenizer, path, kind, name="small"))
    assert told <= most
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    assert relative_change(model, read.named_parameters()) == pytest.approx(told)
    torch.testing.assert_close(logits(read), logits(model), atol=near, rtol=0)
    assert told > 0 or kind == "F32"


def test_small_types_are_not_used_for_embeddings_and_head(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    list(write_gguf(model, tokenizer, tmp_path / "small.gguf", "Q4_1", name="small"))
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "small.gguf").tensors}
    assert kinds["token_embd.weight"] == kinds["output.weight"] == "Q8_0"
    assert kinds["blk.1.attn_q.weight"] == kinds["blk.0.ffn_down.weight"] == "Q4_1"
    assert kinds["blk.0.attn_norm.weight"] == kinds["output_norm.weight"] == "F32"


def test_file_loads_as_a_model_with_the_same_tokens(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    named._gguf.cache_clear()
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    path = tmp_path / "small.gguf"
    list(write_gguf(model, tokenizer, path, "F16", name="small"))
    read = load_tokenizer(str(path))
    check_vocabulary(read, load_config(str(path)), name="small")
    for text in TEXTS:
        assert read(text).input_ids == tokenizer(text).input_ids
    chat = [{"role": "user", "content": TEXTS[0]}]
    assert read.apply_chat_template(chat, tokenize=False) == tokenizer.apply_chat_template(chat, tokenize=False)
    assert (read.bos_token_id, read.eos_token_id, read.pad_token_id) == (1, 2, 0)
    torch.testing.assert_close(logits(load_model(str(path))), logits(model), atol=1e-3, rtol=0)


def test_a_tied_head_is_written_once_and_tied_again(
    tiny_llama: Callable[..., LlamaForCausalLM], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    tied = tiny_llama(vocab_size=320, tie_word_embeddings=True)
    list(write_gguf(tied, tokenizer, tmp_path / "tied.gguf", "F32", name="tied"))
    assert "output.weight" not in {tensor.name for tensor in gguf.GGUFReader(tmp_path / "tied.gguf").tensors}
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tied.gguf", dtype=torch.float32)
    assert read.lm_head.weight is read.model.embed_tokens.weight
    assert torch.equal(logits(read), logits(tied))


def test_llama_3_tokenizer_round_trip(tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM) -> None:
    core = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    llama3 = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<|bos|>", eos_token="<|eos|>")
    assert word_splitting(json.loads(core.to_str())) == "llama-bpe"
    read = read_back_tokenizer(llama3, model.config)
    assert [read(text).input_ids for text in TEXTS] == [llama3(text).input_ids for text in TEXTS]


def pieces(*, space_prefix: bool = True) -> LlamaTokenizer:
    """Return a tokenizer like that of Llama 2: SentencePiece BPE with byte fallback."""
    trainer = trainers.BpeTrainer(vocab_size=120, show_progress=False)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.train_from_iterator(TEXTS, trainer)
    model = json.loads(core.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    vocab = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    merges = [tuple(merge) for merge in model["merges"]]
    return LlamaTokenizer(vocab=vocab, merges=merges, add_bos_token=True, add_prefix_space=space_prefix)


@pytest.mark.parametrize("space_prefix", [True, False])
def test_llama_2_tokenizer_round_trip(model: LlamaForCausalLM, space_prefix: bool) -> None:
    llama2 = pieces(space_prefix=space_prefix)
    model.config.vocab_size = len(llama2) + 2
    read = read_back_tokenizer(llama2, model.config)
    for text in (*TEXTS, " a b", "\n", "a</s> b"):
        tokens = llama2(text).input_ids
        assert read(text).input_ids == tokens
        assert read.decode(tokens) == llama2.decode(tokens)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen2"}, "qwen2.*llama"),
        ({"attention_bias": True}, "attention biases"),
        ({"mlp_bias": True}, "feed-forward biases"),
        ({"hidden_act": "gelu"}, r"silu.*\(gelu\)"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, r"rotary.*\(llama3\)"),
    ],
)
def test_other_models_are_rejected_with_the_reason(
    model: LlamaForCausalLM, change: dict[str, object], message: str
) -> None:
    for name, value in change.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match=message):
        check_gguf(model.config)


def test_other_tokenizers_are_rejected_with_the_reason(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    odd = pieces().backend_tokenizer
    odd.pre_tokenizer = pre_tokenizers.Whitespace()
    normalized, split = (Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()) for _ in range(2))
    normalized.normalizer, split.pre_tokenizer = normalizers.NFC(), pre_tokenizers.Whitespace()
    model.config.vocab_size = 600
    for core, message in ((words, "WordLevel"), (odd, "Whitespace"), (normalized, r"\(NFC\)"), (split, "Whitespace")):
        with pytest.raises(ValueError, match=message):
            read_back_tokenizer(PreTrainedTokenizerFast(tokenizer_object=core), model.config)


def test_values_that_overflow_float16_are_rejected(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"up_proj\.weight.*F16"):
        list(write_gguf(model, tokenizer, tmp_path / "big.gguf", "F16", name="big"))
