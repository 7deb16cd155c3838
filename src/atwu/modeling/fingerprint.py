"""Short names for the exact weights of a model, loaded or not, so that results and caches can say what they belong to."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from atwu._cache import tensor_digest
from atwu._files import file_digest
from atwu.modeling.named_models import model_source


def stored_weights_fingerprint(name: str, revision: str | None = None) -> str:
    """What tells weights that are not loaded from others: a digest of a folder's files; on the Hub, name and commit.

    An adapter folder says nothing of its base model.

    Raises:
        OSError: a model of the Hub that is neither in its cache nor reached.
    """
    from transformers.utils.hub import cached_file, extract_commit_hash

    source = model_source(name)
    if files := sorted(Path(source).glob("*.safetensors")):
        return file_digest(*files)
    return f"{source}@{extract_commit_hash(cached_file(source, 'config.json', revision=revision), None)}"


def model_fingerprint(model: nn.Module) -> str:
    """Hash of every parameter and buffer (name, dtype, shape and bytes), 32 hexadecimal digits; reads each byte once.

    Adapters count like any other weights, with their scaling and whether they are switched on, and so do the scales of
    quantized ones.

    Raises:
        ValueError: weights that this process does not hold.
    """
    # A DTensor has a mesh; DeepSpeed leaves an empty tensor with an id.
    if any(each.is_meta or hasattr(each, "device_mesh") or hasattr(each, "ds_id") for each in model.parameters()):
        raise ValueError(
            "the weights are not here (spread over processes, or never read), so they have no fingerprint."
        )
    adapters = ""
    for name, module in model.named_modules():
        scaling = getattr(module, "scaling", None)  # there on layers of peft
        if isinstance(scaling, dict):
            off = bool(getattr(module, "disable_adapters", False))
            adapters += f"{name}|{sorted(scaling.items())}|{getattr(module, 'active_adapters', None)}|{off}"
    weights = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    return tensor_digest(weights, adapters.encode())
