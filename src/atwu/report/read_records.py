"""Read folders of finished runs into `Records` (`report_records.py`), the only input of a report.

Reads study folders (`atwu study run`), folders of single runs with `eval.json` and `run.json`, result files of
`atwu evaluate`, and folders of result files, such as the stored results of a study. Runs that differ only in their seed
share a label and are averaged. Runs shared by studies are counted once; a label with different runs in them gets the
study's name as a prefix. Record files are validated against declared types; unknown keys are allowed, since other versions
may write more.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from atwu._cache import short_hash
from atwu._file_reading import printable, read_object, type_adapter, validated
from atwu._manifest import RECORD_NAME, check_as_written
from atwu.evaluation.result import EvalResult, read_result
from atwu.evaluation.trace import TRACE_NAME, read_trace
from atwu.modeling.model_files import CONFIG
from atwu.report.metric_table import REFERENCE_MODELS
from atwu.report.report_records import EVAL_NAME, NO_BUDGET, STUDY_NAME, Records, RunRecord, reasons
from atwu.training.model_card import public_text

StepCount = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
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
    method: str | None = None
    recipe: _Recipe | None = None
    config: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = {}
    data: Mapping[str, Mapping[str, Any]] = {}
    train_seconds: Seconds | None = None
    steps: StepCount | None = None
    peak_memory_bytes: StepCount | None = None


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
    failed: Mapping[str, str] | list[str] | None = None
    left_out: Mapping[str, str] | list[str] | None = None


@contextlib.contextmanager
def _with_remedy(remedy: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} {remedy}") from None


def read_run(path: Path, *, kind: type[_File] = _Run, remedy: str = "Restore the file.") -> dict[str, Any]:
    """Read `run.json`, or a file of another kind; a ValueError names the file, the invalid key, and the remedy."""
    with _with_remedy(remedy):
        value = read_object(path)
        validated(value, type_adapter(kind), what=str(path))
    return value


Part = tuple[str, dict[str, Any], list[RunRecord]]
"""Name and `study.json` of a study, which are empty for other runs, and the runs."""


def read_records(paths: str | Path | Sequence[str | Path], *, title: str | None = None) -> Records:
    """Read runs.

    Args:
        paths: study folders, run folders, result files, or folders of such files, or one of them; a study's references apply
            to all.

    Raises:
        FileNotFoundError: a path does not exist, or contains no finished run.
        ValueError: a file is damaged, or two runs have the same label and seed.
    """
    references: dict[str, EvalResult] = {}
    parts: list[Part] = []
    paths = [paths] if isinstance(paths, str | Path) else paths
    for path in map(Path, paths):
        name, about = "", dict[str, Any]()
        if (path / STUDY_NAME).is_file():
            name, about, runs = _study(path, references)
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
        elif results := sorted(path.glob("*.json")):
            runs = [_stored(read_result(file)) for file in results]
        else:
            raise FileNotFoundError(
                f"{path} {'contains no finished run' if path.is_dir() else 'not found'}: expected a study folder "
                f"({STUDY_NAME}), a run folder with {EVAL_NAME}, a result file of atwu evaluate, or a folder of result files."
            )
        for run in runs:
            if run.label in REFERENCE_MODELS:
                _refer(run.label, run.result, references, run.folder)
        parts.append((name, about, [run for run in runs if run.label not in REFERENCE_MODELS]))
    parts, about = _merged(parts)
    every = tuple(run for *_, runs in parts for run in runs)
    for (label, seed), count in Counter((run.label, run.seed) for run in every).items():
        if count > 1:
            raise ValueError(
                f"two runs have the label {label!r} with seed {seed}; leave one out, or evaluate them again with --output "
                "into folders of different names."
            )
    names = ", ".join(path.name for path in map(Path, paths))
    return Records(title or str(about.get("title") or names), references, every, about)


def _study(path: Path, references: dict[str, EvalResult]) -> Part:
    """Read a study that may be in progress: its finished runs, in the order of its variants."""
    again = "Restore it, or run the same atwu study run again, which repeats no finished run and writes it anew."
    about = read_run(path / STUDY_NAME, kind=_Study, remedy=again)
    for role in REFERENCE_MODELS:
        if (file := path / "references" / role / EVAL_NAME).is_file():
            _refer(role, read_result(file), references, path)
    shown = _public(variant["label"] for variant in about.get("variants", []))
    # Folders that the study does not name belong to other settings or to removed seeds.
    named = [path / "runs" / name for name in about["runs"]]
    runs = [_run(folder, shown) for folder in named if (folder / EVAL_NAME).is_file()]
    if not runs:
        raise FileNotFoundError(
            f"{path} contains no finished run: none of the study's {len(named)} runs has an {EVAL_NAME}."
        )
    if len(runs) + len(reasons(about, "failed")) < len(named):
        about["progress"] = f"{len(runs)} of {len(named)} runs finished"
    if "variants" in about:
        about["variants"] = [{**variant, "label": shown[variant["label"]]} for variant in about["variants"]]
    if "failed" in about:
        about["failed"] = {public_text(name): reason for name, reason in reasons(about, "failed").items()}
    place = {label: index for index, label in enumerate(shown.values())}
    runs.sort(key=lambda run: (place.get(run.label, len(place)), run.seed or 0))
    return str(about.get("name") or path.resolve().name), about, runs


def _public(labels: Iterable[str]) -> dict[str, str]:
    """Label of a study -> name in tables: without local paths, and unique if only the paths differed."""
    names = {label: public_text(label) for label in labels}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    # The same hash as in its folder's name.
    return {label: f"{name} ({short_hash(label)[:6]})" if name in shared else name for label, name in names.items()}


def _refer(role: str, result: EvalResult, references: dict[str, EvalResult], where: Path | None) -> None:
    """Store a reference result; all runs must share it."""
    known = references.setdefault(role, result)
    rows = [{split: found.ids for split, found in each.rows.items()} for each in (known, result)]
    if known.fingerprint != result.fingerprint or rows[0] != rows[1]:
        raise ValueError(f"{where} compares with another {role} model, or on other rows; make separate reports.")


def _run(folder: Path, shown: Mapping[str, str] = MappingProxyType({})) -> RunRecord:
    """Read the folder of a run; a study names its results LABEL-sSEED, and a model evaluated by path has its folder's name."""
    check_as_written(folder, weights=False)
    result = read_result(folder / EVAL_NAME)
    run = read_run(folder / RECORD_NAME) if (folder / RECORD_NAME).is_file() else None
    trace = read_trace(folder / TRACE_NAME) if (folder / TRACE_NAME).is_file() else None
    label = folder.name if Path(result.model).name == folder.name else printable(result.model)
    seed = None if run is None else int(run["seed"])
    label = label.removesuffix(f"-s{seed}")
    return RunRecord(shown.get(label) or public_text(label), seed, folder, result, run, trace)


def _stored(result: EvalResult) -> RunRecord:
    """Return a stored result of a study, LABEL-sSEED; any other model is named by the last part of its name."""
    name = Path(printable(result.model)).name
    label, seed = found.groups() if (found := re.fullmatch(r"(.+)-s(\d+)", name)) else (name, None)
    return RunRecord(public_text(label), None if seed is None else int(seed), None, result)


def _merged(parts: list[Part]) -> tuple[list[Part], dict[str, Any]]:
    """Merge studies; returns the parts under the labels of the table, each run once, and one `study.json` for all."""
    studies = [about for _, about, _ in parts if about]
    if len(studies) < 2:
        return parts, studies[0] if studies else {}
    names = [name for name, *_ in parts if name]
    if len(set(names)) < len(names):
        names = [f"{name} {number}" for number, name in enumerate(names, 1)]
    first: dict[tuple[str, int | None], EvalResult] = {}
    every = [run for _, about, runs in parts if about for run in runs]
    clashing = {run.label for run in every if first.setdefault((run.label, run.seed), run.result) != run.result}
    taken: set[tuple[str, int | None]] = set()
    variants: dict[str, Mapping[str, Any]] = {}
    numbered = iter(names)
    merged: list[Part] = []
    for name, about, runs in parts:
        if about:
            name = next(numbered)
            labels = {run.label: f"{name}: {run.label}" if run.label in clashing else run.label for run in runs}
            runs = [replace(run, label=labels[run.label]) for run in runs]
            runs = [run for run in runs if (run.label, run.seed) not in taken]
            taken |= {(run.label, run.seed) for run in runs}
            for variant in about.get("variants", []):
                if label := labels.get(variant["label"]):
                    variants.setdefault(label, {**variant, "label": label})
        merged.append((name, about, runs))
    return merged, _about(names, studies) | {
        "variants": list(variants.values()),
        "runs": [f"{run.label}-s{run.seed}" for _, about, runs in merged if about for run in runs],
    }


def _about(names: Sequence[str], studies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first study's record, with the statements of all."""

    def texts(key: str) -> dict[str, str]:
        found = {name: str(about.get(key) or "").strip() for name, about in zip(names, studies, strict=True)}
        return {name: text for name, text in found.items() if text}

    def each(told: Mapping[str, str]) -> str:
        return "; ".join(f"{name}: {text}" for name, text in told.items())

    budgets = dict.fromkeys(names, NO_BUDGET) | {name: text.rstrip(".") for name, text in texts("budget").items()}
    said = {
        "title": "; ".join(dict.fromkeys(texts("title").values())),
        "about": " ".join(dict.fromkeys(texts("about").values())),
        "command": "\n".join(dict.fromkeys(texts("command").values())),
        "budget": each(budgets) if len(set(budgets.values())) > 1 else budgets[names[0]],
        "progress": each(texts("progress")),
    }
    missing = {
        key: {
            f"{name}: {what}": why
            for name, about in zip(names, studies, strict=True)
            for what, why in reasons(about, key).items()
        }
        for key in ("failed", "left_out")
    }
    return {**studies[0], **{key: text for key, text in said.items() if text}, **missing}
