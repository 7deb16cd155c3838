"""The evidence page: its text, no rows unless requested, and its layout in a browser."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from atwu.cli.export import EvidenceCommand
from atwu.evaluation.facts.fact_table import FactAnswer, FactCount
from atwu.request import collect_evidence
from atwu.request.auto_settings import Choice
from atwu.request.evidence import (
    Evidence,
    ForgetRow,
    RequestSummary,
    TrainingSummary,
    VerdictSummary,
    Weights,
    render_evidence_page,
    summary_text,
)
from atwu.request.regression_check import CAME_BACK, STILL_GONE, Baseline, RegressionCheck
from atwu.request.request_folder import RowsUsed
from atwu.request.verdict import Criterion, StateCount
from tests.request.declared import DECLARED, read_evidence

NASTY = "</script><img src=http://localhost:9/x onerror=alert(1)>"


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    baseline = Baseline(FactCount(12, 12, 240, 180), FactCount(12, 1, 240, 2), forgotten=True)
    check = RegressionCheck(1, STILL_GONE, baseline, FactCount(12, 1, 240, 3))
    leak = FactAnswer("forget", 4, "blank", "as saved", f"J. Doe lives in ____. {NASTY}", "Kelbury", True, False, False)
    return Evidence(
        created_at="2026-11-22T17:03:00+00:00",
        request=RequestSummary(
            request_note=f"Mail of 20 November, J. Doe: delete what it knows of me. {NASTY}",
            prepared_at="2026-11-22T15:20:00+00:00",
            forget=RowsUsed("mine.jsonl", 12, "ab" * 32, tuple(f"{place:016x}" for place in range(12))),
            rows_measured=12,
            retain=RowsUsed("auto", 64, "cd" * 32),
            holdout=RowsUsed("people:small:holdout", 80, "ef" * 32),
        ),
        training=TrainingSummary(
            method="atwu",
            components={"forget_loss": "satga", "weighting": "learned", "retain_loss": "kl"},
            settings=(Choice("learning_rate", "5e-05", "where the search starts"), Choice("seed", "42", "")),
            started_at="2026-11-22T15:22:00+00:00",
            steps=15,
            kept_step=15,
            rollbacks=0,
            seconds=209.0,
            peak_memory_bytes=4_700_000_000,
        ),
        verdict=VerdictSummary(
            "forgotten",
            "2 of 240 answers still state their fact (180 before).",
            "Forgotten means: the rule.",
            (
                Criterion("answers that state a fact", 0.75, 0.0083, 0.02, True, "2 of 240 answers still do."),
                Criterion("refusals of general questions", 0.97, 0.98, None, True, "Of 60 questions 59 are refused."),
                Criterion("retain loss increase", None, None, 0.15, False, "It is not a number any more."),
            ),
        ),
        states=(
            StateCount("as saved", FactCount(12, 12, 240, 180), FactCount(12, 1, 240, 2), FactCount(40, 2, 80, 2)),
            StateCount("4 bits", FactCount(12, 11, 48, 40), FactCount(12, 1, 48, 1)),
            StateCount(
                "after 10 steps on half of them",
                FactCount(6, 6, 24, 20),
                FactCount(6, 4, 24, 9),
                FactCount(20, 3, 60, 4),
            ),
        ),
        leaks=(leak,),
        model_before=Weights("smollm2", "34" * 16, {}),
        model_after=Weights("unlearned", "56" * 16, {"model.safetensors": "78" * 32}),
        earlier=(check,),
        limitations=("It is no proof of deletion.",),
        versions={"atwu": "0.1.0", "torch": "2.9"},
        command="atwu unlearn --model smollm2 --forget mine.jsonl --output unlearned",
    )


def test_the_first_paragraph_states_the_result(evidence: Evidence) -> None:
    assert summary_text(evidence) == (
        "Verdict of the run: forgotten. As saved, the model states 1 of 12 facts in 240 answers. Most come out after 10 steps "
        "on half of them: 4 of 6 (3 of 20 facts that it never knew)."
    )
    assert evidence.good
    other = dataclasses.replace(evidence.verdict, outcome="partly forgotten")
    assert not dataclasses.replace(evidence, verdict=other).good


def test_an_earlier_request_that_came_back_is_marked_as_bad(evidence: Evidence) -> None:
    back = dataclasses.replace(evidence.earlier[0], outcome=CAME_BACK)
    changed = dataclasses.replace(evidence, earlier=(back,))
    assert not changed.good
    assert summary_text(changed).endswith("This request brought back the facts of request 1.")


def test_the_json_satisfies_its_schema_and_is_read_back(evidence: Evidence, tmp_path: Path) -> None:
    import json

    evidence.write(tmp_path / "evidence.json", tmp_path / "evidence.html")
    assert read_evidence(tmp_path / "evidence.json") == evidence
    validate(json.loads((tmp_path / "evidence.json").read_text()), DECLARED.json_schema(mode="serialization"))
    damaged = json.loads((tmp_path / "evidence.json").read_text()) | {"passed": True}
    (tmp_path / "evidence.json").write_text(json.dumps(damaged))
    with pytest.raises(ValueError, match=r"\bpassed\b"):
        read_evidence(tmp_path / "evidence.json")


def test_the_page_is_self_contained_and_shows_rows_only_if_included(evidence: Evidence) -> None:
    page = render_evidence_page(evidence, data="evidence.json", sha256="9a" * 32)
    assert NASTY not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    hashes = ("34" * 16, "78" * 32, "9a" * 32)
    for text in (
        *hashes,
        "15 steps, 209 s",
        "after 10 steps on half of them",
        "4 of 6",
        "3 of 20",
        "no proof of deletion",
    ):
        assert text in page
    assert "J. Doe lives in ____." in page  # every answer that states a fact
    assert "Kelbury" in page
    assert page.count("no value could miss it") == 1
    assert page.count(">not met<") == 1
    shown = dataclasses.replace(
        evidence, request=dataclasses.replace(evidence.request, forget_rows=(ForgetRow("Who am I?", "J. Doe."),))
    )
    assert "J. Doe." in render_evidence_page(shown, data="evidence.json", sha256="9a" * 32)
    assert render_evidence_page(evidence, data="evidence.json", sha256="9a" * 32) == page


def test_evidence_killed_between_its_two_files_goes_on(
    evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_evidence, "gather", lambda *_, **__: evidence)
    page, data = (tmp_path / f"evidence.{ending}" for ending in ("html", "json"))
    command = EvidenceCommand(run_folder="run", output=page)
    evidence.write(data, page)
    page.unlink()  # as if it was killed before
    command.run()
    assert page.exists()
    with pytest.raises(FileExistsError, match=r"evidence\.html exists"):
        command.run()
    page.unlink()
    data.write_text('{"schema": "of something else"}')
    with pytest.raises(FileExistsError, match=r"evidence\.json exists"):
        command.run()


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser(evidence: Evidence, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000"):
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    folder = tmp_path_factory.mktemp("evidence")
    evidence.write(folder / "evidence.json", folder / "evidence.html")
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.get((folder / "evidence.html").as_uri())
    yield driver
    driver.quit()


@pytest.mark.night
def test_the_page_loads_nothing_and_fits_a_phone_and_paper(browser: Any) -> None:
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    for width in (390, 768):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
        inside = "return [...document.querySelectorAll('.scroll')].every(s => s.scrollWidth <= s.clientWidth)"
        assert browser.execute_script(inside) or width > 640
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(browser.print_page()) > 20_000
