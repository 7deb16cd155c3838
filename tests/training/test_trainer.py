"""Training steps: scaling under accumulation, trained weights, and the schedule of the scorer."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from atwu import LossInputs, unlearning_loss
from atwu.methods.method_table import METHODS
from atwu.methods.recipe import recipe
from atwu.modeling.device import emulates_bfloat16
from atwu.modeling.single_pass import fast_path_support
from atwu.training import scorer_training
from tests.training.conftest import NEEDS, make_trainer, weights


@pytest.mark.parametrize("method", ["grad_diff", "gt_ga", "atwu"])
def test_eight_by_one_equals_one_by_eight(method, model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(scorer_training, "MAX_GRAD_NORM", math.inf)
    trainers = []
    for rows, steps in ((8, 1), (1, 8)):
        trainer = make_trainer(
            model_folder,
            tmp_path,
            method=method,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=steps,
            scorer_every=1,
            num_train_epochs=1,
        )
        trainer.train()
        trainers.append(trainer)
    start = make_trainer(model_folder, tmp_path)
    moved = (weights(trainers[0]) - weights(start)).abs().max()
    for other in trainers[1:]:
        assert (weights(other) - weights(trainers[0])).abs().max() < 1e-3 * moved
        if method == "atwu":
            assert trainers[0].alternation.updates == 3
            assert trainers[0].scorer.linear.weight.abs().max() > 1e-3
            torch.testing.assert_close(
                other.scorer.linear.weight, trainers[0].scorer.linear.weight, atol=1e-6, rtol=1e-4
            )
        logged = [entry["forget_loss"] for entry in other.state.log_history if "forget_loss" in entry]
        expected = [entry["forget_loss"] for entry in trainers[0].state.log_history if "forget_loss" in entry]
        assert logged == pytest.approx(expected, abs=1e-4)


def one_for_each_kind_of_input():
    """All methods; by day those that read an input, or average in a way, that no earlier one does."""
    seen = set()
    for name in METHODS:
        decided = recipe(name)
        kinds = {*decided.needs, decided.forget_component.reduction}
        yield pytest.param(name, marks=[pytest.mark.night] if kinds <= seen else [])
        seen |= kinds


@pytest.mark.parametrize("method", one_for_each_kind_of_input())
def test_every_method_takes_two_steps(method, model_folder, tmp_path):
    options = NEEDS.get(method, lambda folder: {})(model_folder)
    trainer = make_trainer(
        model_folder, tmp_path, method=method, max_steps=2, weight_decay=0.0, cache_dir=str(tmp_path), **options
    )
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "forget_loss" in entry]
    assert len(logs) == 2
    assert all(torch.isfinite(torch.tensor(entry["loss"])) for entry in logs)
    decided = trainer.recipe
    assert ("retain_loss" in logs[0]) == (decided.retain_component is not None)
    assert (trainer.scorer is not None) == (decided.scores is not None)
    if trainer.scorer is not None:
        assert trainer.alternation.updates == 1
        assert "scorer_loss" not in logs[0]
        assert "scorer_loss" in logs[1]
    assert ("score_auroc" in logs[0]) == (decided.weighting not in ("uniform", "labels"))
    moved = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    if method in ("rmu", "lunar"):
        layers = trainer.model.config.num_hidden_layers
        first = layers - 1 if method == "lunar" else max(0, layers - 3)
        assert moved == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(first, layers)}
    else:
        assert moved == {name for name in before if "rotary" not in name}


def test_incomplete_steps_at_the_end_of_an_epoch_can_be_dropped(model_folder, tmp_path):
    settings = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    for drop, steps in ((False, 4), (True, 2)):
        trainer = make_trainer(
            model_folder, tmp_path / str(drop), forget=10, method="grad_diff", dataloader_drop_last=drop, **settings
        )
        read = []
        count = trainer._count
        trainer._count = lambda batches, count=count, read=read: (
            read.append([int(row) for batch in batches for row in batch["rows"]]) or count(batches)
        )
        trainer.train()
        assert trainer.state.global_step == steps == len(read)
        assert all(len(rows) == 6 for rows in read) == drop


def test_logged_terms_add_up_to_the_loss(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="satimp", gradient_accumulation_steps=2)
    trainer.train()
    for entry in trainer.state.log_history:
        if "forget_loss" in entry:
            total = 0.87 * entry["forget_loss"] + 0.49 * entry["retain_loss"]
            assert entry["loss"] == pytest.approx(total, abs=1e-5)
            assert 0 <= entry["selected"] <= 1


def test_the_scorer_is_updated_after_the_model_on_schedule(model_folder, tmp_path):
    rates = []
    trainer = make_trainer(model_folder, tmp_path, method="atwu", num_train_epochs=3, scorer_every=3)

    class RateLogger(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            rates.append(
                (state.global_step, trainer.alternation.updates, trainer.alternation.optimizer.param_groups[0]["lr"])
            )

    trainer.add_callback(RateLogger())
    trainer.train()
    assert trainer.state.max_steps == 18
    assert [updates for _, updates, _ in rates] == [step // 3 for step in range(1, 19)]
    after_update = [rate for step, _, rate in rates if step % 3 == 0]
    assert after_update == pytest.approx([0.05 * (1 - k / 6) for k in range(6)])


def test_the_scorer_uses_the_states_of_the_model_step(model_folder, tmp_path):
    """The scorer needs no forward pass: the model runs once per micro-batch with every method."""
    for method in ("grad_diff", "atwu"):
        trainer = make_trainer(model_folder, tmp_path, method=method, gradient_accumulation_steps=3)
        fast_path_support(trainer.model, trainer.args.device)  # the trial passes before the first step
        calls = []
        trainer.model.model.register_forward_pre_hook(lambda *_: calls.append(1))
        trainer.train()
        assert len(calls) == 12
        assert trainer.alternation is None or trainer.alternation.updates == 2


@pytest.mark.parametrize("bf16", [False, True])
def test_gradient_checkpointing_and_autocast_train_to_nearly_the_same(bf16, model_folder, tmp_path, caplog):
    plain = make_trainer(model_folder, tmp_path, method="atwu")
    plain.train()
    other = make_trainer(model_folder, tmp_path, method="atwu", gradient_checkpointing=True, bf16=bf16)
    with caplog.at_level("INFO", "atwu"):
        other.train()
    slow = bf16 and emulates_bfloat16(torch.device("cpu"))
    assert ("bfloat16" in caplog.text) == slow
    start = weights(make_trainer(model_folder, tmp_path))
    assert (weights(other) - weights(plain)).norm() < (0.3 if bf16 else 1e-3) * (weights(plain) - start).norm()


@pytest.mark.parametrize("weighting", ["nouns+rarity", "logprob_mask*labels"])
def test_two_fixed_weightings_average_over_their_common_weight(weighting, model_folder, tmp_path):
    """The trainer's masked loss equals `unlearning_loss` with the weights that it reports."""
    trainer = make_trainer(
        model_folder,
        tmp_path,
        method="seul",
        weighting=weighting,
        noun_finder="simple",
        per_device_train_batch_size=24,
        max_steps=1,
        cache_dir=str(tmp_path),
    )
    seen = []
    compute = trainer.micro_batch_loss
    trainer.micro_batch_loss = lambda *given: seen.append((given[1], compute(*given))) or seen[-1][1]
    start = AutoModelForCausalLM.from_pretrained(model_folder)
    trainer.train()
    batch, result = seen[0]
    weights = torch.nn.functional.pad(result.token_weights, (1, 0))
    again = unlearning_loss(start, batch, "seul", inputs=LossInputs(token_weights=weights))
    assert result.token_weights.max() > result.token_weights[result.mask].min()
    assert again.forget.item() == pytest.approx(result.forget.item(), abs=1e-5)


def test_legacy_jensun_trains_on_every_position_of_a_row(model_folder, tmp_path):
    """From the prompt's first token to the row's last: its own rows, one token longer, give the loss of the plain ones."""
    plain = make_trainer(model_folder, tmp_path / "fixed", method="jensun", per_device_train_batch_size=24)
    trainer = make_trainer(
        model_folder, tmp_path, method="jensun", legacy=True, per_device_train_batch_size=24, max_steps=1
    )
    seen = []
    compute = trainer.micro_batch_loss
    trainer.micro_batch_loss = lambda *given: seen.append(compute(*given)) or seen[-1]
    start = AutoModelForCausalLM.from_pretrained(model_folder)
    trainer.train()
    assert sum(len(row.input_ids) for row in plain.sets["forget"].rows) == int(seen[0].mask.sum())
    rows = plain.sets["forget"].rows
    longest = max(len(row.input_ids) for row in rows)
    batch = {
        "input_ids": torch.tensor([[*row.input_ids, *[0] * (longest - len(row.input_ids))] for row in rows]),
        "attention_mask": torch.tensor(
            [[1] * len(row.input_ids) + [0] * (longest - len(row.input_ids)) for row in rows]
        ),
    }
    again = unlearning_loss(
        start,
        dict.fromkeys(("forget", "retain"), batch | {"labels": batch["input_ids"]}),
        method="jensun",
        legacy=True,
        reference=start,
        inputs=LossInputs(refusal_ids=trainer.recipe.forget_component.target_token_ids(trainer.processing_class)),
    )
    assert again.forget.item() == pytest.approx(seen[0].forget.item(), abs=1e-5)


def test_a_warmup_as_long_as_the_run_gives_a_warning(model_folder, tmp_path):
    said = {}
    for steps in (1, 4):
        make_trainer(model_folder, tmp_path, max_steps=4, warmup_steps=steps, said=said.setdefault(steps, [])).train()
    assert not any("warmup" in line for line in said[1])
    assert "warning: 4 of 4 steps are warmup, so the learning rate stays below 0.001; lower warmup_steps" in said[4]
