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
from atwu.request.thresholds import ThresholdResult, shipped_text
from jsonschema import validate

from atwu.cli.evidence import EvidenceCommand
from atwu.request import collect_evidence
from atwu.request.auto_settings import Choice
from atwu.request.evidence import (
    Attack,
    AttackMetric,
    Evidence,
    ForgetRow,
    LaterCheck,
    LedgerSummary,
    RequestSummary,
    ThresholdReport,
    TrainingSummary,
    VerdictSummary,
    Weights,
    render_evidence_page,
    summary_text,
    threshold_outcome,
)
from atwu.request.ledger import CAME_BACK, STILL_GONE, BaselineScore, CurrentScore, RegressionCheck
from atwu.request.request_folder import RowsUsed
from tests.request.declared import DECLARED, read_evidence

NASTY = "</script><img src=http://localhost:9/x onerror=alert(1)>"


def checked(
    name: str, value: float | None, limit: float, *, passed: bool | None = True, sure: bool = True
) -> ThresholdResult:
    ends = (None, None) if value is None else (0.5 * value, 1.5 * value)
    missing = "the rows are no longer there" if passed is None else ""
    return ThresholdResult(name, f"at most {limit:g}", limit, value, *ends, 12, 0.9, value, passed, sure, missing)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    results = (
        checked("forget.key_token_probability", 0.009, 0.031),
        checked("other_prompts.key_token_recall", 0.083, 0.1, sure=False),
        checked("forget.extraction_strength@relearn_retain", 0.25, 0.1, passed=False),
        checked("forget.leak_per_sample", None, 10, passed=None),
    )
    lines = (CurrentScore(BaselineScore("forget", "key_token_probability", 0.95, 0.01, 0.05), 0.02, 0.01, 0.03),)
    return Evidence(
        created_at="2026-11-22T17:03:00+00:00",
        request=RequestSummary(
            about=f"Mail of 20 November, J. Doe: delete what it knows of me. {NASTY}",
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
        verdict=VerdictSummary("forgotten", "Forget rows are no better known than holdout rows."),
        thresholds=ThresholdReport(
            "mine.yaml", "12" * 32, shipped_text(), True, "Set beforehand: written down at noon.", results
        ),
        attacks=(
            Attack(
                "paraphrases",
                "the same questions with other prompts",
                True,
                "",
                (AttackMetric("other_prompts.key_token_recall", "share", 0.083, 0, 0.2, 24),),
            ),
            Attack("membership", "whether rows can be distinguished from holdout rows", False, "needs holdout rows"),
        ),
        model_before=Weights("smollm2", "34" * 16, {}),
        model_after=Weights("unlearned", "56" * 16, {"model.safetensors": "78" * 32}),
        ledger=LedgerSummary(2, 3, tuple(LaterCheck(on, RegressionCheck(on - 1, STILL_GONE, lines)) for on in (2, 3))),
        warnings=("forget: rows name no subject.",),
        limitations=("It is no proof of deletion.",),
        versions={"atwu": "0.1.0", "torch": "2.9"},
        command="atwu unlearn --model smollm2 --forget mine.jsonl --output unlearned",
    )


def test_the_first_paragraph_states_the_result(evidence: Evidence) -> None:
    outcomes = [threshold_outcome(each) for each in evidence.thresholds.results]
    assert outcomes == ["met", "met, not significant", "not met", "not measured"]
    assert summary_text(evidence) == (
        "2 of 4 thresholds are met (1 not significantly: the 95 % interval includes the limit); 1 is not met; "
        "1 was not measured. Verdict of the run: forgotten."
    )
    assert not evidence.good
    bar = dataclasses.replace(evidence.thresholds, results=evidence.thresholds.results[:1], set_before_training=False)
    late = dataclasses.replace(evidence, thresholds=bar)
    assert late.good
    assert summary_text(late).startswith(
        "The one threshold is met. They are not the thresholds that were set before training."
    )


def test_a_request_that_came_back_is_marked_as_bad(evidence: Evidence) -> None:
    assert evidence.ledger is not None
    bar = dataclasses.replace(evidence.thresholds, results=evidence.thresholds.results[:1])
    line = evidence.ledger.checks[0].check.scores[0]
    for number, said in (
        (1, "This request brought back the forget rows of request 1."),
        (2, "A later request brought these forget rows back."),
    ):
        back = RegressionCheck(number, CAME_BACK, (dataclasses.replace(line, value=0.48),))
        ledger = dataclasses.replace(evidence.ledger, checks=(LaterCheck(number + 1, back),))
        changed = dataclasses.replace(evidence, thresholds=bar, ledger=ledger)
        assert not changed.good
        assert summary_text(changed).endswith(said)
    assert back.summary == "came back, up to 50 % of what was removed"  # (.48 - .01) / (.95 - .01)


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
    hashes = ("12" * 32, "34" * 16, "78" * 32, "9a" * 32)
    for text in (*hashes, "15 steps, 209 s", "needs holdout rows", "no proof of deletion"):
        assert text in page
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
