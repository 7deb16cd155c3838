"""Refuse checkpoints whose tensors do not fit their configuration; transformers would fill gaps with random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_complete(report: Mapping[str, Any], source: str) -> None:
    """Check that a checkpoint and its configuration have the same tensors.

    Args:
        report: loading report of transformers (`output_loading_info`). Tensors that a model class declares as ignorable, such
            as rotary buffers, are not in it.
        source: name of the checkpoint in errors.

    Raises:
        ValueError: tensors are missing or belong to no layer.
    """
    missing, unexpected = (sorted(report.get(f"{kind}_keys") or ()) for kind in ("missing", "unexpected"))
    if not missing and not unexpected:
        return
    found = [
        f"{len(names)} {kind} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for kind, names in (("missing", missing), ("in no layer of the model", unexpected))
        if names
    ]
    raise ValueError(
        f"{source}: the checkpoint does not fit its config.json; of its tensors, {' and '.join(found)}. Missing tensors would "
        "be random numbers. Restore the files, or correct model_type and num_hidden_layers in config.json."
    )
