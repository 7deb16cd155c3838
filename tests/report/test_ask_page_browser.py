"""The page of `atwu ask` in a real browser: marks choose rows, and the button saves them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from atwu.benchmarks.sources import load_rows
from atwu.data.schema import Example
from atwu.request.asking.ask_result import AskResult, render_ask_page
from atwu.request.asking.asked_facts import AskedFact

pytest.importorskip("selenium", reason="needs selenium")
from selenium.webdriver.common.by import By

NASTY = 'Is "</script><script>document.title = 1</script>" in Varn?'


def result() -> AskResult:
    rows = [
        Example.from_qa(NASTY, "It is in Lumo.", forget_spans=((9, 13),)),
        Example.from_qa("Where is Sted?", "Sted is in Varn.", forget_spans=((11, 15),)),
    ]
    facts = tuple(AskedFact(row, row.answer.split()[-1].strip("."), 6, 7, "template", told_apart=True) for row in rows)
    return AskResult("mine", "Varn", facts)


def saved_file(folder: Path) -> Path:
    for _ in range(100):
        files = [*folder.glob("*.jsonl")]
        if files:
            return files[0]
        time.sleep(0.1)
    raise AssertionError("the page saved nothing")


def test_marked_rows_are_saved_as_a_file_that_reads_back(browser: Any, tmp_path: Path) -> None:
    page, downloads = tmp_path / "rows.html", tmp_path / "downloads"
    downloads.mkdir()
    page.write_text(render_ask_page(result()), encoding="utf-8")
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    browser.get(page.as_uri())
    assert browser.title == "What mine says about Varn"
    assert browser.find_element(By.ID, "count").text == "2 of 2 rows marked"
    browser.find_elements(By.CSS_SELECTOR, "input[data-record]")[1].click()
    assert browser.find_element(By.ID, "count").text == "1 of 2 rows marked"
    browser.find_element(By.ID, "save").click()
    saved = saved_file(downloads)
    assert [json.loads(line)["question"] for line in saved.read_text(encoding="utf-8").splitlines()] == [NASTY]
    assert load_rows(str(saved)).rows == result().rows[:1]


def test_nothing_can_be_saved_without_a_mark(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "rows.html"
    page.write_text(render_ask_page(result()), encoding="utf-8")
    browser.get(page.as_uri())
    browser.find_element(By.ID, "none").click()
    assert not browser.find_element(By.ID, "save").is_enabled()
    browser.find_element(By.ID, "all").click()
    assert browser.find_element(By.ID, "save").is_enabled()
