"""Every file of an interrupted run, damaged in every way: it is named, and the resumed run ends with the same bits."""

from __future__ import annotations

import json
import logging
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from transformers import TrainerCallback

from atwu import UnlearnConfig
from atwu._manifest import LOG_NAME, MANIFEST_NAME
from atwu._manifest import damage as damaged_in
from atwu.errors import DiskFullError
from atwu.training.checkpoints import KEY_NAME, drop_damaged, last_checkpoint
from atwu.training.run_folder import LOCK_NAME, PROCESS_NAME
from atwu.training.unlearn_run import ModelSource, run_unlearn
from tests.damage import DAMAGES, damage, disk
from tests.training.conftest import make_trainer

IN_CHECKPOINT = (
    "config.json",
    "generation_config.json",
    "manifest.json",
    "model.safetensors",
    "optimizer.pt",
    "random_state.json",
    KEY_NAME,
    "sampler.json",
    "scheduler.pt",
    "scorer.safetensors",
    "scorer_config.json",
    "scorer_optimizer.safetensors",
    "scorer_progress.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "trainer_state.json",
)
IN_FINISHED = (
    "config.json",
    "generation_config.json",
    "log.jsonl",
    "manifest.json",
    "model.safetensors",
    "run.json",
    "scorer.safetensors",
    "scorer_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
IN_WORK_FOLDER = (PROCESS_NAME, LOG_NAME, LOCK_NAME)


class Interrupt(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Interrupted:
    """A run that was stopped after its checkpoints 2 and 4, and the result of one that was not."""

    work: Path
    model: Path
    rows: tuple[Path, Path]
    whole: dict[str, bytes]

    def copy(self, output: Path) -> Path:
        return Path(shutil.copytree(self.work, output.with_name(f"{output.name}.incomplete")))

    def finish(self, output: Path) -> dict[str, bytes]:
        return finish(self.model, self.rows, output)


def finish(model: Path, rows: tuple[Path, Path], output: Path, **more) -> dict[str, bytes]:
    config = UnlearnConfig(
        method="atwu",
        max_steps=6,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=1,
        scorer_every=2,
        learning_rate=1e-3,
        save_strategy="steps",
        save_steps=2,
        save_total_limit=2,
        use_cpu=True,
        disable_tqdm=True,
    )
    run_unlearn(ModelSource(model=str(model)), config, forget=str(rows[0]), retain=str(rows[1]), output=output, **more)
    kept = {name: (output / name).read_bytes() for name in ("model.safetensors", "scorer.safetensors")}
    lines = [json.loads(line) for line in (output / LOG_NAME).read_text().splitlines()]
    return kept | {LOG_NAME: json.dumps([line for line in lines if "loss" in line]).encode()}


@pytest.fixture(scope="module")
def interrupted(model_folder, data_files, tmp_path_factory) -> Interrupted:
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ATWU_CACHE", str(folder / "cache"))
        whole = finish(model_folder, data_files, folder / "whole")
        with pytest.raises(KeyboardInterrupt):
            finish(model_folder, data_files, folder / "run", watch=lambda _: [Interrupt()])
    return Interrupted(folder / "run.incomplete", model_folder, data_files, whole)


def test_the_tested_files_are_all_files_of_a_checkpoint(interrupted):
    assert sorted(path.name for path in (interrupted.work / "checkpoint-4").iterdir()) == sorted(IN_CHECKPOINT)
    there = {path.name for path in interrupted.work.iterdir()}
    assert there == {*IN_WORK_FOLDER, "checkpoint-2", "checkpoint-4"}
    assert {path.name for path in (interrupted.work.parent / "whole").iterdir()} == {*IN_FINISHED, "README.md"}


@pytest.mark.parametrize("name", IN_CHECKPOINT)
def test_a_damaged_checkpoint_gives_a_warning_and_the_previous_one_is_used(name, interrupted, tmp_path, caplog):
    for how in DAMAGES:
        caplog.clear()
        work = interrupted.copy(tmp_path / how)
        damage(work / "checkpoint-4" / name, how)
        drop_damaged(work)
        (said,) = (record.getMessage() for record in caplog.records)
        assert re.search(rf"^warning: {work / 'checkpoint-4'} .*checkpoint-2", said)
        assert name in said or (name == MANIFEST_NAME and how == "flipped")
        assert last_checkpoint(work) == str(work / "checkpoint-2")


@pytest.mark.parametrize(
    "damaged", [("checkpoint-4",), pytest.param(("checkpoint-4", "checkpoint-2"), marks=pytest.mark.night)]
)
def test_a_run_from_an_older_checkpoint_or_from_scratch_ends_with_the_same_bits(damaged, interrupted, tmp_path, caplog):
    work = interrupted.copy(tmp_path / "run")
    for checkpoint in damaged:
        damage(work / checkpoint / "optimizer.pt", "flipped")
    assert interrupted.finish(tmp_path / "run") == interrupted.whole
    said = [record.getMessage() for record in caplog.records if record.name.startswith("atwu")]
    assert len(said) == len(damaged)
    assert said[0].endswith("checkpoint-2")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["resumed_from_step"] == (2 if len(damaged) == 1 else 0)


def test_a_damaged_log_is_rewritten_from_the_checkpoint(interrupted, tmp_path):
    damage(interrupted.copy(tmp_path / "run") / LOG_NAME, "truncated")
    assert interrupted.finish(tmp_path / "run") == interrupted.whole


def test_resuming_explicitly_from_a_damaged_checkpoint_is_rejected(interrupted, tmp_path):
    work = interrupted.copy(tmp_path / "run")
    damage(work / "checkpoint-4" / "scorer_config.json", "missing")
    trainer = make_trainer(interrupted.model, work, method="atwu")
    with pytest.raises(ValueError, match=r"checkpoint-4 .*scorer_config\.json"):
        trainer.train(resume_from_checkpoint=str(work / "checkpoint-4"))
    with pytest.raises(ValueError, match="checkpoint"):
        make_trainer(interrupted.model, tmp_path / "other", method="atwu").train(resume_from_checkpoint=True)


@pytest.mark.parametrize("name", IN_FINISHED)
def test_a_damaged_finished_run_is_rejected_as_a_model(name, interrupted, tmp_path, caplog):
    for how in DAMAGES:
        run = Path(shutil.copytree(interrupted.work.parent / "whole", tmp_path / how))
        damage(run / name, how)
        if (name, how) == (MANIFEST_NAME, "missing"):
            assert ModelSource(model=str(run))
            assert ModelSource(model=str(run))
            (warned,) = caplog.messages
            assert re.search(rf"^warning: {run} .*manifest\.json", warned)
            continue
        with pytest.raises(ValueError, match=rf"{run} .*manifest\.json") as said:
            ModelSource(model=str(run))
        assert name in str(said.value) or (name, how) == (MANIFEST_NAME, "flipped")


class Fill(TrainerCallback):
    """Leaves no room on the disk after a step."""

    def __init__(self, file: Path, step: int) -> None:
        self.file, self.step = file, step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            free = shutil.disk_usage(self.file.parent).free
            self.file.write_bytes(bytes(max(0, free - 30_000)))


@pytest.mark.parametrize("step", [3, pytest.param(6, marks=pytest.mark.night)])
def test_a_run_on_a_full_disk_ends_with_a_one_line_error_and_resumes_later(step, interrupted, tmp_path):
    with disk(tmp_path / "disk", "64m") as folder:
        filled, output = folder / "filler", folder / "run"
        with pytest.raises(DiskFullError, match=rf"{output}\.incomplete\b"):
            finish(interrupted.model, interrupted.rows, output, watch=lambda _: [Fill(filled, step)])
        kept = last_checkpoint(output.with_name("run.incomplete"))
        assert kept is not None
        assert damaged_in(Path(kept)) is None
        filled.unlink()
        assert interrupted.finish(output) == interrupted.whole


@pytest.mark.night
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", [*(f"checkpoint-4/{name}" for name in IN_CHECKPOINT), *IN_WORK_FOLDER])
def test_a_resumed_run_ends_with_the_same_bits_after_any_damage(name, how, interrupted, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    damage(interrupted.copy(tmp_path / "run") / name, how)
    assert interrupted.finish(tmp_path / "run") == interrupted.whole
