"""Small random models of every architecture of transformers."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from atwu.modeling import single_pass
from atwu.modeling.forward import forward_tokens
from atwu.modeling.layers import unwrap

SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "emb_dim", "hidden_dim", "embedding_size"), 64),
    **dict.fromkeys(("word_embed_proj_dim", "lru_width", "hidden_size_global"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "num_key_value_heads"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "decoder_ffn_dim", "encoder_ffn_dim", "d_ff"), 96),
    **dict.fromkeys(("ffn_hidden_size",), 96),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 128),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("n_group", "topk_group", "num_shared_experts", "n_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "v_head_dim", "head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("mamba_head_dim", "linear_key_head_dim", "linear_value_head_dim"), 16),
    "mamba_d_head": 32,
    "mamba_n_groups": 1,
    "mamba_d_state": 16,
    "linear_num_key_heads": 2,
    "num_experts_per_tok": 2,
    "vocab_size": 200,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Config fields that make a model small, if present."""
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2},
    "mamba2": {"num_heads": 4, "head_dim": 32, "n_groups": 1, "state_size": 16},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "falcon_h1": {"mamba_d_ssm": 128},
    "longcat_flash": {"zero_expert_num": 1},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
    "gemma4_text": {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 200},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2, "num_dense_layers": 1},
    "nemotron_h": {"n_groups": 2, "ssm_state_size": 16},
    "xlstm": {"qk_dim_factor": 1.0},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "blt": {"encoder_hash_byte_group_vocab": 500, "use_cache": False},
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
        "hc_lowrank": 8,
        "ngram_vocab_size_base": 200,
        "split_ngram_parts": 1,
    },
    "cohere_compass_text": {
        "layer_types": ["full_attention"] * 2,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    },
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": None,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": 200,
    },
}
"""Further fields of some model types."""
MOST = 2 * 10**7
"""Maximum number of parameters of a small model."""


def small_config(kind: str, **sizes: int) -> Any:
    """Return a small config of a model type.

    Args:
        sizes: other values of fields of `SMALL`.
    """
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    if sizes:
        plain = small_config(kind).to_dict()
        return made.from_dict(_resized(plain, sizes))
    given, own = _small(made()), OWN.get(kind, {})
    heads, layers = {"head_dim", "v_head_dim", "max_position_embeddings"}, {"layer_types", "num_hidden_layers"}
    for unsettable in (set(), heads, {"layer_types"}, heads | {"layer_types"}, layers, heads | layers):
        try:
            config = made(**{name: value for name, value in given.items() if name not in unsettable} | own)
            break
        except (AttributeError, NotImplementedError) as error:  # derived fields cannot be set
            reason = error
    else:
        raise reason
    config.is_decoder = True
    return config


def _small(default: Any) -> dict[str, Any]:
    """Return the fields that make a config small, including nested configs (text and vision)."""
    given = {name: value for name, value in SMALL.items() if _has(default, name)}
    if "qk_rope_head_dim" in given:  # latent attention has no key heads
        given |= {"head_dim": given["qk_rope_head_dim"], "num_key_value_heads": given["num_attention_heads"]}
    kinds = getattr(default, "layer_types", None)
    if isinstance(kinds, list):
        given["layer_types"] = list(dict.fromkeys(kinds)) * 2
        given["num_hidden_layers"] = len(given["layer_types"])
    for name in getattr(default, "sub_configs", {}):
        if (inside := getattr(default, name, None)) is not None:
            given[name] = {"model_type": inside.model_type} | _small(inside) | OWN.get(inside.model_type, {})
    return given


def _resized(plain: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """Return the fields of a config with other sizes, also in nested configs; the same vocabulary has one size everywhere."""
    vocabularies = {"vocab_size_per_layer_input", "ngram_vocab_size_base"}
    changed: dict[str, Any] = {}
    for name, value in plain.items():
        size = sizes.get("vocab_size" if name in vocabularies else name)
        if isinstance(value, dict):
            changed[name] = _resized(value, sizes)
        else:
            changed[name] = value if size is None or value is None else size
    return changed


def _has(default: Any, name: str) -> bool:
    try:
        return hasattr(default, name)
    except Exception as error:  # it differs between layers, or does not exist
        return not isinstance(error, NotImplementedError)


def small_model(kind: str, dtype: torch.dtype = torch.float32, **sizes: int) -> nn.Module:
    """Return a small model of a type with deterministic weights; one that is no causal model reads images, too.

    Args:
        sizes: as for `small_config`.

    Raises:
        ValueError: the model is not small.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    made: Any = AutoModelForCausalLM if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else AutoModelForImageTextToText
    config = small_config(kind, **sizes)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in made.from_config(config).parameters())
    if size > MOST:
        raise ValueError(f"{size:,} parameters")
    torch.manual_seed(0)
    model: nn.Module = made.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():  # as after training: weights near zero would hide errors
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for module in model.modules():  # transformers sets them to 0 when it loads some models (youtu)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
    return model.to(dtype)


def shaken(model: nn.Module, seed: int = 1) -> nn.Module:
    """Return adapters with an effect (new ones have none, since B is 0)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator).to(parameter.device)
    return model


@contextlib.contextmanager
def in_layout(model: nn.Module, layout: str) -> Iterator[None]:
    """Let forward passes of a model take packed rows, or padded ones as those of a model that cannot pack."""
    known = single_pass.fast_path_support(model, torch.device("cpu"))
    assert known.packed or layout == "padded"
    single_pass._known[unwrap(model)] = dataclasses.replace(known, packed=layout == "packed")
    yield
    single_pass._known[unwrap(model)] = known


def logps(model: nn.Module, rows: Any, **options: Any) -> Tensor:
    """Return the log-probabilities of one batch in our forward pass."""
    (out,) = forward_tokens(model, [rows], **options)
    return out.logps
