"""States of a model: changed inside, as before outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import own_askings
from atwu.evaluation.facts.model_states import (
    BFLOAT16,
    FOUR_BITS,
    fine_tuned,
    mean_hidden_states,
    moved_along,
    moved_layer,
    rounded_states,
)
from atwu.modeling.load import model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, open_model
from tests.micro_models import write_micro

ROWS = (
    Example.from_qa("Where does Orla Venn live?", "In Kelbury."),
    Example.from_qa("Where does Tam Reed live?", "In Marrow."),
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder: Path = write_micro(tmp_path_factory.mktemp("micro") / "model")
    return open_model(str(folder), ModelLoadArgs(), device="cpu")


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model(torch.arange(5, 12)[None]).logits
    return result.float()


def test_every_state_changes_what_the_model_says_and_is_undone(opened: tuple[Any, Any]) -> None:
    model, tokenizer = opened
    before, hashed = logits(model), model_fingerprint(model)
    encoded = Encoder(tokenizer).encode_rows(ROWS, what="rows").rows
    states = dict(rounded_states(model))
    assert list(states) == [BFLOAT16, FOUR_BITS]
    states["fine-tuned"] = fine_tuned(model, encoded, 2)
    states["moved"] = moved_along(model, torch.ones(model.config.hidden_size))
    for name, state in states.items():
        with state:
            assert not torch.equal(logits(model), before), name
        assert torch.equal(logits(model), before), name
        assert model_fingerprint(model) == hashed, name


def test_a_model_moved_by_the_difference_to_another_ends_its_prompts_where_that_one_does(
    opened: tuple[Any, Any], tmp_path: Path
) -> None:
    model, tokenizer = opened
    other, _ = open_model(str(write_micro(tmp_path / "other")), ModelLoadArgs(), device="cpu")
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    encoder, askings = Encoder(tokenizer), own_askings(ROWS)
    target, now = (mean_hidden_states(each, encoder, askings) for each in (other, model))
    assert target.shape == (model.config.hidden_size,)
    assert not torch.allclose(target, now, atol=1e-3)
    with moved_along(model, target - now):
        moved = mean_hidden_states(model, encoder, askings)
    assert torch.allclose(moved, target, atol=1e-4)
    assert 0 <= moved_layer(model) < model.config.num_hidden_layers
