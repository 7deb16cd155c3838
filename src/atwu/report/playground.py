"""Ask an unlearned and its original model the same questions, in the terminal or on a local web page (Gradio).

On the page, every answer is a heat map of the probability that each model gives its words, with the key tokens underlined and
their probability: an unlearned model may say something else and still know the fact.

The page is served to this machine's own browser, and to no page of another site in it: a web page may let its name point to
127.0.0.1 (DNS rebinding) and then reads whatever a local server answers it. Such a request carries the page's name as its host,
so only the names of this machine are answered, and only the requests that the playground itself makes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from atwu._extras import require
from atwu.data.encode import Encoder
from atwu.data.fact import key_token_spans
from atwu.data.schema import Example, Message
from atwu.errors import AtwuError
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.evaluation.word_scores import word_scores
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.page_templates import ScoredRow, fragment

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost", "[::1]")
_POSTED = ("/gradio_api/queue/join", "/gradio_api/run/", "/gradio_api/call/", "/gradio_api/cancel", "/gradio_api/reset")
"""Starts of the paths to which the page posts. Gradio has more, which store uploads, for components that it lacks."""
_METHODS = ("GET", "HEAD")


class SideBySide:
    """Models that get the same messages; each keeps its own conversation."""

    def __init__(
        self, names: Mapping[str, str], loading: ModelLoadArgs, *, system: str | None = None, max_new_tokens: int = 128
    ) -> None:
        """Load the models; `names` are title -> folder, Hub name, short name or GGUF file."""
        self._models = {title: open_model(name, loading) for title, name in names.items()}
        self._generators = {title: TransformersGenerator(*opened) for title, opened in self._models.items()}
        self._start = () if system is None else (Message("system", system),)
        self._decoding = Decoding(max_new_tokens=max_new_tokens)
        self.restart()

    def restart(self) -> None:
        self._histories = dict.fromkeys(self._models, self._start)

    def ask(self, words: str) -> Iterator[tuple[str, str]]:
        """Yield the title and the greedy answer of one model after the other."""
        for title, generator in self._generators.items():
            history = (*self._histories[title], Message("user", words))
            (answer,) = generate_all(generator, [Prompt(history)], self._decoding)
            self._histories[title] = (*history, Message("assistant", answer.text))
            yield title, answer.text

    def row(self, question: str, answer: str) -> Example:
        return Example((*self._start, Message("user", question)), answer)

    def read(self, row: Example) -> Iterator[tuple[str, TokenRow]]:
        """Yield the title and the teacher-forced outputs of one model after the other."""
        for title, (model, tokenizer) in self._models.items():
            (tokens,) = read_tokens(model, Encoder(tokenizer).encode_rows([row], what="answers").rows)
            yield title, tokens


class LocalOnly:
    """ASGI application that passes on requests to a name of this machine with its port, and refuses all others."""

    def __init__(self, app: Any, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in _NAMES}
        if port == 80:  # browsers leave out the default port
            self._hosts.update(_NAMES)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import PlainTextResponse
        from starlette.websockets import WebSocketClose

        reason = None
        if scope["type"] != "lifespan":  # start and end of the server, which no browser sends
            reason = self._refusal(scope)
        if reason is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008)(scope, receive, send)
        else:
            await PlainTextResponse(reason, status_code=403)(scope, receive, send)

    def _refusal(self, scope: Any) -> str | None:
        """Return why a request is refused, or None."""
        from starlette.datastructures import Headers

        headers = Headers(scope=scope)
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return f"This server answers only {' and '.join(sorted(self._hosts))}."
        origins = {f"http://{host}" for host in self._hosts}
        if not origins.issuperset(origin.lower() for origin in headers.getlist("origin")):
            return "This server answers only its own page."
        if scope["type"] == "websocket" or scope["method"] in _METHODS:
            return None
        if scope["method"] == "POST" and scope["path"].startswith(_POSTED):
            return None
        return "The playground takes questions only, no uploads."


@contextlib.contextmanager
def serving(page: Any, port: int | None = None) -> Iterator[str]:
    """Serve a page of `playground` in a thread while the context lasts; yields its address.

    Args:
        page: `gradio.Blocks`.
        port: port of this machine; None for a free one.

    Raises:
        OSError: the port cannot be used.
    """
    gradio = require("gradio", extra="app")
    import fastapi
    import uvicorn

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as own:
        if os.name == "posix":
            # Otherwise the port stays taken for a minute after it was used. On Windows the option would share the port
            # with another process.
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind((HOST, port or 0))
        place = own.getsockname()[1]
        # `launch` of Gradio would serve the page itself, without the check of hosts.
        mounted = gradio.mount_gradio_app(
            fastapi.FastAPI(openapi_url=None), page, path="/", server_name=HOST, server_port=place, ssr_mode=False
        )
        settings = uvicorn.Config(LocalOnly(mounted, place), log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(settings)
        # In another thread uvicorn leaves the signals to the command.
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]}, daemon=True)
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        if not server.started:
            raise OSError(f"the server of the playground did not start on port {place}.")
        try:
            yield f"http://{HOST}:{place}"
        finally:
            server.should_exit = True
            thread.join()


_ABOUT = (
    "The models answer greedily, each question in a new conversation. Below, every answer is read by both models: the "
    "stronger the colour, the more probable the word. Key tokens (names, numbers) are underlined; *p* is their "
    "probability, the geometric mean. If the unlearned model still gives the fact a high *p*, it is not forgotten."
)
TRUE_ANSWER = "true answer"


def playground(models: SideBySide, titles: Sequence[str], examples: Sequence[Example] = ()) -> Any:
    """Return the page as `gradio.Blocks`; the questions and answers of `examples` can be picked."""
    gradio = require("gradio", extra="app")

    def respond(question: str, truth: str) -> Iterator[list[str]]:
        """Yield the contents of the answers and of the heat maps, first without the latter."""
        if not question.strip():
            raise gradio.Error("Enter a question.", print_exception=False)
        models.restart()  # each question is a conversation of its own
        with _shown_on_page():
            answers = dict(models.ask(question.strip()))
        yield [*answers.values(), ""]
        # By text, so that an answer that both models give, or that is the true one, is read once.
        whose: dict[str, list[str]] = {truth.strip(): [TRUE_ANSWER]}
        for title, text in answers.items():
            whose.setdefault(text, []).append(f"answer of {title}")
        with _shown_on_page():
            rows = [
                scored_answer(models, ", ".join(said), models.row(question.strip(), text))
                for text, said in whose.items()
                if text
            ]
        yield [*answers.values(), fragment("notebook.html", rows=rows)]

    with gradio.Blocks(title="atwu playground", analytics_enabled=False) as page:
        gradio.Markdown(f"# Playground\n\n{_ABOUT}")
        question = gradio.Textbox(label="Question", autofocus=True)
        truth = gradio.Textbox(label="True answer (optional)")
        ask = gradio.Button("Ask both models", variant="primary")
        with gradio.Row():
            answers = [gradio.Textbox(label=title, lines=4, interactive=False) for title in titles]
        heat_maps = gradio.HTML()
        if examples:
            rows = [[row.question, row.answer] for row in examples]
            gradio.Examples(rows, [question, truth], label="Rows", examples_per_page=8)
        gradio.on([ask.click, question.submit], respond, [question, truth], [*answers, heat_maps])
    return page


@contextlib.contextmanager
def _shown_on_page() -> Iterator[None]:
    """Show the message of an error that a command would print; Gradio shows none, and prints a traceback."""
    gradio = require("gradio", extra="app")
    try:
        yield
    except (AtwuError, ValueError) as error:
        raise gradio.Error(str(error), print_exception=False) from error


def scored_answer(models: SideBySide, who: str, row: Example) -> ScoredRow:
    """Return an answer (`row`) of somebody (`who`) with the probability of its words by each model."""
    row = dataclasses.replace(row, forget_spans=key_token_spans(row) or None)
    words = {}
    for title, tokens in models.read(row):
        probability = key_token_probability(row, tokens)
        if probability is not None:
            title = f"{title}, p = {probability:.3f}"
        words[title] = tuple(word_scores(row.answer, tokens.offsets, np.exp(tokens.logps)))
    return ScoredRow(who, row.answer, words, row.forget_spans, 0)
