"""Read folders of finished runs into `Records` (`report_records.py`), the only input of a report.

Reads study folders (`atwu study run`), folders of single runs with `eval.json` and `run.json`, result files of
`atwu evaluate`, and folders of result files, such as the stored results of a study. Runs that differ only in their seed
share a label and are averaged. Several studies are the sections of a board (`board.py`). Record files are validated against
declared types; unknown keys are allowed, since other versions may write more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from atwu._cache import short_hash
from atwu._file_reading import printable, read_object, type_adapter, validated
from atwu._manifest import RECORD_NAME, check_as_written
from atwu.evaluation.result import EvalResult, read_result
from atwu.evaluation.word_scores import TRACE_NAME, read_trace
from atwu.modeling.model_files import CONFIG
from atwu.report.metric_table import REFERENCE_MODELS
from atwu.report.report_records import EVAL_NAME, STUDY_NAME, Records, RunRecord
from atwu.training.model_card import public_text

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Plain = Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]
"""Name of one folder."""


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Recipe(_File):
    weighting: str | None = None
    forget_loss: str | None = None
    retain_loss: str | None = None
    values: Mapping[str, float] = {}


class _Run(_File):
    seed: Seed
    recipe: _Recipe | None = None
    config: Mapping[str, Any] | None = None
    train_seconds: Annotated[float, Field(ge=0)] | None = None
    peak_memory_bytes: Annotated[int, Field(ge=0)] | None = None


class _Variant(_File):
    label: str
    budget: str | None = None


class _Setting(_File):
    name: str


class _Study(_File):
    runs: list[Plain]
    name: str | None = None
    title: str | None = None
    about: str | None = None
    command: str | None = None
    budget: str | None = None
    published: str | None = None
    variants: list[_Variant] = []
    setting: _Setting | None = None
    failed: Mapping[str, str] = {}
    left_out: Mapping[str, str] = {}


def read_run(path: Path, *, kind: type[_File] = _Run, remedy: str = "Restore the file.") -> dict[str, Any]:
    """Read `run.json`, or a file of another kind; a ValueError names the file, the invalid key, and the remedy."""
    try:
        value = read_object(path)
        validated(value, type_adapter(kind), what=str(path))
    except ValueError as error:
        raise ValueError(f"{error} {remedy}") from None
    return value


def read_records(paths: str | Path | Sequence[str | Path]) -> Records:
    """Read runs.

    Args:
        paths: a study folder, run folders, result files, or folders of such files, or one of them; a study's references apply
            to all.

    Raises:
        FileNotFoundError: a path does not exist, or contains no finished run.
        ValueError: a file is damaged, two runs have the same label and seed, or there are two studies.
    """
    references: dict[str, EvalResult] = {}
    every: list[RunRecord] = []
    about: dict[str, Any] = {}
    paths = [paths] if isinstance(paths, str | Path) else paths
    for path in map(Path, paths):
        if (path / STUDY_NAME).is_file():
            if about:
                raise ValueError(
                    f"{path} is a second study; atwu report STUDY STUDY --output FOLDER writes a page of several studies."
                )
            about, runs = _study(path, references)
        elif (path / EVAL_NAME).is_file():
            runs = [_run(path)]
        elif path.is_file():
            result = read_result(path)
            runs = [RunRecord(public_text(printable(result.model)), None, None, result)]
        elif (path / RECORD_NAME).is_file() or (path / CONFIG).is_file():
            raise FileNotFoundError(
                f"{path} is a model without an evaluation; first: atwu evaluate --model {path} --forget ROWS --retain ROWS "
                f"--output {path / EVAL_NAME} (its verdict, if it has one: atwu evidence {path})."
            )
        elif list(path.glob("*.json")):
            runs = []
            for file in sorted(path.glob("*.json")):
                result = read_result(file)
                name = Path(printable(result.model)).name
                # Results of a study are named LABEL-sSEED; any other model by the last part of its name.
                seeded = re.fullmatch(r"(.+)-s(\d+)", name)
                if seeded is None:
                    runs.append(RunRecord(public_text(name), None, None, result))
                else:
                    runs.append(RunRecord(public_text(seeded[1]), int(seeded[2]), None, result))
        else:
            raise FileNotFoundError(
                f"{path} {'contains no finished run' if path.is_dir() else 'not found'}: expected a study folder "
                f"({STUDY_NAME}), a run folder with {EVAL_NAME}, a result file of atwu evaluate, or a folder of result files."
            )
        for run in runs:
            if run.label in REFERENCE_MODELS:
                _refer(run.label, run.result, references, run.folder)
            else:
                every.append(run)
    for (label, seed), count in Counter((run.label, run.seed) for run in every).items():
        if count > 1:
            raise ValueError(
                f"two runs have the label {label!r} with seed {seed}; leave one out, or evaluate them again with --output "
                "into folders of different names."
            )
    names = ", ".join(path.name for path in map(Path, paths))
    return Records(str(about.get("title") or names), references, tuple(every), about)


def _study(path: Path, references: dict[str, EvalResult]) -> tuple[dict[str, Any], list[RunRecord]]:
    """Read a study that may be in progress: its record, and its finished runs in the order of its variants."""
    again = "Restore it, or run the same atwu study run again, which repeats no finished run and writes it anew."
    about = read_run(path / STUDY_NAME, kind=_Study, remedy=again)
    for role in REFERENCE_MODELS:
        file = path / "references" / role / EVAL_NAME
        if file.is_file():
            _refer(role, read_result(file), references, path)
    shown = _public(variant["label"] for variant in about.get("variants", []))
    # Folders that the study does not name belong to other settings or to removed seeds.
    named = [path / "runs" / name for name in about["runs"]]
    runs = [_run(folder, shown) for folder in named if (folder / EVAL_NAME).is_file()]
    if not runs:
        raise FileNotFoundError(
            f"{path} contains no finished run: none of the study's {len(named)} runs has an {EVAL_NAME}."
        )
    if len(runs) + len(about.get("failed", {})) < len(named):
        about["progress"] = f"{len(runs)} of {len(named)} runs finished"
    if "variants" in about:
        about["variants"] = [{**variant, "label": shown[variant["label"]]} for variant in about["variants"]]
    if "failed" in about:
        about["failed"] = {public_text(name): reason for name, reason in about["failed"].items()}
    place = {label: index for index, label in enumerate(shown.values())}
    # As the study lists its variants, not as its runs ended.
    runs.sort(key=lambda run: (place.get(run.label, len(place)), run.seed or 0))
    return about, runs


def _public(labels: Iterable[str]) -> dict[str, str]:
    """Label of a study -> name in tables: without local paths, and unique if only the paths differed."""
    names = {label: public_text(label) for label in labels}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    for label, name in names.items():
        if name in shared:
            names[label] = f"{name} ({short_hash(label)[:6]})"  # the same hash as in its folder's name
    return names


def _refer(role: str, result: EvalResult, references: dict[str, EvalResult], where: Path | None) -> None:
    """Store a reference result; all runs must share it."""
    known = references.setdefault(role, result)
    rows = [{split: rows_of_set.ids for split, rows_of_set in one.rows.items()} for one in (known, result)]
    # Equal weights on other rows give other numbers, so that differences to them would mean nothing.
    if known.fingerprint != result.fingerprint or rows[0] != rows[1]:
        raise ValueError(f"{where} compares with another {role} model, or on other rows; make separate reports.")


def _run(folder: Path, shown: Mapping[str, str] = MappingProxyType({})) -> RunRecord:
    """Read the folder of a run; a study names its results LABEL-sSEED, and a model evaluated by path has its folder's name."""
    # A report does not read weights, and hashing them takes a second per gigabyte.
    check_as_written(folder, weights=False)
    result = read_result(folder / EVAL_NAME)
    run = seed = trace = None
    if (folder / RECORD_NAME).is_file():
        run = read_run(folder / RECORD_NAME)
        seed = int(run["seed"])
    if (folder / TRACE_NAME).is_file():
        trace = read_trace(folder / TRACE_NAME)
    label = printable(result.model)
    if Path(result.model).name == folder.name:
        label = folder.name
    label = label.removesuffix(f"-s{seed}")
    return RunRecord(shown.get(label) or public_text(label), seed, folder, result, run, trace)
