"""The report page in a real browser: from disk, by mouse and keyboard, in both themes and on a phone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atwu.report.board import BoardStudy, StudyFacts, render_board
from atwu.report.report_page import render_report_page
from atwu.report.report_records import Records
from tests.report.conftest import figures_left_out

pytest.importorskip("selenium", reason="needs selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

NASTY = "</script><img src=http://localhost:9/x onerror=alert(1)>"


@pytest.fixture(scope="module")
def shown(build_records: Callable[..., Records]) -> Records:
    """Records of runs that were traced at different steps; one row contains hostile text."""
    made = build_records(seeds=[0])
    runs = []
    for run in made.runs:
        trace = run.trace
        if trace is not None:
            rows = (dataclasses.replace(trace.rows[0], question=NASTY), *trace.rows[1:])
            trace = dataclasses.replace(trace, rows=rows)
            if run.label == "wga":
                trace = dataclasses.replace(trace, steps=(0, 3, 12, 50, 80))
        runs.append(dataclasses.replace(run, trace=trace))
    return dataclasses.replace(made, runs=tuple(runs))


@pytest.fixture(scope="module")
def address(shown: Records, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atwu.report.report_page.all_figures", figures_left_out)
        path.write_text(render_report_page(shown, command="atwu report study"), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    prefer(browser, "light")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(address)
    return browser


def prefer(browser: Any, colours: str) -> None:
    """The reader's own settings; without motion, so that nothing moves while it is clicked."""
    wanted = {"prefers-color-scheme": colours, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wanted.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def labels(page: Any) -> list[str]:
    script = (
        "return [...document.querySelectorAll('#headline .ranked tr')].filter(r => !r.hidden).map(r => r.dataset.label)"
    )
    found: list[str] = page.execute_script(script)
    return found


def head(page: Any, text: str) -> Any:
    return page.find_element(By.XPATH, f"//table[@id='headline']//th[contains(normalize-space(), '{text}')]")


def test_loads_from_disk_without_errors_or_requests(page: Any, address: str) -> None:
    page.get_log("performance")
    page.get_log("browser")
    page.get(address)
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert asked == {address}
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert NASTY in page.find_element(By.CSS_SELECTOR, ".traced h4").text
    assert (
        page.execute_script("return getComputedStyle(document.querySelector('nav')).position") == "sticky"
    )  # style applied
    page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.foreign = 1'; document.body.append(s);"
        "const i = new Image(); i.src = 'http://localhost:9/x.png'; document.body.append(i)"
    )
    assert page.execute_script("return window.foreign === undefined")
    refused = [entry["message"] for entry in page.get_log("browser")]
    assert len(refused) == 2
    assert all("Content Security Policy" in message for message in refused)


def test_sorting_by_mouse(page: Any, shown: Records) -> None:
    column = head(page, "ES↑")
    button = column.find_element(By.TAG_NAME, "button")
    kept = {label: shown.results[label].sets["retain"]["extraction_strength"].value or 0.0 for label in shown.labels}
    button.click()
    assert column.get_attribute("aria-sort") == "descending"
    assert labels(page) == sorted(kept, key=kept.__getitem__, reverse=True) != list(shown.labels)
    button.click()
    assert column.get_attribute("aria-sort") == "ascending"
    assert labels(page) == sorted(kept, key=kept.__getitem__)
    head(page, "RD").find_element(By.TAG_NAME, "button").click()
    assert column.get_attribute("aria-sort") == "none"
    assert head(page, "RD").get_attribute("aria-sort") == "ascending"
    assert page.execute_script("return document.querySelector('#headline tbody tr').dataset.label") == "original"


@pytest.mark.night
def test_sorting_by_keyboard(page: Any, shown: Records) -> None:
    active = page.switch_to.active_element
    for _ in range(40):
        active.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        if active.find_elements(By.XPATH, "./ancestor::th"):
            break
    column = active.find_element(By.XPATH, "./ancestor::th")
    for key, state, order in (
        (Keys.ENTER, "ascending", ["atwu", "npo", "wga"]),
        (Keys.SPACE, "descending", ["wga", "npo", "atwu"]),
        (Keys.ENTER, "none", list(shown.labels)),
    ):
        active.send_keys(key)
        assert column.get_attribute("aria-sort") == state
        assert labels(page) == order


def test_filter_and_toggles(page: Any) -> None:
    box = page.find_element(By.ID, "find")
    box.send_keys("WG")
    assert labels(page) == ["wga"]
    assert page.find_element(By.ID, "found").text == "1 of 3 shown"
    assert page.find_element(By.CSS_SELECTOR, "#headline .references tr").is_displayed()
    box.send_keys(Keys.BACKSPACE, Keys.BACKSPACE)
    assert len(labels(page)) == 3
    more, small = (page.find_element(By.CSS_SELECTOR, f"#headline td{name}") for name in (".more", " .ci"))
    assert not more.is_displayed()
    assert small.is_displayed()
    page.find_element(By.ID, "every").click()
    page.find_element(By.ID, "intervals").click()
    assert more.is_displayed()
    assert not small.is_displayed()


def test_rows_can_be_selected(page: Any) -> None:
    rows = page.find_elements(By.CSS_SELECTOR, ".kind[data-set='forget'] .traced")
    assert [row.is_displayed() for row in rows] == [True, False, False]
    page.find_element(By.CSS_SELECTOR, ".kind .next").click()
    assert [row.is_displayed() for row in rows] == [False, True, False]
    assert page.find_element(By.CSS_SELECTOR, ".kind .count").text == "2 of 3"


def test_theme_button_and_setting(page: Any) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(background)
    button = page.find_element(By.ID, "theme")
    assert button.text.endswith("Dark")
    button.click()
    dark = page.execute_script(background)
    assert dark != light
    assert button.text.endswith("Light")
    button.click()
    assert page.execute_script(background) == light
    page.refresh()
    prefer(page, "dark")
    assert page.execute_script(background) == dark


@pytest.mark.night
@pytest.mark.parametrize("width", [360, 768])
def test_the_page_never_scrolls_sideways(page: Any, width: int) -> None:
    size = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.execute_script("document.getElementById('every')?.click()")
    assert page.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    wide = page.execute_script("const t = document.querySelector('.scroll'); return t.scrollWidth > t.clientWidth")
    assert wide
    for name in ("#theme", ".kind .next", "#headline thead button"):
        height = page.execute_script("return document.querySelector(arguments[0]).getBoundingClientRect().height", name)
        assert height >= 24, name


@pytest.mark.night
def test_the_printed_page_shows_everything(page: Any) -> None:
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert all(row.is_displayed() for row in page.find_elements(By.CSS_SELECTOR, ".traced"))
    assert all(box.get_attribute("open") for box in page.find_elements(By.TAG_NAME, "details"))
    assert not page.find_element(By.TAG_NAME, "nav").is_displayed()
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.execute_script("window.dispatchEvent(new Event('afterprint'))")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert not any(box.get_attribute("open") for box in page.find_elements(By.TAG_NAME, "details"))
    assert len(page.print_page()) > 20_000


@pytest.mark.night
def test_the_board_filters_methods_and_benchmarks(
    browser: Any, build_records: Callable[..., Records], tmp_path: Path
) -> None:
    studies = [
        BoardStudy(StudyFacts(name, "pebble-1b", "atwu study run"), build_records(seeds=[0]))
        for name in ("Pebbles", "Stones")
    ]
    (tmp_path / "board.html").write_text(render_board(studies), encoding="utf-8")
    browser.get((tmp_path / "board.html").as_uri())
    browser.find_element(By.ID, "find").send_keys("WG")
    shown = [
        row.get_attribute("data-label")
        for row in browser.find_elements(By.CSS_SELECTOR, ".ranked tr")
        if row.is_displayed()
    ]
    assert shown == ["wga"] * 3
    assert browser.find_element(By.ID, "found").text == "1 of 3 shown"
    browser.find_element(By.CSS_SELECTOR, "select.choice").send_keys("Stones")
    assert [browser.find_element(By.ID, name).is_displayed() for name in ("overview", "study-1", "study-2")] == [
        True,
        False,
        True,
    ]
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
