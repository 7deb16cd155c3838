"""Settings of an evaluation. Whatever can change a number is here and is written into the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from atwu.data.render import check_system
from atwu.evaluation.rwku import Flavour


@dataclass(frozen=True, slots=True)
class EvaluateConfig:
    """How to measure; the defaults are those of the ATWU paper where it states them."""

    max_length: int = 512
    """Longest row in tokens; longer answers are cut, with a warning."""
    system: str | None = None
    """System turn put before conversations that have none, as the model was trained with."""
    max_new_tokens: int = 64
    """Cap on a generated answer."""
    batch_tokens: int = 8192
    """Tokens per batch, read or generated; changes speed and memory, no number."""
    paraphrases: int = 4
    """Wordings of a question beside its own. The worst case over wordings grows with it: compare at equal numbers only."""
    demonstrations: int = 3
    """Retain rows shown before a question in in-context relearning."""
    samples: int = 8
    """Answers drawn per question at temperature 1 by the sampling attack."""
    relearn_rows: int = 8
    """Rows that the relearning attack trains on: forget rows in one attack, retain rows in the other."""
    relearn_steps: int = 30
    """Steps of the relearning attack."""
    relearn_learning_rate: float = 2e-5
    """Its learning rate (AdamW); a small model trained from scratch needs about 3e-4. Too low, and the attack shows nothing."""
    min_k: float = 0.4
    """Share of least probable tokens in the min-k attacks."""
    rwku_flavours: tuple[Flavour, ...] = ("official",)
    """Settings under which RWKU's probes are scored."""
    tasks: tuple[str, ...] = ()
    """Tasks of lm-evaluation-harness."""
    task_folder: str | None = None
    """Folder with further task files."""
    task_limit: int | None = None
    """At most this many rows of each task."""
    seed: int = 42
    """Of demonstrations, draws and attacks."""

    def __post_init__(self) -> None:
        check_system(self.system)
        unknown = [flavour for flavour in self.rwku_flavours if flavour not in get_args(Flavour)]
        if unknown:
            raise ValueError(f"unknown RWKU flavour {unknown[0]!r}; choose from {', '.join(get_args(Flavour))}.")
        for name in ("max_length", "max_new_tokens", "batch_tokens", "samples", "relearn_rows", "relearn_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("paraphrases", "demonstrations"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}.")
        if not 0 < self.min_k <= 1:
            raise ValueError(f"min_k must be above 0 and at most 1, got {self.min_k}.")
        if self.relearn_learning_rate <= 0:
            raise ValueError(f"relearn_learning_rate must be positive, got {self.relearn_learning_rate}.")
