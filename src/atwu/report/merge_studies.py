"""Merge several studies into one report.

Shared runs are counted once, and a label with different runs is extended by the name of its study.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atwu.evaluation.result import EvalResult
    from atwu.report.report_records import RunRecord

NO_BUDGET = "not stated"


@dataclass(frozen=True, slots=True)
class StudyRuns:
    """The content of one study's folder."""

    folder: Path
    about: Mapping[str, Any]
    """`study.json`."""
    runs: tuple[RunRecord, ...]
    """Its finished runs."""
    name: str = ""
    """Name that distinguishes it from the other studies."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Label -> name in the table, for labels with different runs in other studies."""

    def renamed(self, name: str) -> str:
        """Return the name in the table of a label, or of a run LABEL-sSEED."""
        label = re.sub(r"-s\d+$", "", name)
        return self.labels[name] if name in self.labels else self.labels.get(label, label) + name[len(label) :]


def merge_studies(studies: Sequence[StudyRuns]) -> tuple[list[tuple[RunRecord, ...]], dict[str, Any]]:
    """Merge studies; a single one is returned unchanged.

    A label gets its study's name as a prefix if two studies have different results for one of its seeds.

    Returns:
        The runs of every study, under the labels of the table and without those of an earlier study; and one
        `study.json` for all.
    """
    if len(studies) < 2:
        return [study.runs for study in studies], dict(studies[0].about) if studies else {}
    taken: set[tuple[str, int | None]] = set()
    runs = []
    studies = _told_apart(studies)
    for study in studies:
        renamed = [replace(run, label=study.labels.get(run.label, run.label)) for run in study.runs]
        runs.append(tuple(run for run in renamed if (run.label, run.seed) not in taken))
        taken |= {(run.label, run.seed) for run in renamed}
    there = {name for label, seed in taken for name in (label, f"{label}-s{seed}")}
    return runs, _about(studies, there)


def reasons(about: Mapping[str, Any], key: str) -> dict[str, str]:
    """Why runs or methods are missing, by name: `failed` or `left_out` of a `study.json`."""
    told = about.get(key) or ()
    if isinstance(told, Mapping):
        return {str(name): str(reason) for name, reason in told.items()}
    parted = (str(sentence).partition(" is left out: ") for sentence in told)  # a list of sentences
    return {name: reason for name, _, reason in parted}


def _names(studies: Sequence[StudyRuns]) -> list[str]:
    """Unique names of the studies: their names, else those of their folders, else these with a number."""
    folders = [study.folder.resolve().name for study in studies]
    names = [str(study.about.get("name") or folder) for study, folder in zip(studies, folders, strict=True)]
    numbered = [f"{folder} {number}" for number, folder in enumerate(folders, 1)]
    return next((found for found in (names, folders) if len(set(found)) == len(found)), numbered)


def _told_apart(studies: Sequence[StudyRuns]) -> list[StudyRuns]:
    """Return the studies with their unique names, and the names of their labels."""
    names = _names(studies)
    found: dict[tuple[str, int | None], EvalResult] = {}
    clashing = {
        run.label
        for study in studies
        for run in study.runs
        if found.setdefault((run.label, run.seed), run.result) != run.result
    }
    return [
        replace(
            study, name=name, labels={label: f"{names[_home(studies, place, label)]}: {label}" for label in clashing}
        )
        for place, (name, study) in enumerate(zip(names, studies, strict=True))
    ]


def _home(studies: Sequence[StudyRuns], place: int, label: str) -> int:
    """Return the index of the first study that has all of a study's runs of a label, so that equal rows are shown
    once."""
    results = [{run.seed: run.result for run in study.runs if run.label == label} for study in studies]
    if not results[place]:
        return place
    return next(other for other, known in enumerate(results) if results[place].items() <= known.items())


def _about(studies: Sequence[StudyRuns], there: Collection[str]) -> dict[str, Any]:
    """Return the first study's record, without statements that hold for one study only."""
    variants: dict[str, Mapping[str, Any]] = {}
    for study in studies:
        for variant in study.about.get("variants", []):
            label = study.labels.get(variant["label"], variant["label"])
            variants.setdefault(label, {**variant, "label": label})
    titles = [str(study.about.get("title") or study.name) for study in studies]
    budgets = [str(study.about.get("budget") or NO_BUDGET).rstrip(".") for study in studies]
    texts = {
        "title": "; ".join(dict.fromkeys(titles)),
        "about": " ".join(_texts(studies, "about")),
        "command": "\n".join(_texts(studies, "command")),
        "budget": budgets[0] if len(set(budgets)) == 1 else _each(studies, budgets),
        "progress": _each(studies, [str(study.about.get("progress") or "") for study in studies]),
    }
    return {
        **studies[0].about,
        **{key: text for key, text in texts.items() if text},
        "variants": list(variants.values()),
        "runs": list(dict.fromkeys(study.renamed(name) for study in studies for name in study.about["runs"])),
        **{key: _reasons(studies, key, there) for key in ("failed", "left_out")},
    }


def _reasons(studies: Sequence[StudyRuns], key: str, there: Collection[str]) -> dict[str, str]:
    """Merge reasons of missing runs; with the study's name if another study has the run, or gives another reason."""
    found: dict[str, str] = {}
    for study in studies:
        for missing, reason in reasons(study.about, key).items():
            name = study.renamed(missing)
            if name in there or found.get(name, reason) != reason:
                name = f"{study.name}: {missing}"
            found[name] = reason
    return found


def _texts(studies: Sequence[StudyRuns], key: str) -> list[str]:
    """Distinct texts of the studies under a key."""
    return [text for text in dict.fromkeys(str(study.about.get(key) or "").strip() for study in studies) if text]


def _each(studies: Sequence[StudyRuns], texts: Sequence[str]) -> str:
    """Combine the texts of all studies, each with the study's name."""
    return "; ".join(f"{study.name}: {text}" for study, text in zip(studies, texts, strict=True) if text)
