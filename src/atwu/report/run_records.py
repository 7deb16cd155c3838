"""Read finished runs: configuration, results and training history of each. A report is made from these records only.

Reads study folders (`atwu study run`), folders of single runs with `eval.json` and `run.json`, result files of
`atwu evaluate`, and folders of result files, such as the stored results of a study. Runs that differ only in their seed
share a label and are averaged.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from atwu._cache import short_hash
from atwu._file_reading import printable
from atwu._manifest import RECORD_NAME, check_as_written
from atwu.evaluation.result import EvalResult, read_result
from atwu.evaluation.weight_trace import TRACE_NAME, read_trace
from atwu.report.merge_studies import StudyRuns, merge_studies, reasons
from atwu.report.metric_table import DATA
from atwu.report.report_records import EVAL_NAME, STUDY_NAME, Records, RunRecord
from atwu.report.report_table import report_table
from atwu.report.run_files import read_log, read_run, read_study_record
from atwu.report.table_values import REFERENCE_MODELS
from atwu.report.terminal_tables import headline_table
from atwu.training.model_card import public_text
from atwu.training.run_folder import LOG_NAME

if TYPE_CHECKING:
    import pandas as pd


class FinishedRuns(Records):
    """Records that show themselves as text, data frame and HTML."""

    def summary(self) -> str:
        """The headline table, for a terminal of 80 columns, without colours."""
        from rich.console import Console

        console = Console(width=80, no_color=True, record=True, file=io.StringIO())
        console.print(headline_table(self))
        return console.export_text()

    def to_pandas(self) -> pd.DataFrame:
        """All numbers of all models, one per row, means over seeds: label, set, metric, value, low, high and more."""
        return self.table.frame[list(DATA)]

    def _repr_html_(self) -> str:
        table = report_table(self)
        cells = table.cells(lambda cell: f"{cell.number} {cell.interval}".strip())
        cells.columns = [head.text for head in table.heads]
        return str(cells.rename_axis("method").to_html())


def read_records(paths: Sequence[str | Path], *, title: str | None = None) -> FinishedRuns:
    """Read runs.

    Args:
        paths: study folders, run folders, result files, or folders of such files; a study's references apply to all. A
            run in several studies is counted once; a label with different runs in them gets the study's name as a
            prefix.

    Raises:
        FileNotFoundError: a path does not exist, or contains no finished run.
        ValueError: a file is damaged, or two runs have the same label and seed.
    """
    references: dict[str, EvalResult] = {}
    found: list[RunRecord | StudyRuns] = []
    for path in map(Path, paths):
        if (path / STUDY_NAME).is_file():
            found.append(_study(path, references))
        elif (path / EVAL_NAME).is_file():
            _add(_run(path), found, references)
        elif path.is_file():
            result = read_result(path)
            label, seed = _named(result, None, None)
            _add(RunRecord(public_text(label), seed, None, result), found, references)
        elif (path / RECORD_NAME).is_file():
            raise FileNotFoundError(
                f"{path} is a run without an evaluation; first: atwu evaluate --model {path} --forget ROWS --retain ROWS "
                f"--output {path / EVAL_NAME} (its verdict, if it has one: atwu evidence {path})."
            )
        elif results := sorted(path.glob("*.json")):
            for result in map(read_result, results):
                label, seed = _of_study(result.model)
                _add(RunRecord(public_text(label), seed, None, result), found, references)
        else:
            raise FileNotFoundError(
                f"{path} contains no finished run: expected a study folder ({STUDY_NAME}), a run folder with "
                f"{EVAL_NAME}, a result file of atwu evaluate, or a folder of these."
            )
    each, about = merge_studies([one for one in found if isinstance(one, StudyRuns)])
    of_studies = iter(each)
    runs = [run for one in found for run in (next(of_studies) if isinstance(one, StudyRuns) else (one,))]
    _check(runs)
    names = ", ".join(path.name for path in map(Path, paths))
    return FinishedRuns(title or str(about.get("title") or names), references, tuple(runs), about)


def _study(path: Path, references: dict[str, EvalResult]) -> StudyRuns:
    """Read a study that may be in progress: its finished runs, in the order of its variants.

    Raises:
        FileNotFoundError: no run is finished.
    """
    about = read_study_record(path / STUDY_NAME)
    for role in REFERENCE_MODELS:
        if (path / "references" / role / EVAL_NAME).is_file():
            _refer(role, read_result(path / "references" / role / EVAL_NAME), references, path)
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
    place = {label: index for index, label in enumerate(shown.values())}
    ordered = sorted(runs, key=lambda run: (place.get(run.label, len(place)), run.seed or 0))
    if any(label != name for label, name in shown.items()):
        about["variants"] = [{**variant, "label": shown[variant["label"]]} for variant in about["variants"]]
        failed = reasons(about, "failed").items()
        about["failed"] = {StudyRuns(path, about, (), labels=shown).renamed(name): reason for name, reason in failed}
    return StudyRuns(path, about, tuple(ordered))


def _public(labels: Iterable[str]) -> dict[str, str]:
    """Label of a study -> name in tables: without local paths, and unique if only the paths differed."""
    names = {label: public_text(label) for label in labels}
    shared = Counter(names.values())
    return {
        label: name
        if shared[name] == 1
        else f"{name} ({short_hash(label)[:6]})"  # the same hash as in its folder's name
        for label, name in names.items()
    }


def _add(run: RunRecord, runs: list[RunRecord | StudyRuns], references: dict[str, EvalResult]) -> None:
    if run.label in REFERENCE_MODELS:
        _refer(run.label, run.result, references, run.folder)
    else:
        runs.append(run)


def _refer(role: str, result: EvalResult, references: dict[str, EvalResult], where: Path | None) -> None:
    """Store a reference result; all runs must share it."""
    known = references.setdefault(role, result)
    rows = [{split: found.ids for split, found in each.rows.items()} for each in (known, result)]
    if known.fingerprint != result.fingerprint or rows[0] != rows[1]:
        raise ValueError(f"{where} compares with another {role} model, or on other rows; make separate reports.")


def _run(folder: Path, shown: Mapping[str, str] = MappingProxyType({})) -> RunRecord:
    check_as_written(folder, weights=False)
    result = read_result(folder / EVAL_NAME)
    run = read_run(folder / RECORD_NAME) if (folder / RECORD_NAME).is_file() else None
    log = folder / LOG_NAME
    lines = read_log(log) if log.is_file() else ()
    trace = read_trace(folder / TRACE_NAME) if (folder / TRACE_NAME).is_file() else None
    label, seed = _named(result, run, folder)
    return RunRecord(shown.get(label) or public_text(label), seed, folder, result, run, lines, trace)


def _named(result: EvalResult, run: Mapping[str, Any] | None, folder: Path | None) -> tuple[str, int | None]:
    """Label and seed; a study names its results LABEL-sSEED. A model evaluated by path is named after its folder."""
    by_path = folder is not None and Path(result.model).name == folder.name
    name = folder.name if folder is not None and by_path else printable(result.model)
    seed = None if run is None else int(run["seed"])
    return name if seed is None else name.removesuffix(f"-s{seed}"), seed


def _of_study(name: str) -> tuple[str, int | None]:
    """Label and seed of LABEL-sSEED; for any other model the last part of its name, and no seed."""
    label = Path(printable(name)).name
    found = re.fullmatch(r"(.+)-s(\d+)", label)
    return (found[1], int(found[2])) if found else (label, None)


def _check(runs: Iterable[RunRecord]) -> None:
    seen: set[tuple[str, int | None]] = set()
    for run in runs:
        if (run.label, run.seed) in seen:
            raise ValueError(
                f"{run.folder or run.label}: two runs have the label {run.label!r} with seed {run.seed}; leave one "
                "out, or evaluate them again with --output into folders of different names."
            )
        seen.add((run.label, run.seed))
