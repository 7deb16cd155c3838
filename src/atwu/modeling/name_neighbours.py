"""Names that a model reads like a given one: of a shipped list, those whose hidden states are closest."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from atwu._file_reading import read_yaml
from atwu.modeling.forward import check_length
from atwu.modeling.modes import eval_mode

KIND_NAMES = 5
"""Closest names of a kind whose mean similarity chooses the kind."""


@functools.cache
def names_by_kind() -> Mapping[str, Sequence[str]]:
    """Return the shipped names (`related_names.yaml`), by kind: countries, writers, ..."""
    import atwu.data

    kinds: dict[str, list[str]] = read_yaml(Path(atwu.data.__file__).with_name("related_names.yaml"))
    return kinds


class NameNeighbours:
    """Finds the shipped names that a model reads like given ones; the shipped names are read once.

    Args:
        model: the model whose hidden states are compared.
        tokenizer: its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer

    @functools.cached_property
    def _shipped(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the directions of the shipped names, and the mean state that was subtracted."""
        states = name_states(self.model, self.tokenizer, [name for kind in names_by_kind().values() for name in kind])
        mean = states.mean(dim=0)
        return unit_length(states - mean), mean

    def nearest(self, names: Sequence[str]) -> dict[str, list[list[str]]]:
        """Return the shipped names that are closest to each given one.

        Returns:
            Given name -> the names of each kind, closest first, and the closest kind first. A kind is as close as the mean of
            its `KIND_NAMES` closest names.
        """
        names = list(dict.fromkeys(names))
        if not names:
            return {}
        shipped, mean = self._shipped
        directions = unit_length(name_states(self.model, self.tokenizer, names) - mean)
        kinds = list(names_by_kind().values())
        return {name: _by_kind(kinds, direction @ shipped.T) for name, direction in zip(names, directions, strict=True)}


def mixed_names(kinds: Sequence[Sequence[str]], count: int) -> list[str]:
    """Return names of the three closest kinds in turn, from close to far ones."""
    chosen: list[str] = []
    per_kind = -(-count // 3)
    for kind in kinds[:3]:
        step = max(1, len(kind) // per_kind)
        chosen += kind[: step * per_kind : step]
    return chosen[:count]


@torch.no_grad()
def name_states(model: Any, tokenizer: Any, texts: Sequence[str]) -> torch.Tensor:
    """Return the hidden state of each name's last token in the middle layer, shape (texts, hidden).

    A few words precede each name: the state of a text's first token is like that of any other first token. Names of the same
    number of tokens are read together, so that none is padded.
    """
    ids = [tokenizer(f"This text is about {text}", add_special_tokens=True)["input_ids"] for text in texts]
    check_length(model, max(map(len, ids)))
    states = torch.empty(len(ids), model.config.get_text_config().hidden_size)
    with eval_mode(model):
        device = next(model.parameters()).device
        for length in sorted(set(map(len, ids))):
            places = [place for place, tokens in enumerate(ids) if len(tokens) == length]
            batch = torch.tensor([ids[place] for place in places], device=device)
            layers = model.base_model(input_ids=batch, output_hidden_states=True, use_cache=False).hidden_states
            states[places] = layers[len(layers) // 2][:, -1].float().cpu()
    return states


def unit_length(states: torch.Tensor) -> torch.Tensor:
    """Scale each row to length 1."""
    scaled: torch.Tensor = states / states.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled


def _by_kind(kinds: Sequence[Sequence[str]], similarity: torch.Tensor) -> list[list[str]]:
    ranked: list[tuple[float, list[str]]] = []
    start = 0
    for kind in kinds:
        close = similarity[start : start + len(kind)]
        start += len(kind)
        score = float(close.topk(min(KIND_NAMES, len(kind))).values.mean())
        ranked.append((score, [kind[place] for place in close.argsort(descending=True, stable=True).tolist()]))
    return [names for _, names in sorted(ranked, key=lambda pair: -pair[0])]
