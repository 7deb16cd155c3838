"""Open a model with its tokenizer; mismatches are detected before weights are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atwu._command import command_line
from atwu._file_reading import read_object
from atwu._manifest import RECORD_NAME


@dataclass(frozen=True, kw_only=True)
class ModelLoadArgs:
    dtype: str = field(default="auto", metadata={"help": "Dtype of the weights: auto, float32, bfloat16 or float16."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Allow code of the checkpoint to run."})
    revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of a Hub model."})
    base: str | None = field(
        default=None, metadata={"help": "Base model of an adapter folder, instead of the recorded one."}
    )
    chat_template: str | None = field(
        default=None, metadata={"help": "Jinja file with a chat template, instead of the tokenizer's.", "common": False}
    )
    chat_template_kwargs: str | None = field(
        default=None,
        metadata={"help": 'Chat template arguments as JSON, such as {"enable_thinking": false}.', "common": False},
    )

    @property
    def load_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of `load_config` and (together with `dtype`) `load_model`."""
        return {"trust_remote_code": self.trust_remote_code, "revision": self.revision, "base": self.base}

    @property
    def tokenizer_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of `load_tokenizer`."""
        template = {"chat_template": self.chat_template, "chat_template_kwargs": self.chat_template_kwargs}
        return self.load_kwargs | template


def open_model(name: str, loading: ModelLoadArgs, *, device: Any = None) -> tuple[Any, Any]:
    """Load a model on a device (default: the best available) and its tokenizer."""
    from atwu.modeling.device import pick_device
    from atwu.modeling.load import check_model_name, check_vocabulary, load_config, load_model, load_tokenizer

    place = pick_device(device)
    # What needs no weights first: reading them may take minutes.
    check_model_name(name, base=loading.base, revision=loading.revision)
    config = load_config(name, **loading.load_kwargs)
    tokenizer = load_tokenizer(name, **loading.tokenizer_kwargs)
    check_vocabulary(tokenizer, config, name=name)
    model = load_model(name, dtype=loading.dtype, **loading.load_kwargs)
    return model.to(place).eval(), tokenizer


def check_system_prompt(name: str, system: str | None) -> str | None:
    """Return a warning if a run of this package trained the model with a different system turn."""
    file = Path(name).expanduser() / RECORD_NAME
    if not file.is_file():
        return None
    record = read_object(file)
    if not isinstance(record.get("config"), dict):
        return None
    trained = record["config"].get("system")
    if trained == system:
        return None
    before, now = (
        "without a system turn" if text is None else f"with the system turn {text!r}" for text in (trained, system)
    )
    advice = "leave out --system"
    if trained is not None:
        advice = f"pass --system {command_line([trained])}"
    return f"{name} was trained {before}, but is used {now}; {advice}."
