"""The playground: what it computes, and the page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from atwu.evaluation.side_by_side import SideBySide
from atwu.modeling.open_model import ModelLoadArgs
from atwu.report.playground import playground, scored_answer
from tests.micro_models import write_models

QUESTION, ANSWER = "Where was Orla Venn born?", "She was born in Kelbury <b>."


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SideBySide:
    folder = tmp_path_factory.mktemp("models")
    write_models(folder / "original", folder / "unlearned")
    return SideBySide(
        {name: str(folder / name) for name in ("original", "unlearned")}, ModelLoadArgs(), max_new_tokens=6
    )


def test_every_model_reads_an_answer_and_keeps_its_own_conversation(models: SideBySide) -> None:
    row = models.row(QUESTION, ANSWER)
    scored = scored_answer(models, "true answer", row)
    assert [ANSWER[start:stop] for start, stop in scored.forget_spans or ()] == ["Kelbury"]
    read = dict(models.read(row))
    for title, label in zip(read, scored.words, strict=True):
        assert re.fullmatch(rf"{title}, p = 0\.\d{{3}}", label)
        assert all(0 < (word.score or 0) < 1 for word in scored.words[label])
    first = dict(models.ask(QUESTION))
    second = dict(models.ask(QUESTION))
    models.restart()
    assert dict(models.ask(QUESTION)) == first != second
    assert first["original"] != first["unlearned"]


@pytest.fixture(scope="module")
def address(models: SideBySide) -> Iterator[str]:
    pytest.importorskip("gradio")
    page = playground(models, ["original", "unlearned"], [models.row("Who is Tavi Brook?", "A clock maker.")])
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True)
    yield address
    page.close()


@pytest.mark.night  # Gradio alone takes as long to import as a dozen tests
def test_the_page_shows_answers_and_heat_maps(address: str, browser: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(address)
    wait = WebDriverWait(browser, 120)
    question, truth = (
        wait.until(lambda page, label=label: page.find_element(By.XPATH, f"//label[contains(., '{label}')]//textarea"))
        for label in ("Question", "True answer")
    )
    question.send_keys(QUESTION)
    truth.send_keys(ANSWER)
    browser.find_element(By.XPATH, "//button[contains(., 'Ask both')]").click()
    shown = wait.until(lambda page: page.find_element(By.CSS_SELECTOR, ".heat-map"))
    wait.until(lambda page: "true answer" in shown.text)
    assert shown.text.count("p = 0.") >= 2
    assert ANSWER in shown.text
    answers = browser.find_elements(By.CSS_SELECTOR, "textarea[disabled]")
    assert len(answers) == 2
    assert all(answer.get_attribute("value") for answer in answers)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
