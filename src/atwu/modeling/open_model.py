"""A model with its tokenizer from a name: what does not fit together is refused before weights are read."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atwu._manifest import RECORD_NAME


@dataclass(frozen=True, kw_only=True)
class ModelLoadArgs:
    """How a checkpoint is read."""

    dtype: str = field(default="auto", metadata={"help": "Load weights as auto, float32, bfloat16 or float16."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run model code that comes with the checkpoint."})
    revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of a Hub model."})
    base: str | None = field(
        default=None, metadata={"help": "Base model of an adapter folder, if not the one it names."}
    )

    @property
    def load_kwargs(self) -> dict[str, Any]:
        """What `load_config`, `load_tokenizer` and, with `dtype` besides, `load_model` take."""
        return {"trust_remote_code": self.trust_remote_code, "revision": self.revision, "base": self.base}


def open_model(name: str, loading: ModelLoadArgs, *, device: Any = None) -> tuple[Any, Any]:
    """A model on its device (by default the best there is), and its tokenizer."""
    from atwu.modeling.device import pick_device
    from atwu.modeling.load import check_model_name, check_vocabulary, load_config, load_model, load_tokenizer

    place = pick_device(device)
    check_model_name(name, base=loading.base)
    tokenizer = load_tokenizer(name, **loading.load_kwargs)
    check_vocabulary(tokenizer, load_config(name, **loading.load_kwargs), name=name)
    return load_model(name, dtype=loading.dtype, **loading.load_kwargs).to(place), tokenizer


def check_system_prompt(name: str, system: str | None) -> str | None:
    """A warning if a run of this package trained the model with another system turn than it is about to be read with."""
    file = Path(name).expanduser() / RECORD_NAME
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
        return None
    trained = record["config"].get("system")
    if trained == system:
        return None
    there, here = (
        "without a system turn" if text is None else f"with the system turn {text!r}" for text in (trained, system)
    )
    advice = "leave --system out" if trained is None else f"pass --system {shlex.quote(trained)}"
    return f"{name} was trained {there} and is read {here}; {advice}."
