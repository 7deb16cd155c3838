"""The original and the retain-only model, for metrics that compute with their weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from atwu.modeling.load import load_config, load_model
from atwu.modeling.open_model import ModelLoadArgs


@dataclass(frozen=True, slots=True)
class ReferenceModels:
    """Folders or Hub names of both models."""

    original: str
    retain_only: str
    loading: ModelLoadArgs = field(default_factory=ModelLoadArgs)

    def check_shape(self, config: Any) -> None:
        """Check that both have the decoder layers and hidden size of the evaluated model's configuration.

        Raises:
            ValueError: The message names the model that differs.
        """
        wanted = _shape(config)
        for role, name in (("original", self.original), ("retain-only", self.retain_only)):
            found = _shape(load_config(name, **self.loading.load_kwargs))
            if found != wanted:
                raise ValueError(
                    f"the {role} model {name} has {found[0]} layers of hidden size {found[1]}, the evaluated model "
                    f"{wanted[0]} of {wanted[1]}; uds needs three models of the same architecture."
                )

    def load(self, name: str, device: Any) -> Any:
        """Load one of the two models on a device."""
        return load_model(name, dtype=self.loading.dtype, **self.loading.load_kwargs).to(device).eval()


def _shape(config: Any) -> tuple[int, int]:
    text = config.get_text_config()
    return text.num_hidden_layers, text.hidden_size
