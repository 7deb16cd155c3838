"""The scorer's regularizers and objective against the worked examples, and one full step from zero."""

from __future__ import annotations

import pytest
import torch

from atwu.methods.component_inputs import LossTerms
from atwu.methods.recipe import recipe
from atwu.methods.weightings.token_scorer import (
    TokenScorer,
    score_entropy,
    scorer_objective,
    soft_budget,
    straight_through_budget,
)

P = torch.tensor([0.9, 0.2, 0.6, 0.5], dtype=torch.float64)
G = torch.tensor([0.1, 0.8, 0.5, 0.2], dtype=torch.float64)
ROW = torch.zeros(4, dtype=torch.long)
RECIPE = recipe("atwu", beta=7)


def satga_plus(logps, weights):
    return RECIPE.forget_component.values(LossTerms(logps, torch.ones_like(logps, dtype=torch.bool)), weights)


def close(value):
    return pytest.approx(value, abs=1e-6)


def objective(scores, logps, sequence=ROW, *, budget, rho=0.2, lambda_entropy=1.0, **changes):
    one_process = {"tokens": logps.numel(), "sequences": len(sequence.unique()), "score_total": scores.detach().sum()}
    changes = one_process | changes
    return scorer_objective(
        scores,
        sequence,
        forget=satga_plus(logps, scores).sum() / changes["tokens"],
        lambda_entropy=lambda_entropy,
        lambda_budget=10.0,
        budget=budget,
        rho=rho,
        **changes,
    )


def test_entropy_of_scores():
    values = score_entropy(G)
    assert values.tolist() == close([0.325083, 0.500402, 0.693147, 0.500402])
    assert values.mean().item() == close(0.504759)
    scores = G.clone().requires_grad_()
    (grad,) = torch.autograd.grad(score_entropy(scores).mean(), scores)
    assert grad.tolist() == close([0.549306, -0.346574, 0.0, 0.346574])
    assert torch.isfinite(score_entropy(torch.tensor([0.0, 1.0]))).all()


@pytest.mark.parametrize(("scores", "soft", "ste"), [(G, 0.04, 0.0025), (torch.full_like(G, 0.5), 0.09, 0.04)])
def test_budgets(scores, soft, ste):
    assert soft_budget(scores.mean(), rho=0.2).item() == close(soft)
    assert straight_through_budget(scores, ROW, rho=0.2).tolist() == close([ste])


def test_budget_per_sequence_is_not_the_pooled_one():
    scores = torch.tensor([0.1, 0.8, 0.5, 0.2, 0.2], dtype=torch.float64)
    means = torch.stack([scores[:2].mean(), scores[2:].mean()])
    assert soft_budget(means, rho=0.2).mean().item() == close(0.036250)
    assert soft_budget(scores.mean(), rho=0.2).item() == close(0.025600)
    hard = straight_through_budget(scores, torch.tensor([0, 0, 1, 1, 1]), rho=0.2)
    assert hard.tolist() == close([(1 / 2 - 0.2) ** 2, (0 - 0.2) ** 2])


@pytest.mark.parametrize(
    ("budget", "slopes", "weight", "bias", "scores"),
    [
        (
            "soft",
            [0.370446, 0.374640, 0.369658, 0.371171],
            [-0.037005, -0.037215],
            -0.074296,
            [0.472203, 0.472151, 0.462939, 0.481435],
        ),
        (
            "ste",
            [-0.254554, -0.250360, -0.255342, -0.253829],
            [0.025495, 0.025285],
            0.050704,
            [0.519041, 0.518988, 0.525349, 0.512673],
        ),
    ],
)
def test_one_step_from_zero(budget, slopes, weight, bias, scores):
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    scorer = TokenScorer(2)
    optimizer = torch.optim.SGD(scorer.parameters(), lr=0.05)
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    objective(logits.sigmoid(), P.log(), budget=budget).backward()
    assert logits.grad.tolist() == close(slopes)
    (objective(scorer(hidden), P.log().float(), budget=budget) + scorer.squared_norm()).backward()
    optimizer.step()
    assert scorer.linear.weight[0].tolist() == pytest.approx(weight, abs=1e-5)
    assert scorer.linear.bias.item() == pytest.approx(bias, abs=1e-5)
    assert scorer(hidden).tolist() == pytest.approx(scores, abs=1e-5)


def test_pieces_of_several_processes_add_up():
    """Two processes with shared totals together have the gradient of one."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, generator=generator, dtype=torch.float64).requires_grad_()
    logps = -torch.rand(7, generator=generator, dtype=torch.float64)
    sequence = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    for budget in ("soft", "ste"):
        whole = objective(logits.sigmoid(), logps, sequence, budget=budget)
        (wanted,) = torch.autograd.grad(whole, logits)
        shared = {"tokens": 7.0, "sequences": 3.0, "score_total": logits.sigmoid().sum().detach()}
        parts = [
            objective(logits[:3].sigmoid(), logps[:3], sequence[:3], budget=budget, **shared),
            objective(logits[3:].sigmoid(), logps[3:], sequence[3:] - 1, budget=budget, **shared),
        ]
        (got,) = torch.autograd.grad(sum(parts), logits)
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("bias", [True, False])
def test_saved_scorer_loads_exactly(tmp_path, bias):
    scorer = TokenScorer(6, bias=bias, hidden_position="own")
    torch.nn.init.normal_(scorer.linear.weight)
    scorer.save_pretrained(tmp_path)
    loaded = TokenScorer.from_pretrained(tmp_path)
    assert loaded.hidden_position == "own"
    assert loaded.state_dict().keys() == scorer.state_dict().keys()
    hidden = torch.randn(4, 6)
    assert torch.equal(loaded(hidden), scorer(hidden))


def test_a_folder_without_a_scorer_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"scorer_config\.json.*scorer\.safetensors"):
        TokenScorer.from_pretrained(tmp_path)


def test_unknown_hidden_position():
    with pytest.raises(ValueError, match=r"'own'.*'pred'.*'next'"):
        TokenScorer(3, hidden_position="next")
