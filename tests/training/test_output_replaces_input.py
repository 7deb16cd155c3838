"""An output that would replace what a run reads is refused before anything is written."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from atwu.request.unlearn import unlearn as unlearn_request
from atwu.training.config import FinetuneConfig, UnlearnConfig
from atwu.training.run_folder import check_inputs_kept
from atwu.training.unlearn_run import ModelSource, run_finetune, run_unlearn
from tests.commands import run_here
from tests.training.conftest import make_trainer

QUICK = {"max_steps": 1, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}


@pytest.fixture
def finished(model_folder: Path, data_files: tuple[Path, Path], tmp_path: Path) -> Path:
    """The folder of a finished run, which --overwrite would replace."""
    source = ModelSource(model=str(model_folder))
    run_finetune(source, FinetuneConfig(**QUICK), data=str(data_files[0]), output=tmp_path / "run")
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("kind", ["finetune", "unlearn", "request", "command"])
def test_a_model_is_not_replaced_by_its_own_result(kind, through_link, finished, data_files, tmp_path):
    output = finished
    if through_link:
        output = tmp_path / "link"
        output.symlink_to(finished)
    before = contents(finished)
    forget, retain = (str(path) for path in data_files)
    source = ModelSource(model=str(finished))

    def start():
        if kind == "finetune":
            run_finetune(source, FinetuneConfig(**QUICK), data=forget, output=output, overwrite=True)
        elif kind == "unlearn":
            config = UnlearnConfig(method="grad_diff", **QUICK)
            run_unlearn(source, config, forget=forget, retain=retain, output=output, overwrite=True)
        elif kind == "request":
            unlearn_request(source, forget, retain=retain, output=output, overwrite=True)
        else:
            arguments = ["finetune", "--model", finished, "--data", forget, "--output", output, "--overwrite"]
            raise run_here(*arguments, "--use-cpu").exception

    with pytest.raises(ValueError, match=r"the model .*run is in .*run, which the output replaces; choose another"):
        start()
    assert contents(finished) == before
    assert not finished.with_name("run.incomplete").exists()


def test_a_checkpoint_of_the_unfinished_run_is_not_replaced_by_it(model_folder, data_files, tmp_path):
    checkpoint = Path(shutil.copytree(model_folder, tmp_path / "out.incomplete" / "checkpoint-3"))
    with pytest.raises(ValueError, match=r"checkpoint-3 is in .*out\.incomplete"):
        run_finetune(
            ModelSource(model=str(checkpoint)),
            FinetuneConfig(**QUICK),
            data=str(data_files[0]),
            output=tmp_path / "out",
            overwrite=True,
        )
    assert (checkpoint / "config.json").is_file()


def test_rows_in_the_replaced_folder_are_kept(model_folder, finished, data_files):
    rows = Path(shutil.copy(data_files[0], finished / "mine.jsonl"))
    with pytest.raises(ValueError, match=r"the data .*mine\.jsonl is in"):
        run_finetune(
            ModelSource(model=str(model_folder)),
            FinetuneConfig(**QUICK),
            data=f"{data_files[1]} + {rows}:question=question,answer=answer",
            output=finished,
            overwrite=True,
        )
    assert rows.is_file()


def test_inputs_beside_or_above_the_output_are_no_obstacle(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "unlearned").mkdir()
    (tmp_path / "model-2").mkdir()
    for output in ("model/unlearned", "model-2", "nowhere"):
        check_inputs_kept(tmp_path / output, {"model": tmp_path / "model", "base": "org/name", "tokenizer": None})


def test_a_folder_whose_files_are_links_into_the_output_counts_as_part_of_it(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "weights").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").symlink_to(tmp_path / "blobs" / "weights")
    with pytest.raises(ValueError, match="which the output replaces"):
        check_inputs_kept(tmp_path / "blobs", {"model": tmp_path / "model"})


def test_a_trainer_does_not_write_into_the_folder_of_its_model(model_folder):
    with pytest.raises(ValueError, match="the folder of the model"):
        make_trainer(model_folder, model_folder, method="grad_diff")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "run.json"])
def test_a_result_file_does_not_replace_a_file_of_a_model(name, finished, data_files):
    before = contents(finished)
    arguments = ["evaluate", "--model", finished, "--forget", data_files[0], "--output", finished / name]
    done = run_here(*arguments, "--overwrite")
    assert "file of a model or run" in str(done.exception)
    assert contents(finished) == before
