"""Cleaning of the final weight change: by hand, identities, against least squares in NumPy, and in runs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from atwu import UnlearnConfig, UnlearnTrainer
from atwu.data.encode import Encoder
from atwu.training.change_cleaning import ChangeCleaning, clean_change, effect
from tests.training.conftest import make_rows, make_trainer, weights


def random_matrix(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_by_hand():
    """Energies 3 and 1 have the mean 2, so strength 2 divides by 1 + 2 * 3/2 = 4 and 1 + 2 * 1/2 = 2."""
    moment = torch.diag(torch.tensor([3.0, 1.0]))
    cleaned = clean_change(torch.tensor([[2.0, 4.0], [-8.0, 0.0]]), moment, strength=2.0)
    torch.testing.assert_close(cleaned, torch.tensor([[0.5, 2.0], [-2.0, 0.0]]))
    assert effect(torch.tensor([[2.0, 4.0]]), moment) == 3 * 4 + 16
    assert effect(cleaned[:1], moment) == 3 * 0.25 + 4


def test_strength_zero_and_inputs_of_zero_change_nothing():
    change = random_matrix(3, 4)
    assert torch.equal(clean_change(change, torch.eye(4), strength=0.0), change)
    assert torch.equal(clean_change(change, torch.zeros(4, 4), strength=5.0), change)


def test_the_change_stays_where_no_input_points():
    """Inputs along the first two axes: the change along the others is untouched, that along these goes."""
    moment = torch.diag(torch.tensor([5.0, 1.0, 0.0, 0.0]))
    change = random_matrix(3, 4)
    cleaned = clean_change(change, moment, strength=1e9)
    torch.testing.assert_close(cleaned[:, 2:], change[:, 2:])
    assert cleaned[:, :2].abs().max() < 1e-6


@pytest.mark.parametrize("strength", [0.3, 4.0, 100.0])
def test_equals_least_squares(strength):
    """The objective as one system: D' I = D and D' X sqrt(strength / m) = 0, in the least squares."""
    inputs, change = (
        random_matrix(20, 6, seed=1).double().numpy() * np.arange(1, 7),
        random_matrix(3, 6).double().numpy(),
    )
    moment = inputs.T @ inputs / len(inputs)
    scale = np.sqrt(strength / len(inputs) / (np.trace(moment) / 6))
    system, wanted = np.vstack([np.eye(6), scale * inputs]), np.vstack([change.T, np.zeros((20, 3))])
    expected = np.linalg.lstsq(system, wanted, rcond=None)[0].T
    cleaned = clean_change(torch.tensor(change), torch.tensor(moment), strength=strength)
    np.testing.assert_allclose(cleaned.numpy(), expected, atol=1e-9)


def encoded(folder, rows):
    return Encoder(AutoTokenizer.from_pretrained(folder), max_length=64).encode_rows(rows, what="test").rows


def logits(model, rows):
    with torch.no_grad():
        return [model.eval()(input_ids=torch.tensor([row.input_ids])).logits for row in rows]


def test_outputs_on_the_retain_rows_stay_and_others_move(model_folder):
    """Two short rows span few of the input directions, so that most of a random change is left."""
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    rows = encoded(model_folder, make_rows(4))
    kept, others = rows[:1], rows[2:]
    before, elsewhere = logits(model, kept), logits(model, others)
    cleaning = ChangeCleaning(model, strength=1e10, rows=kept)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".layers." in name and weight.dim() == 2:
                weight.add_(0.1 * random_matrix(*weight.shape, seed=weight.numel()))
    changed = logits(model, kept)
    assert (changed[0] - before[0]).abs().max() > 1e-2
    size, left = cleaning.clean()
    assert 0 < size < 1
    assert left < 1e-6
    torch.testing.assert_close(logits(model, kept), before, atol=1e-3, rtol=0)
    assert (logits(model, others)[0] - elsewhere[0]).abs().max() > 1e-4


def test_large_models_are_cleaned_in_several_passes(model_folder, monkeypatch):
    ends = []
    for most in (1e9, 1.0):
        monkeypatch.setattr("atwu.training.change_cleaning.MOMENT_BYTES", most)
        model = AutoModelForCausalLM.from_pretrained(model_folder)
        cleaning = ChangeCleaning(model, strength=3.0, rows=encoded(model_folder, make_rows(4)))
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.05 * random_matrix(*weight.shape))
        cleaning.clean()
        ends.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    assert torch.equal(*ends)


def test_adapters_are_cleaned_as_the_weights_that_they_add(model_folder):
    """The same change as an adapter and in the weights, cleaned in both, gives the same model."""
    rows = encoded(model_folder, make_rows(6))
    plain = AutoModelForCausalLM.from_pretrained(model_folder)
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"])
    adapted = get_peft_model(copy.deepcopy(plain), config)
    cleanings = [ChangeCleaning(model, strength=4.0, rows=rows) for model in (plain, adapted)]
    with torch.no_grad():
        for name, module in adapted.named_modules():
            if hasattr(module, "lora_B") and "default" in module.lora_B:
                module.lora_B["default"].weight.copy_(0.2 * random_matrix(*module.lora_B["default"].weight.shape))
                added = module.get_delta_weight("default")
                plain.get_submodule(name.removeprefix("base_model.model.")).weight.add_(added)
    shares = [cleaning.clean() for cleaning in cleanings]
    assert shares[0] == pytest.approx(shares[1], rel=1e-3)
    assert shares[0][1] < 0.9
    for one, other in zip(logits(plain, rows), logits(adapted, rows), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_adapters_that_were_trained_before_are_refused(model_folder):
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model_folder),
        LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False),
    )
    with pytest.raises(ValueError, match=r"trained before.*merge"):
        ChangeCleaning(model, strength=1.0, rows=encoded(model_folder, make_rows(2)))


@pytest.mark.parametrize("also", [{}, {"lora_r": 2}, {"method": "grad_ascent"}], ids=["full", "lora", "no retain loss"])
def test_a_run_ends_nearer_to_the_original_model_the_stronger_it_is_cleaned(also, model_folder, tmp_path):
    said, distances = [], []
    original = AutoModelForCausalLM.from_pretrained(model_folder)
    for strength in (0.0, 1.0, 1e3):
        settings = {"method": "grad_diff", "max_steps": 3, "learning_rate": 1e-2, "clean_change": strength, **also}
        trainer = make_trainer(model_folder, tmp_path, said=said, **settings)
        trainer.train()
        rows = encoded(model_folder, make_rows(6, 24))
        apart = zip(logits(trainer.model, rows), logits(original, rows), strict=True)
        distances.append(sum(float((one - other).square().sum()) for one, other in apart))
        assert torch.isfinite(weights(trainer)).all()
    assert distances[0] > distances[1] > distances[2]
    assert sum("cleaned the weight change" in line for line in said) == 2


def test_retain_rows_are_needed(model_folder, tmp_path):
    with pytest.raises(ValueError, match="clean_change reads retain rows"):
        UnlearnTrainer(
            AutoModelForCausalLM.from_pretrained(model_folder),
            UnlearnConfig(output_dir=str(tmp_path), method="grad_ascent", clean_change=1.0, use_cpu=True),
            forget_dataset=make_rows(4),
            processing_class=AutoTokenizer.from_pretrained(model_folder),
        )
