"""Procedures of scorer training: joint, frozen, pretrained, warm-started, with a prior, with a minimum of updates."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from transformers import AutoTokenizer

from atwu.evaluation.metrics.score_auroc import per_sample_auroc
from atwu.evaluation.teacher_forced import read_tokens
from atwu.methods.weightings.fixed_weights import TokenCounts
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.training import scorer_training
from atwu.training.row_sets import encode_dataset
from tests.training.conftest import logged, make_rows, make_trainer, weights


def scorer_vector(scorer):
    return torch.cat([p.detach().flatten().clone() for p in scorer.parameters()])


@pytest.fixture
def scorer_folder(tmp_path):
    scorer = TokenScorer(32)
    torch.nn.init.normal_(scorer.linear.weight, generator=torch.Generator().manual_seed(3))
    folder = tmp_path / "earlier"
    folder.mkdir()
    scorer.save_pretrained(folder)
    return folder


def test_joint_scorer_has_the_gradient_of_the_single_loss(model_folder, tmp_path, monkeypatch):
    """AdamW's first step moves every weight by its learning rate against the sign of its gradient."""
    monkeypatch.setattr(scorer_training, "MAX_GRAD_NORM", math.inf)
    trainer = make_trainer(
        model_folder,
        tmp_path,
        method="atwu",
        scorer_procedure="joint",
        max_steps=1,
        warmup_steps=0,
        lr_scheduler_type="constant",
        gradient_accumulation_steps=2,
    )
    seen = []
    compute = trainer.micro_batch_loss
    trainer.micro_batch_loss = lambda *given: seen.append(compute(*given)) or seen[-1]
    trainer.train()
    scorer = TokenScorer(32)
    hidden = torch.cat([out.outputs.hidden("pred") for out in seen])
    logps = torch.cat([out.logps[out.mask].detach() for out in seen])
    g = scorer(hidden)
    lengths = torch.cat([out.mask.sum(1) for out in seen]).tolist()
    forget = (g * (7 * g * logps).exp().detach() * logps).mean()
    entropy = -(g * g.log() + (1 - g) * (1 - g).log()).mean()
    # Straight-through: no score is above 1/2 yet, so each row's share is 0 and its gradient that of the mean score.
    budget = sum(((part.mean() - part.mean().detach()) - 0.2) ** 2 for part in g.split(lengths)) / len(lengths)
    (3.0 * forget + entropy + 10 * budget + scorer.squared_norm()).backward()
    assert trainer.alternation.updates == 1
    for name, parameter in trainer.scorer.named_parameters():
        gradient = dict(scorer.named_parameters())[name].grad
        torch.testing.assert_close(parameter.detach(), -0.05 * gradient.sign(), atol=1e-3, rtol=0)
    assert len(trainer.optimizer.param_groups) == 3
    assert trainer.optimizer.param_groups[-1]["weight_decay"] == 0.0


def test_a_scorer_on_a_frozen_model_can_be_trained_on_labels(model_folder, tmp_path, monkeypatch):
    """From scores of 1/2 the gradient of the mean cross entropy is mean((1/2 - y) h), and the model's weights never move."""
    monkeypatch.setattr(scorer_training, "MAX_GRAD_NORM", math.inf)
    plain = {f"lambda_{name}": 0.0 for name in ("entropy", "budget", "l2")}
    trainer = make_trainer(
        model_folder,
        tmp_path,
        method="atwu",
        scorer_objective="labels",
        retain_loss="none",
        learning_rate=0.0,
        scorer_every=1,
        max_steps=1,
        **plain,
    )
    before, seen, compute = weights(trainer), [], trainer.micro_batch_loss
    trainer.micro_batch_loss = lambda *given: seen.append((compute(*given), given[1])) or seen[-1][0]
    trainer.train()
    ((out, inputs),) = seen
    secret = inputs["forget"]["token_labels"][:, 1:][out.mask].float()
    hidden = out.outputs.hidden("pred").float()
    assert 0 < secret.mean() < 1
    expected = 0.05 * ((secret - 0.5)[:, None] * hidden).mean(dim=0)
    torch.testing.assert_close(trainer.scorer.linear.weight.detach()[0], expected.detach())
    assert trainer.scorer.linear.bias.item() == pytest.approx(0.05 * (secret - 0.5).mean().item())
    assert torch.equal(weights(trainer), before)


def test_a_frozen_scorer_of_an_earlier_run_is_used_but_not_trained(model_folder, scorer_folder, tmp_path):
    trainer = make_trainer(
        model_folder, tmp_path, method="atwu", scorer_procedure="frozen", scorer_from=str(scorer_folder)
    )
    before = scorer_vector(trainer.scorer)
    trainer.train()
    assert trainer.alternation.updates == 0
    assert torch.equal(scorer_vector(trainer.scorer), before)
    assert not logged(trainer, "scorer_loss")
    assert logged(trainer, "mean_score")[0] != pytest.approx(0.5, abs=1e-3)


def test_pretraining_is_one_epoch_of_updates_on_the_original_model(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="atwu", scorer_procedure="frozen", scorer_pretrain=True)
    start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.pretrain_scorer()
    assert all(torch.equal(value, start[name]) for name, value in trainer.model.state_dict().items())
    pretrained = scorer_vector(trainer.scorer)
    assert pretrained.abs().max() > 1e-3

    # By hand: a fresh scorer, one update after each of the six batches of epoch 0.
    manual = make_trainer(model_folder, tmp_path, method="atwu", scorer_schedule="constant")
    manual.model.eval()
    with torch.no_grad():
        for batch in manual.get_train_dataloader():
            manual.alternation.collect(manual.micro_batch_loss(manual.model, batch, manual.recipe))
            with torch.enable_grad():
                manual.alternation.step(max_steps=0)
    assert manual.alternation.updates == 6
    torch.testing.assert_close(scorer_vector(manual.scorer), pretrained, atol=1e-6, rtol=1e-4)

    whole = make_trainer(model_folder, tmp_path, method="atwu", scorer_procedure="frozen", scorer_pretrain=True)
    whole.train()
    torch.testing.assert_close(scorer_vector(whole.scorer), pretrained, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("every", "steps", "inner"), [(5, 2, 13), (50, 1, 25)])
def test_the_minimum_number_of_updates_is_spread_over_scorer_steps(every, steps, inner, model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="atwu", scorer_every=every, scorer_min_updates=25)
    trainer.train()
    assert trainer.state.max_steps == 12
    assert len(logged(trainer, "scorer_loss")) == steps
    assert trainer.alternation.updates == steps * inner >= 25
    last = trainer.alternation.optimizer.param_groups[0]["lr"]
    assert last == pytest.approx(0.05 / (steps * inner))


def test_a_scorer_of_another_width_is_rejected(model_folder, tmp_path):
    TokenScorer(48).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"size 48.* 32"):
        make_trainer(model_folder, tmp_path, method="atwu", scorer_from=str(tmp_path))


def test_scores_start_at_the_prior_which_is_saved_with_the_scorer(model_folder, tmp_path):
    strength = 0.5
    trainer = make_trainer(
        model_folder, tmp_path, method="atwu", scorer_prior="rarity", scorer_prior_strength=strength, scorer_every=99
    )
    trainer.train()
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    forget = encode_dataset(make_rows(24), tokenizer, what="forget", max_length=512).rows
    retain = encode_dataset(make_rows(30, 24), tokenizer, what="retain", max_length=512).rows
    folder = tmp_path / "saved"
    folder.mkdir()
    trainer.scorer.save_pretrained(folder)
    loaded = TokenScorer.from_pretrained(folder)
    rarity = TokenCounts.of(retain)
    for row, seen in zip(forget, read_tokens(trainer.model, forget, scorer=loaded), strict=True):
        w = rarity.rarity(row)
        expected = w**strength / (w**strength + (1 - w) ** strength)
        assert seen.scores.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert logged(trainer, "mean_score")[0] == pytest.approx(0.5, abs=1e-3)


def test_a_product_with_the_scorer_scales_its_weights(model_folder, tmp_path):
    plain = make_trainer(model_folder, tmp_path, method="atwu", max_steps=1)
    product = make_trainer(model_folder, tmp_path, method="atwu", weighting="scorer*rarity", max_steps=1)
    for trainer in (plain, product):
        trainer.train()
    assert logged(plain, "mean_score")[0] == pytest.approx(0.5)
    assert logged(product, "mean_score")[0] == pytest.approx(0.25, abs=1e-6)  # 1/2 times a mean rank of 1/2
    assert logged(product, "score_auroc")[0] > logged(plain, "score_auroc")[0] == pytest.approx(0.5)


def test_logged_agreement_is_the_mean_auroc_of_the_rows(model_folder, tmp_path):
    trainer = make_trainer(
        model_folder, tmp_path, method="wga", max_steps=1, per_device_train_batch_size=6, gradient_accumulation_steps=4
    )
    rows = trainer.rows.forget.rows
    seen = read_tokens(trainer.model, rows)
    trainer.train()
    expected = per_sample_auroc(
        [row.logps[row.content] for row in seen], [row.labels[row.content] for row in seen]
    ).mean
    assert logged(trainer, "score_auroc") == pytest.approx([expected], abs=1e-4)


def test_agreement_is_logged_only_for_rows_with_both_kinds_of_token(model_folder, tmp_path):
    rows = [dataclasses.replace(row, forget_spans=()) if index else row for index, row in enumerate(make_rows(3))]
    trainer = make_trainer(
        model_folder, tmp_path, method="wga", per_device_train_batch_size=1, num_train_epochs=1, rows=rows
    )
    trainer.train()
    assert len(logged(trainer, "loss")) == 3
    (agreement,) = logged(trainer, "score_auroc")
    assert agreement > 0


@pytest.mark.parametrize(
    "options",
    [
        {"scorer_pretrain": True, "scorer_min_updates": 9},
        pytest.param({"scorer_procedure": "joint"}, marks=pytest.mark.night),
        pytest.param({"scorer_procedure": "frozen", "scorer_pretrain": True}, marks=pytest.mark.night),
    ],
)
def test_a_resumed_run_ends_like_an_uninterrupted_one(options, model_folder, tmp_path):
    settings = {"method": "atwu", "save_strategy": "steps", "save_steps": 5, "save_total_limit": 9} | options
    whole = make_trainer(model_folder, tmp_path / "a", **settings)
    whole.train()
    resumed = make_trainer(model_folder, tmp_path / "b", **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-5"))
    assert torch.equal(scorer_vector(resumed.scorer), scorer_vector(whole.scorer))
    for left, right in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(left, right)
