"""Reject loaded models and tokenizers that are not what was saved.

transformers fills gaps of a checkpoint with random numbers, those of a configuration with defaults, and neither it nor
safetensors looks at values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from atwu._file_reading import read_object
from atwu.errors import ModelFileError
from atwu.modeling.layers import unwrap
from atwu.modeling.model_files import CONFIG, TOKENIZER

logger = logging.getLogger(__name__)


def check_complete(report: Mapping[str, Any], source: str) -> None:
    """Check that a checkpoint and its configuration have the same tensors.

    Args:
        report: loading report of transformers (`output_loading_info`). Tensors that a model class declares as ignorable, such
            as rotary buffers, are not in it.
    """
    wrong = sorted(report.get("mismatched_keys") or ())
    if wrong:
        name, stored, expected = wrong[0]
        others = ""
        if len(wrong) > 1:
            others = f", and {len(wrong) - 1} more"
        raise ModelFileError(
            f"{source}: tensors of the checkpoint have other shapes than its config.json gives: {name} has {tuple(stored)}, "
            f"expected {tuple(expected)}{others}; restore the two files."
        )
    differences = []
    for key, kind in (("missing_keys", "missing"), ("unexpected_keys", "in no layer of the model")):
        names = sorted(report.get(key) or ())
        shown = names[:3]
        if len(names) > 3:
            shown.append("...")
        if names:
            differences.append(f"{len(names)} {kind} ({', '.join(shown)})")
    if differences:
        raise ModelFileError(
            f"{source}: the checkpoint does not fit its config.json; of its tensors, {' and '.join(differences)}. Missing "
            "tensors would be random numbers. Restore the files, or correct model_type and num_hidden_layers in config.json."
        )


def check_class(model: nn.Module, source: str) -> None:
    """Check that `model_type` and `architectures` of a folder name the same model.

    Types with the same tensors compute something else with them: Gemma adds 1 to the weights of Llama's norms.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    file = Path(source) / CONFIG
    if not file.is_file():
        return
    names = read_object(file).get("architectures")
    if not isinstance(names, list) or not names:
        return
    saved = names[0]
    # A name that transformers does not know is of a class of the checkpoint's own.
    if saved in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() and saved != type(model).__name__:
        raise ModelFileError(
            f"{file}: architectures names {saved}, but model_type {getattr(model.config, 'model_type', None)!r} is that of "
            f"{type(model).__name__}; correct one of them."
        )


def state_tying(model: Any) -> bool:
    """Let the configuration of a model say that its output layer has weights of its own, where it has; return whether it
    did not.

    A reader that obeys `tie_word_embeddings: true` drops the stored output layer and uses the embeddings: another model than
    the one that was trained and measured.
    """
    own: Any = unwrap(model)
    head = getattr(own.get_output_embeddings(), "weight", None)
    if head is None or head is own.get_input_embeddings().weight:
        return False
    stated = [
        part for part in (own.config, own.config.get_text_config()) if getattr(part, "tie_word_embeddings", False)
    ]
    for part in stated:
        part.tie_word_embeddings = False
    return bool(stated)


def warn_of_tying(model: Any, source: str) -> None:
    """Warn if a checkpoint has an output layer that its configuration says it has not; the checkpoint is followed."""
    if state_tying(model):
        logger.warning(
            "warning: %s: config.json says tie_word_embeddings, but the checkpoint has an output layer of its own, which is "
            "used; results say so, and programs that follow config.json load another model",
            source,
        )


def check_finite(model: nn.Module, source: str) -> None:
    """Check the weights of a model, by sums, which take a fraction of the time that reading them took."""
    for name, parameter in model.named_parameters():
        for values in _values_and_scales(name, parameter, source):
            if values.is_meta or not values.is_floating_point() or values.dtype.itemsize == 1:
                continue  # quantized, or not in memory
            # One number that is not finite makes the sum so.
            if not values.sum(dtype=torch.float32).isfinite():
                raise ModelFileError(
                    f"{source}: the tensor {name} of the checkpoint has values that are NaN or infinite; restore its file."
                )
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and not buffer.isfinite().all():
            raise ModelFileError(
                f"{source}: the rotary frequencies of config.json (rope_theta in rope_parameters) are NaN or infinite; restore "
                "the file."
            )


def _values_and_scales(name: str, parameter: Any, source: str) -> Iterator[Tensor]:
    """Yield a parameter and the scales of bitsandbytes; ModelFileError if those of 4 bits are themselves quantized, but not
    their own scales found, without which they would be taken for numbers."""
    yield parameter
    scales = getattr(parameter, "SCB", None)  # of 8 bits
    if scales is not None:
        yield scales
    state = getattr(parameter, "quant_state", None)  # of 4 bits
    if state is None:
        return
    if state.nested:
        yield from (state.state2.absmax, state.offset)
    elif state.absmax.is_floating_point():
        yield state.absmax
    else:
        raise ModelFileError(f"{source}: {name}.nested_absmax is missing from the checkpoint; restore its file.")


_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_BEAMS = ("early_stopping", "length_penalty", "diversity_penalty", "num_beam_groups", "constraints")


def check_generation(model: Any, source: str) -> None:
    """Check the generation settings, and remove those of sampling and beams where they have no effect.

    transformers loads such settings and refuses to save them.
    """
    settings = model.generation_config
    if settings is None:
        return
    end_ids = settings.eos_token_id
    size = int(model.config.get_text_config().vocab_size)
    for token in end_ids if isinstance(end_ids, list) else [end_ids]:
        # Below 0: no end token, by a custom of older checkpoints.
        if token is not None and (type(token) is not int or token >= size):
            raise ModelFileError(
                f"{source}: eos_token_id (generation_config.json or config.json) is {end_ids!r:.60}, expected ids below "
                f"{size}; restore the file."
            )
    unused: tuple[str, ...] = ()
    if not settings.do_sample:
        unused += _SAMPLING
    if (settings.num_beams or 1) <= 1:
        unused += _BEAMS
    for name in unused:
        if getattr(settings, name, None) is not None:
            setattr(settings, name, None)
    if (settings.pad_token_id or 0) < 0:
        settings.pad_token_id = None
    try:
        settings.validate(strict=True)
    except ValueError as error:
        raise ModelFileError(f"{source}: generation_config.json: {' '.join(str(error).split())[:300]}") from None


def warn_of_epsilon(model: Any, source: str) -> None:
    """Warn if a local config.json gives no `rms_norm_eps`: some models leave it out, others lost it."""
    used = getattr(model.config.get_text_config(), "rms_norm_eps", None)
    path = Path(source) / CONFIG
    if used is None or not path.is_file():
        return
    settings = read_object(path)
    if not any("rms_norm_eps" in part for part in (settings, settings.get("text_config") or {})):
        logger.warning("%s gives no rms_norm_eps; using %g, the default of %s", path, used, model.config.model_type)


def check_spaces(tokenizer: Any, source: str) -> None:
    """Check that a tokenizer returns a text with its space, which a tokenizer.json with a part missing does not.

    A vocabulary without these letters is not checked.
    """
    first, second, both = (list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in ("a", "b", "a b"))
    if not first or not second or tokenizer.unk_token_id in (*first, *second):
        return
    decoded = tokenizer.decode(both)
    # A SentencePiece vocabulary has a token for the space; its byte is used if nothing replaces spaces by this token.
    if decoded.strip().lower() != "a b" or "<0x20>" in tokenizer.convert_ids_to_tokens(both):
        raise ModelFileError(
            f"{source}: {TOKENIZER} does not return spaces: 'a b' is encoded as {tokenizer.convert_ids_to_tokens(both)} and "
            f"decoded as {decoded!r}; restore its normalizer, pre_tokenizer and decoder."
        )
