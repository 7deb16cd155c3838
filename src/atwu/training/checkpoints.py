"""Checkpoints: written atomically, and never resumed from if damaged or written by a run with another key.

    what transformers writes          weights, optimizer, schedule, trainer_state.json
    random_state.json                 random generators; with several processes, a file for each
    sampler.json                      draws of the current epoch (`atwu.data.pairing`)
    scorer*                           token scorer, with its optimizer and progress (`scorer_training.py`)
    run_key.json                      key of the run
    manifest.json                     digests of these files

and the state of other parts of a trainer that have some (`Stateful`).
`SavingTrainer._save_checkpoint` writes them into `.incomplete` and calls `publish_checkpoint`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from atwu._cache import key_differences, run_key
from atwu._file_reading import read_object
from atwu._files import move, plain_modes, versions, write_json
from atwu._manifest import damage, write_manifest
from atwu.modeling.model_checks import check_complete
from atwu.training.config import TokenTrainingConfig
from atwu.training.load_to_train import LoadedModel
from atwu.training.row_sets import RowSet

KEY_NAME = "run_key.json"
NOT_RESULT = frozenset(
    [
        # Where files are, and what is shown.
        *("output_dir", "run_name", "resume_from_checkpoint", "local_rank"),
        *("disable_tqdm", "report_to", "log_level", "logging_steps", "logging_strategy", "logging_first_step"),
        # When checkpoints are written, and what is uploaded.
        *("save_strategy", "save_steps", "save_total_limit"),
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision"),
        # How rows are loaded: which ones follows from seed, epoch and index.
        *("dataloader_num_workers", "dataloader_pin_memory"),
        *("dataloader_persistent_workers", "dataloader_prefetch_factor"),
        # Options with paths; the contents at these paths are compared by digest instead.
        *("cache_dir", "forget_words", "further_forget", "further_retain"),
        *("scorer_from", "auxiliary_forget", "auxiliary_retain"),
    ]
)
"""Fields that do not affect the result, so a run may be resumed with other values."""
_PARTS_OF_A_STEP = frozenset(["per_device_train_batch_size", "gradient_accumulation_steps"])
"""With the number of processes these give the rows per step, which is compared; their split only affects
floating-point rounding."""
STAGING = ".incomplete"
"""Sub-folders of a run: for the checkpoint being written, and for old ones being removed."""

logger = logging.getLogger(__name__)


class Stateful(Protocol):
    """State saved and loaded together with the model."""

    def save(self, folder: str) -> None:
        """Write the state into a checkpoint; called in the main process."""

    def load(self, folder: str) -> None:
        """Load the state from a checkpoint."""


def last_checkpoint(run: str | Path, key: Mapping[str, Any] | None = None) -> str | None:
    """Return the last checkpoint in a run's folder, intact or not; with a key, one of another run only if there is no other."""
    checkpoints = _in_order(Path(run), key)
    if checkpoints:
        return str(checkpoints[-1])
    return None


def step_of(checkpoint: str | Path) -> int:
    return int(Path(checkpoint).name.rsplit("-", 1)[1])


def publish_checkpoint(staged: Path, run: Path, key: Mapping[str, Any], *, keep: int | None) -> None:
    """Move a complete checkpoint into its run's folder, keeping only the last `keep` (None: all)."""
    # safetensors writes files that only their owner may read.
    plain_modes(*staged.rglob("*.safetensors"))
    write_json(staged / KEY_NAME, key)
    write_manifest(staged)
    # An earlier run, or the part of this one after the checkpoint it was resumed from, may have written this step.
    shutil.rmtree(run / staged.name, ignore_errors=True)
    move(staged, run / staged.name)
    # Old ones go only now, so that a kill while the new one is written leaves them all.
    before = [path for path in _in_order(run, key) if path.name != staged.name]
    if keep:
        for old in before[: max(len(before) + 1 - keep, 0)]:
            _drop(old)
    shutil.rmtree(run / STAGING, ignore_errors=True)


def checkpoint_to_resume(
    asked: str | os.PathLike[str] | bool | None,
    *,
    run: str,
    key: Callable[[], Mapping[str, Any]],
    main_process: bool,
    wait: Callable[[], object],
) -> str | None:
    """Return the checkpoint to resume from, or None to start from the beginning; called in every process.

    Args:
        asked: a checkpoint; or True for the last intact one of the run, or None if all are damaged.
    """
    if not asked:
        return None
    if isinstance(asked, str | os.PathLike):
        if not Path(asked).is_dir():
            raise FileNotFoundError(
                f"there is no folder {asked}; resume from a checkpoint, such as {run}/checkpoint-5."
            )
        wrong = damage(Path(asked))
        if wrong is not None:
            raise ValueError(f"{asked} is damaged ({wrong}); resume from another checkpoint.")
        if not re.fullmatch(r".*-\d+", Path(asked).name):
            raise ValueError(f"{asked} is not a checkpoint; resume from one, such as {run}/checkpoint-5.")
        return os.fspath(asked)
    if last_checkpoint(run) is None:
        raise ValueError(f"{run} contains no checkpoint to resume from.")
    # One process removes damaged checkpoints while the others wait, so that all of them see the same last one.
    wait()
    if main_process:
        drop_damaged(run, key())
    wait()
    own = key()
    last = last_checkpoint(run, own)
    if last is None:
        return None
    # A checkpoint that transformers wrote without this package has no key; all of a run then differs.
    written: dict[str, Any] = {}
    named = Path(last) / KEY_NAME
    if named.exists():
        written = read_object(named)
    if written != own:
        raise ValueError(
            f"{last} belongs to another run, which differs in {', '.join(key_differences(written, own))}; set another "
            f"output_dir, or continue from it anyway: train(resume_from_checkpoint={last!r})."
        )
    return last


def drop_damaged(run: str | Path, key: Mapping[str, Any] | None = None) -> None:
    """Remove damaged checkpoints behind the last intact one of the run, with a warning for each."""
    checkpoints = _in_order(Path(run))
    while checkpoints:
        last = checkpoints.pop()
        wrong = damage(last)
        if wrong is not None:
            _drop(last)
            then = "the run starts from the beginning"
            if checkpoints:
                then = f"trying {checkpoints[-1].name}"
            logger.warning("warning: %s is damaged (%s); %s", last, wrong, then)
        elif key is None or checkpoint_key(last) == key:
            return


def _in_order(run: Path, key: Mapping[str, Any] | None = None) -> list[Path]:
    """Return checkpoints in the order of their steps; with a key, those of other runs that share the folder come first.

    File times say nothing about the order: they change when a folder is copied.
    """
    checkpoints = (path for path in run.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal())
    return sorted(checkpoints, key=lambda path: (key is None or checkpoint_key(path) == key, step_of(path)))


def checkpoint_key(checkpoint: str | Path) -> dict[str, Any] | None:
    """Return the key of the run that wrote a checkpoint; None if it is damaged or missing."""
    # A flipped bit leaves JSON that can be read, and names another run.
    if damage(Path(checkpoint), weights=False) is not None:
        return None
    try:
        return read_object(Path(checkpoint) / KEY_NAME)
    except (OSError, ValueError):
        return None


def _drop(checkpoint: Path) -> None:
    """Remove a checkpoint atomically, so that a kill leaves no partial checkpoint."""
    doomed = checkpoint.with_name(STAGING)
    # What a kill left of an earlier one; a folder can only be renamed to a name that is free.
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def names_as_stored(model: nn.Module, folder: str | Path) -> bool:
    """Return whether the files of a saved model have all its parameters under the model's own names.

    transformers stores the experts of a mixture one by one, and parts of some hybrids and wrappers under older names.
    """
    from safetensors import safe_open

    stored: set[str] = set()
    for file in Path(folder).glob("*.safetensors"):  # only headers are read
        with safe_open(file, framework="pt") as opened:
            stored.update(opened.keys())
    return stored.issuperset(name for name, _ in model.named_parameters())


def restore_renamed(model: Any, folder: str | Path) -> None:
    """Copy the weights of a saved model whose files have other names than its parameters into the model.

    Raises:
        ModelFileError: the files lack a weight.
    """
    stored, report = type(model).from_pretrained(folder, dtype="auto", use_safetensors=True, output_loading_info=True)
    check_complete(report, str(folder))
    model.load_state_dict(stored.state_dict())


def packages(config: TokenTrainingConfig, loaded: LoadedModel) -> dict[str, str]:
    """Return the versions of the packages that affect a run's numbers."""
    further = []
    if loaded.lora is not None:
        further.append("peft")
    if config.quantize:
        further.append("bitsandbytes")
    return versions() | {name: importlib.metadata.version(name) for name in further}


def training_key(
    command: str,
    config: TokenTrainingConfig,
    loaded: LoadedModel,
    sets: Mapping[str, RowSet],
    *,
    tokenizer: Any,
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    """Return the key of a training run; `inputs` are digests of what it reads besides model and rows."""
    tokenization = f"{tokenizer.backend_tokenizer.to_str()}{tokenizer.chat_template or ''}"
    without = NOT_RESULT | _PARTS_OF_A_STEP
    return run_key(
        command,
        options={name: value for name, value in config.as_plain().items() if name not in without},
        model=loaded.fingerprint,
        rows={name: rows.fingerprint for name, rows in sets.items()},
        inputs={
            **inputs,
            "tokenizer": hashlib.sha256(tokenization.encode()).hexdigest(),
            "rows_per_step": config.rows_per_step,
            "device": config.device.type,
            "versions": packages(config, loaded),
        },
    )


# Random states


def write_random_state(path: Path, device: torch.device) -> None:
    """Write the states that draws on the CPU and on a device continue from, as JSON.

    transformers pickles them, and a pickle of NumPy names modules that moved in version 2: a checkpoint written under NumPy 1
    could not be continued under NumPy 2.
    """
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, inner, gauss = random.getstate()
    write_json(
        path,
        {
            "python": [version, list(inner), gauss],
            "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
            "cpu": _as_text(torch.random.get_rng_state()),
            "devices": [_as_text(state) for state in _device_states(device)],
        },
    )


def set_random_state(path: Path, device: torch.device) -> None:
    """Set the states that `write_random_state` wrote; those of further devices are left as they are."""
    states = read_object(path)
    version, inner, gauss = states["python"]
    random.setstate((version, tuple(inner), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.random.set_rng_state(_as_tensor(states["cpu"]))
    device_states = [_as_tensor(text) for text in states["devices"]]
    if device.type == "cuda":
        for index, state in enumerate(device_states[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, index)
    elif device.type != "cpu" and device_states:
        generator: Any = torch.get_device_module(device)
        generator.set_rng_state(device_states[0])


def _device_states(device: torch.device) -> list[Tensor]:
    if device.type == "cpu":
        return []
    if device.type == "cuda":
        return list(torch.cuda.get_rng_state_all())
    # A device that is neither CPU nor CUDA has one generator, in a module such as `torch.mps`.
    generator: Any = torch.get_device_module(device)
    return [generator.get_rng_state()]


def _as_text(state: Tensor) -> str:
    return bytes(state.cpu().tolist()).hex()


def _as_tensor(text: Any) -> Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
