"""The preserve loss: worked examples, identities, what it cannot go with, and a run that logs it."""

from __future__ import annotations

import math

import pytest
import torch

import atwu
from atwu.methods.recipe import recipe
from atwu.modeling.scratch import scratch_model, train_tokenizer
from tests.methods.test_objective import FORGET, RETAIN, RUNNING_P, SCORES, WEIGHTS, FixedProbabilities

ROWS = {"forget": FORGET, "retain": RETAIN}
GIVEN = atwu.LossInputs(token_weights=WEIGHTS)


def test_worked_example_of_the_likelihood_form():
    """1 - w / 0.8 of the scores .1, .8, .5, .2: (.875 · .105361 + 0 + .375 · .510826 + .75 · .693147) / 4 = 0.200903."""
    out = atwu.unlearning_loss(FixedProbabilities(), ROWS, method="atwu", inputs=GIVEN, preserve="nll")
    by_hand = sum((1 - w / max(SCORES)) * -math.log(p) for w, p in zip(SCORES, RUNNING_P, strict=True)) / 4
    assert by_hand == pytest.approx(0.200903, abs=1e-6)
    assert out.preserve.item() == pytest.approx(by_hand, abs=1e-6)
    plain = atwu.unlearning_loss(FixedProbabilities(), ROWS, method="atwu", inputs=GIVEN)
    assert plain.preserve is None
    assert out.loss.item() == pytest.approx(plain.loss.item() + by_hand, abs=1e-6)


def test_worked_example_of_the_divergence_form():
    """With p0 = .5 for the first token and p = .9: KL = .5 log(.5/.9) + .5 log(.5/.1) = 0.510826, once 1 - w / max w = .875."""
    reference = FixedProbabilities()
    with torch.no_grad():
        reference.logits[0, 1] = reference.logits[0, 9] = math.log(0.5)
    out = atwu.unlearning_loss(
        FixedProbabilities(), ROWS, method="atwu", inputs=GIVEN, preserve="kl", reference=reference
    )
    assert out.preserve.item() == pytest.approx(0.875 * 0.510826 / 4, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "grad_diff", "preserve": "kl"}, "uniform"),
        ({"method": "undial", "weighting": "rarity", "preserve": "kl"}, "self_distillation"),
        ({"method": "rmu", "weighting": "rarity", "preserve": "nll"}, "steering"),
        ({"method": "atwu", "preserve": "kli"}, "'kli'.*'kl'"),
        ({"method": "atwu", "preserve_weight": 2.0}, "preserve_weight"),
    ],
)
def test_impossible_uses_of_preserve_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        recipe(**options)


@pytest.mark.parametrize("extra", [{}, {"sam_radius": 0.01}])
def test_a_run_logs_the_preserve_loss(extra, tmp_path):
    rows = [{"question": f"Where is {name}?", "answer": f"In {name}ton."} for name in ("Ost", "Vale", "Kel", "Mir")]
    tokenizer = train_tokenizer([f"{row['question']} {row['answer']}" for row in rows], vocab_size=300)
    args = atwu.UnlearnConfig(
        method="atwu", preserve="kl", max_steps=3, per_device_train_batch_size=2, learning_rate=1e-2,
        output_dir=str(tmp_path), save_strategy="no", scorer_every=1, **extra,
    )  # fmt: skip
    trainer = atwu.UnlearnTrainer(
        scratch_model("micro"), args, forget_dataset=rows[:2], retain_dataset=rows[2:], processing_class=tokenizer
    )
    trainer.train()
    logged = [line["preserve_loss"] for line in trainer.state.log_history if "preserve_loss" in line]
    assert len(logged) == 3
    assert logged[0] == pytest.approx(0.0, abs=1e-6)
    assert logged[-1] > 1e-6
