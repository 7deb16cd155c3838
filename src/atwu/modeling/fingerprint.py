"""Fingerprints of model weights, loaded or stored, by which results and caches identify them."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from atwu._cache import tensor_digest
from atwu._files import file_digest
from atwu.modeling.named_models import model_source


def stored_weights_fingerprint(name: str, revision: str | None = None) -> str:
    """Return a fingerprint of stored weights: a digest of the files of a folder, or name and commit on the Hub.

    For an adapter folder it does not include the base model.
    """
    from transformers.utils.hub import cached_file, extract_commit_hash

    source = model_source(name)
    if files := sorted(Path(source).glob("*.safetensors")):
        return file_digest(*files)
    return f"{source}@{extract_commit_hash(cached_file(source, 'config.json', revision=revision), None)}"


def model_fingerprint(model: nn.Module) -> str:
    """Hash all parameters and buffers (name, dtype, shape and bytes) to 32 hexadecimal digits.

    Adapters are included with their scaling and whether they are enabled; so are the scales of quantized weights.
    """
    # A DTensor has a mesh; DeepSpeed leaves an empty tensor with an id.
    for parameter in model.parameters():
        if parameter.is_meta or hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id"):
            raise ValueError("cannot fingerprint weights that are sharded over processes or not loaded.")
    adapters = ""
    for name, module in model.named_modules():
        scaling = getattr(module, "scaling", None)  # set on layers of peft
        if isinstance(scaling, dict):
            off = bool(getattr(module, "disable_adapters", False))
            adapters += f"{name}|{sorted(scaling.items())}|{getattr(module, 'active_adapters', None)}|{off}"
    weights = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    return tensor_digest(weights, adapters.encode())
