"""The playground: what it computes, and the page in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from atwu.modeling.open_model import ModelLoadArgs
from atwu.report.playground import LocalOnly, SideBySide, playground, scored_answer, serving
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
    assert [ANSWER[start:stop] for start, stop in scored.forget_spans or ()] == ["Kelbury <b>"]
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
    with serving(page) as address:
        yield address


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


def status_of(method: str, path: str, headers: dict[str, str], kind: str = "http") -> int:
    """Send one request to a guarded application that answers 200; return the status, of a websocket its code."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    scope = {"type": kind, "method": method, "path": path}
    scope["headers"] = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(LocalOnly(app, 7860)(scope, receive, send))
    return int(sent[0].get("status", sent[0].get("code", 0)))


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "LocalHost:7860", "[::1]:7860"])
def test_names_of_this_machine_with_the_port_are_answered(host: str) -> None:
    assert status_of("GET", "/config", {"Host": host}) == 200
    assert status_of("POST", "/gradio_api/queue/join", {"host": host, "origin": f"http://{host.lower()}"}) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7860", "127.0.0.1", "localhost:80", "127.0.0.1.evil.example:7860", ""]
)
def test_other_hosts_are_refused(host: str) -> None:
    assert status_of("GET", "/config", {"host": host}) == 403
    assert status_of("GET", "/gradio_api/queue/join", {"host": host}, kind="websocket") == 1008


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8888", "https://localhost:7860"])
def test_pages_of_other_origins_are_refused(origin: str) -> None:
    assert status_of("POST", "/gradio_api/queue/join", {"host": "localhost:7860", "origin": origin}) == 403
    assert status_of("OPTIONS", "/config", {"host": "localhost:7860", "origin": origin}) == 403


@pytest.mark.parametrize("path", ["/gradio_api/upload", "/upload", "/gradio_api/process_recording", "/login"])
def test_uploads_are_refused(path: str) -> None:
    assert status_of("POST", path, {"host": "localhost:7860"}) == 403


@pytest.mark.night
def test_the_real_server_answers_only_its_own_name_and_stores_no_upload(address: str) -> None:
    import httpx

    own = httpx.get(f"{address}/config")
    assert own.status_code == 200
    assert "Tavi Brook" in own.text
    foreign = httpx.get(f"{address}/config", headers={"Host": "evil.example", "Origin": "http://evil.example"})
    assert foreign.status_code == 403
    assert "Tavi Brook" not in foreign.text
    assert "access-control-allow-origin" not in foreign.headers
    upload = httpx.post(f"{address}/gradio_api/upload", files={"files": ("notes.txt", b"text")})
    assert upload.status_code == 403


@pytest.mark.night
def test_an_error_of_a_question_is_shown_with_the_message_of_the_command(
    address: str, models: SideBySide, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    def ask(words: str) -> Any:
        raise ValueError("the prompt alone has 373 tokens; shorten the prompt.")

    monkeypatch.setattr(models, "ask", ask)
    (task,) = (
        part["id"] for part in httpx.get(f"{address}/config").json()["dependencies"] if len(part["outputs"]) == 3
    )
    posted = {"data": [QUESTION, ""], "fn_index": task, "session_hash": "one"}
    assert httpx.post(f"{address}/gradio_api/queue/join", json=posted).status_code == 200
    with httpx.stream("GET", f"{address}/gradio_api/queue/data?session_hash=one", timeout=60) as lines:
        messages = [json.loads(line.removeprefix("data:")) for line in lines.iter_lines() if line]
    (completed,) = (message for message in messages if message["msg"] == "process_completed")
    assert completed["output"]["error"] == "the prompt alone has 373 tokens; shorten the prompt."
