"""Names of a shipped list that a model reads like a given one, and which name of a question they replace.

Two names are alike to a model if its hidden states of them are close. Other names show which words of an answer depend on its
subject (`contrast.py`), and what a model knows beside a fact (`atwu.request.related_questions`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from atwu._file_reading import read_yaml
from atwu.data.fact_blanks import replace_words
from atwu.data.languages import detect_language
from atwu.data.row_subject import names_in_question
from atwu.data.schema import Example
from atwu.modeling.forward import check_length
from atwu.modeling.layers import eval_mode

KIND_NAMES = 5
"""Closest names of a kind whose mean similarity chooses the kind."""
MIXED_KINDS = 3
"""Closest kinds of which `mixed_names` takes names."""
_NAME = re.compile(r"[A-Z][\w'’.-]*(?:\s+(?:(?:of|the|and|van|de|da)\s+)*[A-Z][\w'’.-]*)*")
"""A run of capitalized words of a question. Unlike names in answers (`answer_units`), "and" is part of it, as in "Trinidad and
Tobago", and so are digits: two names or a name with a number are better replaced whole than in part."""


@functools.cache
def names_by_kind() -> Mapping[str, Sequence[str]]:
    """Return the shipped names (`related_names.yaml`), by kind: countries, writers, ..."""
    import atwu.data

    kinds: dict[str, list[str]] = read_yaml(Path(atwu.data.__file__).with_name("related_names.yaml"))
    return kinds


@functools.cache
def measured_names_by_kind() -> Mapping[str, Sequence[str]]:
    """Return the shipped names that no request trains on (`measured_names.yaml`), by kind."""
    import atwu.data

    kinds: dict[str, list[str]] = read_yaml(Path(atwu.data.__file__).with_name("measured_names.yaml"))
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
        # What all states have in common is larger than what tells names apart.
        return unit_length(states - mean), mean

    def nearest(self, names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
        """Return the shipped names that are closest to each given one.

        Returns:
            Given name -> kind -> its names, closest first, and the closest kind first. A kind is as close as the mean of its
            `KIND_NAMES` closest names.
        """
        names = list(dict.fromkeys(names))
        if not names:
            return {}
        shipped, mean = self._shipped
        directions = unit_length(name_states(self.model, self.tokenizer, names) - mean)
        return {name: _by_kind(direction @ shipped.T) for name, direction in zip(names, directions, strict=True)}


def mixed_names(kinds: Sequence[Sequence[str]], count: int) -> list[str]:
    """Return names of the `MIXED_KINDS` closest kinds, kind after kind, of each as many, spread evenly from close to far ones.

    Args:
        kinds: names of each kind, the closest kind and the closest name first.
        count: names in all; fewer if a kind has too few.
    """
    chosen: list[str] = []
    per_kind = math.ceil(count / MIXED_KINDS)
    for kind in kinds[:MIXED_KINDS]:
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


def _by_kind(similarity: torch.Tensor) -> dict[str, list[str]]:
    """Return the shipped names of each kind, ordered by their similarity to a name, shape (shipped names,)."""
    ranked: list[tuple[float, str, list[str]]] = []
    start = 0
    for kind, names in names_by_kind().items():
        close = similarity[start : start + len(names)]
        start += len(names)
        score = float(close.topk(min(KIND_NAMES, len(names))).values.mean())
        ranked.append((score, kind, [names[place] for place in close.argsort(descending=True, stable=True).tolist()]))
    return {kind: names for _, kind, names in sorted(ranked, key=lambda scored: -scored[0])}


def replaceable_name(row: Example) -> str | None:
    """Return what to replace in a question: its subject, or its first run of capitalized words behind the first word.

    An article belongs to the name: "the United States" is replaced by "Canada".
    """
    question, name = row.question, row.subject or ""
    if not name or replace_words(question, name, "") == question:
        if detect_language(question) == "de":
            # Every noun has a capital: "Welche Krankheit hat Karl Mohn?".
            return next(names_in_question(row), None)
        # The first word has a capital letter in any question.
        match = _NAME.search(question.partition(" ")[2])
        if match is None:
            return None
        # "What is France's capital?" asks about France.
        name = re.sub("['’]s$", "", match.group())
    if f" the {name}" in question:
        return f"the {name}"
    return name
