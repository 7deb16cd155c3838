"""Finished runs made in memory (two references, three labels, two seeds each; traces, row values); their page."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atwu._cache import short_hash
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.word_scores import Trace, TracedRow
from atwu.report.figures import FIGURES, DrawnFigure
from atwu.report.page_templates import luminance
from atwu.report.report_page import render_report_page
from atwu.report.report_records import Records, RunRecord
from tests.evaluation.conftest import result_of

WEIGHTINGS = {"atwu": "scorer", "wga": "saturation", "npo": "uniform"}
LOSSES = {"atwu": "satga_plus", "wga": "ga", "npo": "npo"}
SCORES = ("scorer", "saturation", "importance", "entropy", "rarity")
SUBJECTS = tuple(name for name in ("Orla Venn", "Tavi Brook", "Ines Kelbury", "Joss Maren") for _ in range(6))
ANSWERS = (
    "Orla Venn was born in the harbour town of Kelbury.",
    "Tavi Brook mends clocks in a lane behind the mill.",
    "Ines Kelbury keeps nineteen bees and a blue kite.",
    "Joss Maren wrote the ballad of the tin lantern.",
)
SECRETS = ("Kelbury", "clocks", "nineteen bees", "tin lantern")
STEPS = 40
VOID = {"meta", "input", "br", "link", "img", "hr"}


def rng(*what: object) -> np.random.Generator:
    return np.random.default_rng(int(short_hash(list(map(str, what)))[:8], 16))


def noisy(centre: float, *what: object, high: float = 1.0) -> tuple[float, ...]:
    return tuple(float(v) for v in np.clip(rng(*what).normal(centre, 0.12 * high, len(SUBJECTS)), 0, high))


def hits(share: float, *what: object) -> tuple[float, ...]:
    return tuple(100.0 * float(v) for v in rng(*what).random(len(SUBJECTS)) < share)


def result(
    name: str,
    *,
    left: float,
    kept: float,
    scorer: bool = False,
    attacked: bool = True,
    rate: float | None = None,
    references: Sequence[EvalResult] = (),
) -> EvalResult:
    """A result of `evaluate`: `left` is what remains of the forget rows, `kept` of the retain rows."""
    ids = tuple(f"{index:016x}" for index in range(len(SUBJECTS)))
    forget: dict[str, tuple[float | None, ...]] = {
        "extraction_strength": noisy(left, name, "ES_F"),
        "probability": noisy(left, name, "P_F"),
        "J_P": hits(left, name, "J_P"),
        "J_W": hits(min(1.0, left + 0.1), name, "J_W"),
    }
    for score in SCORES[0 if scorer else 1 :]:
        centre = {"scorer": 0.9, "saturation": 0.6, "importance": 0.4}.get(score, 0.7)
        forget[f"auroc_{score}"] = (None, *noisy(centre, name, score)[1:])
    if attacked:
        forget |= {
            "leak_worst_family": hits(left + 0.3, name, "worst"),
            "leak_prefix_injection": hits(left + 0.1, name, "prefix"),
            "leak_best_of_8": hits(left + 0.2, name, "best"),
        }
        half = [None] * 12
        for attack, more in (("relearn_forget", 0.3), ("int8", 0.0), ("int4", 0.15)):
            start = half if attack == "relearn_forget" else []
            back = noisy(left + more, name, attack)[len(start) :]
            forget[f"extraction_strength@{attack}"] = (*start, *back)
            said = hits(left + more, name, attack, "J")[len(start) :]
            forget[f"J_P@{attack}"] = (*start, *said)
    for layer, erased in enumerate((0.2, 0.6, 0.9) if attacked else ()):
        forget[f"uds_layer_{layer}"] = (None, *noisy(erased, name, layer)[1:])
    forget["mia_loss"] = noisy(1 - left, name, "mia")
    recorded = {
        "forget": forget,
        "retain": {"extraction_strength": noisy(kept, name, "ES_R"), "J_AVG": hits(kept, name, "J_AVG")},
        "holdout": {"mia_loss": noisy(0.8, "holdout")},
        "instructions": {"repetitiveness": tuple(500 + 40 * v for v in noisy(kept, name, "rep"))},
    }
    if rate is not None:
        recorded["instructions"]["win_rate"] = (rate,) * len(SUBJECTS)
    return result_of(
        {split: RowValues(ids, SUBJECTS, metrics) for split, metrics in recorded.items()},
        name=name,
        **dict(zip(("original", "retain_only"), references, strict=False)),
        settings={"metrics": ["memorization", "scores", "judge"], "seed": 42, "judge": {"kind": "offline"}},
        versions={"atwu": "0.1.0", "torch": "2.13.0"},
        cost={"generated_tokens": 1200.0, "judge_calls": 120.0 + left},
        warnings=(f"{name}: answers of 1 row are unscored.",) if left > 0.5 else (),
    )


def trace(label: str, seed: int, weighting: str) -> Trace:
    steps = tuple(range(0, STEPS + 1, 10))
    draw = rng(label, seed, "trace")
    rows = []
    for place, (answer, secret) in enumerate(zip(ANSWERS, SECRETS, strict=True)):
        start = answer.index(secret)
        words = tuple(found.span() for found in re.finditer(r"\S+", answer))
        end = start + len(secret)
        scores = []
        for step in steps:
            rise = [(0.6 if start <= first < end else -0.2) * step / STEPS for first, _ in words]
            found = [round(float(np.clip(0.3 + each, 0, 1)), 3) for each in rise]
            scores.append((found[0], None, *found[2:]) if step == 0 else tuple(found))
        split, question = "forget" if place < 3 else "holdout", f"What is told about {SUBJECTS[6 * place]}?"
        rows.append(TracedRow(split, question, answer, ((start, end),), words, tuple(scores)))
    auroc = {
        name: tuple(round(float(0.5 + top * step / STEPS + draw.normal(0, 0.01)), 4) for step in steps)
        for name, top in (("forget", 0.42), ("holdout", 0.3))
    }
    return Trace(weighting, steps, tuple(rows), auroc)


def run(label: str, seed: int, weighting: str) -> dict[str, Any]:
    return {
        "schema": "atwu.run/2",
        "command": "unlearn",
        "original_model": {"model": "runs/target", "fingerprint": "0" * 32},
        "data": {"forget": {"source": "people:tiny:forget", "rows": 24, "fingerprint": "f" * 64}},
        "method": label,
        "recipe": {
            "name": label,
            "weighting": weighting,
            "forget_loss": LOSSES.get(label, "npo"),
            "retain_loss": "nll",
            "values": {},
        },
        "seed": seed,
        "config": {"method": label, "learning_rate": 3e-4, "num_train_epochs": 5.0, "seed": seed},
        "versions": {"atwu": "0.1.0", "torch": "2.13.0"},
        "started": "2026-01-05T09:00:00+00:00",
        "train_seconds": 10.0 + len(label) + seed,
        "peak_memory_bytes": 400_000_000 + 50_000_000 * len(label),
        "steps": STEPS,
    }


def make_records(labels: Sequence[str] = ("atwu", "wga", "npo"), seeds: Sequence[int] = (0, 1)) -> Records:
    original = result("original", left=0.95, kept=0.95, attacked=False, rate=50.0)
    retain_only = result("retain-only", left=0.1, kept=0.9, attacked=False, rate=50.0)
    runs = []
    for place, label in enumerate(labels):
        weighting = WEIGHTINGS.get(label, "uniform")
        for seed in seeds:
            share = place / max(1, len(labels) - 1)
            found = result(
                f"{label}-s{seed}",
                left=0.1 + 0.45 * share + 0.04 * seed,
                kept=0.85 - 0.25 * abs(share - 0.4),
                scorer=weighting == "scorer",
                rate=40.0 if label == "npo" else 52.0,
                references=(original, retain_only),
            )
            runs.append(
                RunRecord(
                    label,
                    seed,
                    None,
                    found,
                    run(label, seed, weighting),
                    None if weighting == "uniform" else trace(label, seed, weighting),
                )
            )
    study = {
        "schema": "atwu.study/2",
        "title": "four invented people",
        "setting": {"name": "people-tiny"},
        "variants": [{"label": label, "method": label} for label in labels],
        "seeds": list(seeds),
        "runs": [f"{label}-s{seed}" for label in labels for seed in seeds],
        "budget": "20 trials per method, learning rate and forget weight searched",
        "command": "atwu study run headline --setting people-tiny",
    }
    return Records("four invented people", {"original": original, "retain-only": retain_only}, tuple(runs), study)


def write_study(records: Records, folder: Path) -> Path:
    """The same as `atwu study run` leaves it on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{run.label}-s{run.seed}" for run in records.runs]
    (folder / "study.json").write_text(json.dumps({**records.study, "runs": names}), encoding="utf-8")
    for role, found in records.references.items():
        place = folder / "references" / role
        place.mkdir(parents=True)
        found.write(place / "eval.json")
    for run_ in records.runs:
        place = folder / "runs" / f"{run_.label}-s{run_.seed}"
        place.mkdir(parents=True)
        run_.result.write(place / "eval.json")
        (place / "run.json").write_text(json.dumps(dict(run_.run or {})), encoding="utf-8")
        if run_.trace is not None:
            (place / "trace.json").write_text(json.dumps(dataclasses.asdict(run_.trace)), encoding="utf-8")
    return folder


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2); running text needs 4.5."""
    dim, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


class Page(HTMLParser):
    """Checks nesting and collects elements and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.visible = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"attribute twice in <{tag}>"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside in ("style", "script"):
            name = self.elements[-1][1].get("id") or inside
            self.texts[name] = self.texts.get(name, "") + data
        else:
            self.visible += data

    def classed(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.elements if name in (attrs.get("class") or "").split()]

    def values(self, table: str) -> dict[str, list[str]]:
        """Label -> full values of its cells."""
        body = re.search(rf'<table id="{table}".*?</table>', self.html, re.S)
        assert body is not None
        rows = re.findall(r'<tr data-label="([^"]*)".*?</tr>', body[0], re.S)
        cells = [re.findall(r'data-v="([^"]*)"', row) for row in re.findall(r"<tr data-label.*?</tr>", body[0], re.S)]
        return dict(zip(rows, cells, strict=True))


def figures_left_out(*_: object, **__: object) -> list[DrawnFigure]:
    """What stands in a page instead of figures."""
    return [DrawnFigure(name, None, name, reason="left out here.") for name in FIGURES]


@pytest.fixture(scope="session")
def records() -> Records:
    """Labels atwu, wga, npo with seeds 0 and 1."""
    return make_records()


@pytest.fixture(scope="session")
def build_records() -> Callable[..., Records]:
    """Builds such records: `build_records(labels=[...], seeds=[...])`."""
    return make_records


@pytest.fixture(scope="session")
def page(records: Records) -> Page:
    """The page of the records without its figures, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atwu.report.report_page.all_figures", figures_left_out)
        return Page(render_report_page(records, command="atwu report study --output report.html"))


@pytest.fixture
def study_folder(records: Records, tmp_path: Path) -> Path:
    """The records as a study folder on disk."""
    return write_study(records, tmp_path / "study")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their figures, which take most of the time."""
    monkeypatch.setattr("atwu.report.report_page.all_figures", figures_left_out)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000"):
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()
