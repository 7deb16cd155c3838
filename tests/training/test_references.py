"""The source of reference outputs changes no result: a disk cache, a second model, or disabled adapters."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from atwu.modeling.adapters import Lora, attach
from atwu.training import precompute as module
from tests.training.conftest import logged, make_rows, weights
from tests.training.conftest import make_trainer as plain_trainer

# method, replaced retain loss, sets that are read: sequences, distributions of two teachers, states
DPO = ("dpo", None, {"forget", "alternate"})
TEACHERS = ("asu", "kl", {"forget", "retain"})
OTHER_TEACHERS = (("duet", None, {"forget", "retain"}), ("elm", None, {"forget", "expert", "novice", "retain"}))
STATES = ("rmu", None, {"retain"})
LIKE_TEACHERS = [pytest.param(*case, marks=pytest.mark.night) for case in OTHER_TEACHERS]


def starting(folder, *, lora=None, dtype=None):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype or torch.float32)
    return model if lora is None else attach(model, lora, seed=0)


def make_trainer(folder, output, *, model=None, lora=None, said=None, **changes):
    settings = {"cache_dir": str(output / "cache"), "max_steps": 3, "gradient_accumulation_steps": 2, "forget": 12}
    return plain_trainer(
        folder,
        output / "run",
        model=model or starting(folder, lora=lora),
        said=[] if said is None else said,
        **settings | changes,
    )


def files(output):
    return sorted(path for path in Path(output, "cache").rglob("*") if path.is_file())


@pytest.fixture
def reads(monkeypatch):
    """Records every reading pass."""
    calls, original = [], module.compute_reference

    def spy(model, rows, wanted, **options):
        calls.append((len(rows), wanted))
        return original(model, rows, wanted, **options)

    monkeypatch.setattr(module, "compute_reference", spy)
    return calls


@pytest.mark.parametrize(("method", "retain_loss", "sets"), [DPO, TEACHERS, STATES, *LIKE_TEACHERS])
def test_every_source_trains_to_the_same_weights(method, retain_loss, sets, model_folder, tmp_path, reads):
    options = {"method": method, "retain_loss": retain_loss}
    start = torch.cat([parameter.detach().flatten() for parameter in starting(model_folder).parameters()])
    trainers = {}
    for mode, name in (("cache", "cold"), ("cache", "warm"), ("model", "second")):
        trainers[name] = make_trainer(model_folder, tmp_path, reference=mode, **options)
        trainers[name].train()
        assert len(reads) == len(sets)
    assert len(files(tmp_path)) == len(sets)
    assert torch.equal(weights(trainers["warm"]), weights(trainers["cold"]))
    moved = (weights(trainers["cold"]) - start).norm()
    assert moved > 1e-3
    assert (weights(trainers["second"]) - weights(trainers["cold"])).norm() < 1e-5 * start.norm()
    assert (weights(trainers["second"]) - weights(trainers["cold"])).norm() < 1e-2 * moved
    assert logged(trainers["second"], "loss") == pytest.approx(logged(trainers["cold"], "loss"), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("method", "retain_loss", "sets"), [TEACHERS, *LIKE_TEACHERS])
def test_disabled_adapters_give_the_original_model(method, retain_loss, sets, model_folder, tmp_path, reads):
    lora, results = Lora(r=4), []
    for mode in ("adapters", "cache", "model"):
        trainer = make_trainer(
            model_folder,
            tmp_path,
            lora=lora,
            reference=mode,
            method=method,
            retain_loss=retain_loss,
            learning_rate=1e-2,
        )
        before = [parameter.requires_grad for parameter in trainer.model.parameters()]
        trainer.train()
        assert [parameter.requires_grad for parameter in trainer.model.parameters()] == before
        results.append((weights(trainer), logged(trainer, "loss")))
        assert len(reads) == (0 if mode == "adapters" else len(sets))
    for other, losses in results[1:]:
        assert losses == pytest.approx(results[0][1], rel=1e-4, abs=1e-5)
        assert (other - results[0][0]).norm() < 1e-4 * results[0][0].norm()


def test_training_adapters_does_not_change_the_cache_key(model_folder, tmp_path, reads):
    for _ in range(2):
        make_trainer(model_folder, tmp_path, lora=Lora(r=2), reference="cache", method="npo", max_steps=1).train()
    assert len(reads) == 1


@pytest.mark.parametrize(("method", "reference"), [("atwu", "auto"), ("simnpo", "model")])
def test_a_method_without_reference_reads_writes_and_loads_nothing(
    method, reference, model_folder, tmp_path, reads, monkeypatch
):
    monkeypatch.setattr("atwu.training.precompute.load_model", lambda *a, **k: 1 / 0)
    monkeypatch.setattr(module, "model_fingerprint", lambda model: 1 / 0)
    monkeypatch.setattr(module, "copy", None)
    said = []
    trainer = make_trainer(
        model_folder, tmp_path, method=method, reference=reference, said=said, max_steps=1, warmup_steps=0
    )
    trainer.train()
    assert (reads, said, files(tmp_path)) == ([], [], [])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("mode", ["cache", "model", "adapters", "auto"])
def test_the_reference_source_and_its_size_are_reported(mode, model_folder, tmp_path):
    said = []
    lora = Lora(r=2) if mode == "adapters" else None
    _ = make_trainer(model_folder, tmp_path, method="undial", reference=mode, lora=lora, said=said).precomputed
    (line,) = said
    assert line.startswith("reference model: ")
    if mode in ("cache", "auto"):
        (file,) = files(tmp_path)
        number, unit = line.split("computed once, ")[1].split()[:2]
        said_size = float(number) / {"MiB": 1, "KiB": 2**10}[unit]
        assert said_size == pytest.approx(file.stat().st_size / 2**20, abs=0.051)
        assert str(file.parent) in line
    else:
        assert {"model": "second, frozen copy", "adapters": "adapters disabled"}[mode] in line
        assert files(tmp_path) == []


def test_an_adapted_output_layer_is_not_cached(model_folder, tmp_path, reads):
    untied = starting(model_folder)
    untied.lm_head.weight = torch.nn.Parameter(untied.lm_head.weight.detach().clone())
    untied.config.tie_word_embeddings = False
    folder = tmp_path / "untied"
    untied.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(folder)
    lora = Lora(r=2, targets=("lm_head", "q_proj"))
    with pytest.raises(ValueError, match=r"reference='cache'.*output layer.* adapters .*model"):
        _ = make_trainer(folder, tmp_path, lora=lora, method="undial", reference="cache").precomputed
    losses = []
    for mode in ("auto", "model"):
        said = []
        trainer = make_trainer(folder, tmp_path, lora=lora, method="undial", reference=mode, said=said)
        trainer.train()
        assert ("adapters disabled" in said[0]) == (mode == "auto")
        losses.append(logged(trainer, "loss"))
    assert reads == []
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    # Log-probabilities alone need no plain output layer.
    _ = make_trainer(folder, tmp_path, lora=lora, method="npo", reference="cache").precomputed
    assert len(reads) == 1


def other_weights(folder):
    model = starting(folder)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[0, 0] += 1e-3
    return {"model": model}


def other_rows(folder):
    rows = make_rows(12)
    return {"rows": [*rows[:-1], dataclasses.replace(rows[-1], answer=rows[-1].answer + " Indeed.")]}


CHANGES = {
    "one weight": other_weights,
    "one answer": other_rows,
    "order of the rows": lambda folder: {"rows": make_rows(12)[::-1]},
    "the longest row": lambda folder: {"max_length": 40},
    "autocast": lambda folder: {"bf16": True},
    "what is read": lambda folder: {"method": "undial"},
    "dtype": lambda folder: {"model": starting(folder, dtype=torch.bfloat16)},
    "frequency of the positions": lambda folder: {"model": other_positions(folder)},
}


def other_positions(folder):
    """Equal weights with other outputs: weights do not determine how positions are encoded."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    config.rope_parameters = dict(config.rope_parameters) | {"rope_theta": 100.0}
    return AutoModelForCausalLM.from_pretrained(folder, config=config)


@pytest.mark.filterwarnings("ignore:forget:UserWarning", "ignore:retain:UserWarning")
def test_everything_that_changes_values_changes_the_cache_file(model_folder, tmp_path, reads):
    _ = make_trainer(model_folder, tmp_path, method="npo", reference="cache").precomputed
    for known, (change, options) in enumerate(CHANGES.items(), start=2):
        _ = make_trainer(
            model_folder, tmp_path, reference="cache", **{"method": "npo"} | options(model_folder)
        ).precomputed
        assert len(reads) == len(files(tmp_path)) == known, change


@pytest.mark.parametrize(
    "options",
    [
        {"method": "npo", "reference": "cache", "learning_rate": 5e-3},
        {"method": "grad_diff", "retain_loss": "kl", "reference": "model", "learning_rate": 5e-3},
        {"method": "npo", "reference": "adapters", "lora": Lora(r=4), "learning_rate": 1e-2},
    ],
    ids=lambda options: options["reference"],
)
def test_a_resumed_run_uses_the_original_model_as_reference_not_the_checkpoint(options, model_folder, tmp_path):
    options = options | {"max_steps": 5, "save_strategy": "steps", "save_steps": 3}
    whole = make_trainer(model_folder, tmp_path, **options)
    whole.train()
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # nothing to lean on but the model that is given
    resumed = make_trainer(model_folder, tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert resumed.state.global_step == 5
    assert torch.equal(weights(resumed), weights(whole))
    assert logged(resumed, "loss") == pytest.approx(logged(whole, "loss"), abs=1e-7)


@pytest.mark.parametrize(
    ("mode", "lora", "retain_loss"),
    [
        ("cache", False, "js"),
        ("model", False, "kl"),
        ("cache", True, "activation"),
    ],
)
def test_in_half_precision_the_distance_at_the_first_step_is_zero(mode, lora, retain_loss, model_folder, tmp_path):
    # The reference has to go through the same rounding as the model that is trained.
    model = starting(model_folder)
    with torch.no_grad():
        for parameter in (parameter for parameter in model.parameters() if parameter.dim() > 1):
            parameter *= 4
    model = attach(model, Lora(r=2), seed=0) if lora else model
    options = {"method": "grad_diff", "retain_loss": retain_loss, "reference": mode, "bf16": True, "max_steps": 1}
    trainer = make_trainer(model_folder, tmp_path, model=model, **options)
    trainer.train()
    assert logged(trainer, "retain_loss")[0] == pytest.approx(
        0.0, abs=1e-7
    )  # kernels of some processors round their own way


def test_auto_uses_an_existing_table_even_on_a_full_disk(model_folder, tmp_path, reads, monkeypatch):
    options = {"method": "undial", "reference": "auto"}
    _ = make_trainer(model_folder, tmp_path, **options).precomputed
    monkeypatch.setattr(module, "SHARE_OF_DISK", 0)
    elsewhere: list[str] = []
    _ = make_trainer(model_folder, tmp_path / "elsewhere", said=elsewhere, **options).precomputed
    assert "second, frozen copy" in elsewhere[0]
    again: list[str] = []
    _ = make_trainer(model_folder, tmp_path, said=again, **options).precomputed
    assert len(reads) == 1
    assert "second, frozen copy" not in again[0]


def test_a_damaged_table_is_computed_again(model_folder, tmp_path, reads):
    results = []
    for _ in range(2):
        trainer = make_trainer(model_folder, tmp_path, method="npo", reference="cache")
        trainer.train()
        results.append(weights(trainer))
        (file,) = files(tmp_path)
        file.write_bytes(file.read_bytes()[:-1])
    assert len(reads) == 2
    assert torch.equal(*results)


def test_computing_tables_changes_neither_mode_nor_random_state(model_folder, tmp_path):
    # A warm and a cold cache, and no cache at all, see the same random numbers.
    draws = []

    class DrawFunction(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **kwargs):
            draws.append((torch.rand(()).item(), model.training))

    for mode in ("cache", "cache", "model"):
        make_trainer(
            model_folder, tmp_path, method="npo", reference=mode, max_steps=1, callbacks=[DrawFunction()]
        ).train()
    assert draws[0] == draws[1] == draws[2]
