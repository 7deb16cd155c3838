"""What identifies a run: one plain value, equal for runs with equal results.

Checkpoints and requests are resumed, finished runs of studies and trials of searches are skipped, and cached values are read
only if their key is the same. Names of files come from its hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def run_key(
    what: str,
    *,
    options: Mapping[str, Any],
    model: Any,
    rows: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the key of a run as plain JSON, as it is read again from a file.

    Args:
        what: what is done, such as `unlearn` or `search`.
        options: resolved options that can change the result.
        model: fingerprint of the model that it starts from; of several, by name.
        rows: fingerprints of its rows, by name.
        inputs: what else can change the result, such as versions of packages, and digests of other files.
    """
    key = {"what": what, "options": options, "model": model, "rows": rows, "inputs": inputs}
    plain: dict[str, Any] = json.loads(json.dumps(key, default=str))
    return plain


def key_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the entries that differ between two keys, such as `options.seed`."""
    names = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            names += [f"{name}.{inner}" for inner in key_differences(before, after)]
        elif before != after:
            names.append(name)
    return names
