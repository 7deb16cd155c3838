"""Every architecture has unchanged outputs, working adapters and readable layers, or is rejected by name."""

from __future__ import annotations

import warnings

import pytest
import torch

from atwu.modeling.load import quiet_transformers
from atwu.modeling.single_pass import fast_path_support
from tests.modeling.architectures import REPRESENTATIVES, all_kinds, find
from tests.modeling.small_models import small_model

pytest.importorskip("peft")

REFUSED = {("mamba", "rmu", "refused")}  # it has no MLP


@pytest.mark.parametrize("kind", REPRESENTATIVES)
def test_one_model_per_architecture_family(kind: str) -> None:
    for check, found in find(kind).items():
        assert found.kind == "same" or (kind, check, found.kind) in REFUSED, (check, found)


def test_models_that_compute_their_own_position_ids_do_so() -> None:
    assert not fast_path_support(small_model("roberta"), torch.device("cpu")).positions
    assert fast_path_support(small_model("llama"), torch.device("cpu")).positions


def test_model_with_different_outputs_is_rejected() -> None:
    found = find("cpmant", "forward")["forward"]  # it prepends its own prompt to every row
    assert (found.kind, found.detail.split()[0]) == ("refused", "CpmAntForCausalLM")


@pytest.mark.night
def test_every_architecture_is_exact_or_rejected() -> None:
    quiet_transformers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {(kind, check): each for kind in all_kinds() for check, each in find(kind).items()}
    assert not {key: each.detail for key, each in found.items() if each.kind in ("differs", "fails")}
    for check, least in (("forward", 175), ("lora", 172), ("rmu", 160)):
        assert sum(each.kind == "same" for (_, name), each in found.items() if name == check) >= least
