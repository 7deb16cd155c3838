"""External methods and components: registered, or from an installed package."""

from __future__ import annotations

import pytest
import torch

import atwu
from atwu.methods.component import ForgetLoss, Range, Weighting, number
from atwu.methods.component_registry import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options
from atwu.methods.losses import divergence, likelihood
from atwu.methods.method_table import METHODS, Method
from atwu.methods.recipe import recipe
from atwu.methods.weightings import model_based as live
from atwu.training.config import UnlearnConfig


@pytest.fixture
def tables():
    """Remove what a test registers."""
    before = [(table, dict(table)) for table in (METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES)]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


class Half(Weighting):
    formula = "1/2"

    def weights(self, seen):
        return torch.full_like(seen.logps, 0.5)


class DoubleAscent(ForgetLoss):
    formula = "s w log p"
    scale: float = number(2.0, help="factor on everything", search=Range(1.0, 4.0))

    def values(self, terms, weights):
        return self.scale * likelihood.gradient_ascent(terms.logps, weights)


class TwiceKL(divergence.KL):
    formula = "2 KL"

    def values(self, out, reference):
        return 2 * super().values(out, reference)


def test_external_components_and_methods(tables, tiny_llama, batch):
    atwu.register_weighting("half", Half)
    atwu.register_forget_loss("double_ga", DoubleAscent)
    atwu.register_retain_loss("twice", TwiceKL)
    atwu.register_method(
        "half_of_double", Method("Half", "half", "double_ga", "nll", "nobody", {"forget_weight": 0.12})
    )
    model, reference = tiny_llama(), tiny_llama(1)
    rows = {"forget": batch(seed=1), "retain": batch(seed=2)}
    ours = atwu.unlearning_loss(model, rows, method="half_of_double", retain_weight=0.8)
    plain = atwu.unlearning_loss(model, rows, method="grad_diff")
    assert ours.loss.item() == pytest.approx(plain.loss.item(), abs=1e-6)
    tripled = atwu.unlearning_loss(model, rows, method="half_of_double", retain_weight=0.8, scale=6.0)
    assert tripled.forget.item() == pytest.approx(3 * plain.forget.item(), rel=1e-6)
    once, twice = (
        atwu.unlearning_loss(model, rows, method="grad_diff", retain_loss=name, reference=reference).retain
        for name in ("kl", "twice")
    )
    assert twice.item() == pytest.approx(2 * once.item(), abs=1e-6)
    assert recipe("atwu", weighting="half*rarity").weighting_names == ("half", "rarity")


def test_a_component_says_what_it_reads(tables, tiny_llama, batch):
    class Compared(ForgetLoss):
        """Squared distance of log-probabilities to those of the original model."""

        formula = "(log p - log p0)^2"
        original = ("logps",)

        def values(self, terms, weights):
            return weights * (terms.logps - terms.reference_logps) ** 2

    atwu.register_forget_loss("compared", Compared)
    decided = recipe("grad_diff", forget_loss="compared")
    assert decided.original == {"logps"}
    assert decided.needs == (
        "log-probabilities of the original model (--reference)",
        "retain rows (--retain)",
    )
    rows = {"forget": batch(seed=1), "retain": batch(seed=2)}
    with pytest.raises(ValueError, match="needs the original model; pass it as reference"):
        atwu.unlearning_loss(tiny_llama(), rows, "grad_diff", forget_loss="compared")
    out = atwu.unlearning_loss(tiny_llama(), rows, "grad_diff", forget_loss="compared", reference=tiny_llama())
    assert out.forget.item() == pytest.approx(0.0, abs=1e-10)


def test_an_unknown_output_of_the_original_model_is_refused_where_the_class_is_written():
    with pytest.raises(ValueError, match=r"unknown output of the original model 'logp'.*Did you mean 'logps'"):
        type("Misspelt", (ForgetLoss,), {"original": ("logp",)})


def test_external_hyperparameter_works_like_any_other(tables, tmp_path):
    atwu.register_forget_loss("double_ga", DoubleAscent)
    config = UnlearnConfig(output_dir=str(tmp_path), method="grad_diff", forget_loss="double_ga", scale=3)
    assert config.recipe().values["scale"] == 3.0
    assert config.as_plain()["scale"] == 3
    assert component_options()["scale"].search == Range(1.0, 4.0)
    with pytest.raises(ValueError, match=r"scale.*>= 0"):
        UnlearnConfig(output_dir=str(tmp_path), method="grad_diff", forget_loss="double_ga", scale=-1)
    with pytest.raises(ValueError, match=r"'wga'.*'scale'.*forget_weight, retain_weight, beta"):
        UnlearnConfig(output_dir=str(tmp_path), method="wga", scale=1.0)


class Unhelpful(Weighting):
    formula = "1"
    beta: bool = number(0, help="another thing elsewhere")


@pytest.mark.parametrize(
    ("register", "name", "entry", "message"),
    [
        (atwu.register_weighting, "uniform", live.Uniform, "weighting.*'uniform'"),
        (atwu.register_forget_loss, "npo", DoubleAscent, "forget.loss.*'npo'"),
        (atwu.register_retain_loss, "none", TwiceKL, "retain.loss.*'none'"),
        (atwu.register_method, "atwu", METHODS["atwu"], "method.*'atwu'"),
        (atwu.register_weighting, "a*b", Half, "letters, digits.*underscores"),
        (atwu.register_weighting, "new", DoubleAscent, "atwu.Weighting"),
        (atwu.register_retain_loss, "new", Half, "atwu.RetainLoss"),
        (atwu.register_weighting, 3, Half, "letters, digits.*got 3"),
        (atwu.register_weighting, "new", "half", "atwu.Weighting, got 'half'"),
        (atwu.register_forget_loss, "new", 3, "atwu.ForgetLoss, got 3"),
        (atwu.register_weighting, "new", torch.exp, "atwu.Weighting, got <built-in"),
        (atwu.register_method, "new", "atwu", "atwu.Method, got str"),
        (atwu.register_weighting, "new", Unhelpful, "'beta'.*float"),
        (atwu.register_method, "new", Method("", "uniform", "gaa", "nll", ""), "'gaa'"),
        (atwu.register_method, "new", Method("", "scorer", "masked_ga", "nll", ""), "weighting.*'scorer'"),
        (atwu.register_method, "new", Method("", "uniform", "ga", "nll", "", {"tau": 1.0}), "'tau'"),
    ],
)
def test_taken_name_or_invalid_entry_is_rejected(tables, register, name, entry, message):
    before = [dict(table) for table in (METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES)]
    with pytest.raises(ValueError, match=message):
        register(name, entry)
    assert before == [METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES]
