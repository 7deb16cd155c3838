"""The two auxiliary models of SU-LLM: find them from a run's record and read their log-probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._file_reading import read_json
from atwu._manifest import RECORD_NAME
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.evaluation.teacher_forced import read_tokens

AuxiliaryLogps = Mapping[str, Sequence[FloatArray]]
"""`forget` and `retain` -> log-probabilities under that model, one array of shape (tokens,) per row."""


@dataclass(frozen=True, slots=True)
class AuxiliaryModels:
    """Paths or Hub names of the two models; SU-LLM selects the tokens on which they disagree."""

    forget: str
    """Model fine-tuned on the forget set."""
    retain: str
    """Model fine-tuned on the retain set."""

    def logps(self, rows: Sequence[EncodedRow], *, device: Any, batch_tokens: int = 4096) -> AuxiliaryLogps:
        """Load both models in turn and return their log-probabilities."""
        from atwu.modeling.load import load_model

        def of(name: str) -> list[FloatArray]:
            found = read_tokens(load_model(name).to(device), rows, batch_tokens=batch_tokens)
            return [row.logps for row in found]

        return {"forget": of(self.forget), "retain": of(self.retain)}


def find_auxiliary_models(folder: str | Path) -> AuxiliaryModels | None:
    """Return the auxiliary models recorded in a run folder; None if it used none or they no longer exist."""
    file = Path(folder).expanduser() / RECORD_NAME
    record = read_json(file) if file.is_file() else None
    recipe = record.get("recipe") if isinstance(record, dict) else None
    return auxiliary_models_of(recipe.get("settings") if isinstance(recipe, dict) else None)


def auxiliary_models_of(settings: Any) -> AuxiliaryModels | None:
    """Return the auxiliary models named in a recipe's settings; None if it names none or they no longer exist."""
    found = [settings.get(f"auxiliary_{name}") for name in ("forget", "retain")] if isinstance(settings, dict) else []
    names = [name for name in found if isinstance(name, str) and (Path(name).is_dir() or _may_be_on_the_hub(name))]
    return AuxiliaryModels(*names) if len(names) == 2 else None


def _may_be_on_the_hub(name: str) -> bool:
    """Whether a name may be a Hub name OWNER/NAME; if OWNER is a local folder, it is a local path that no longer
    exists."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not Path(name).parent.is_dir()
