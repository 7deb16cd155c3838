"""The result of `atwu ask` as one page: check boxes choose rows, and a button saves them as a file, without a server."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from atwu.data.schema import Example
from atwu.request.asking.ask_result import AskResult

SAVED_AS = "rows.jsonl"
"""Name of the file that the page saves."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the page."""

    question: str
    answer: Sequence[tuple[str, bool]]
    """Parts of the answer, and whether each is the fact."""
    sure: str
    compared: str
    record: str
    """The row of the file, as JSON."""


def render_ask_page(result: AskResult) -> str:
    """Return the page as text; equal results give equal pages."""
    script = Markup(files(__package__).joinpath("ask_page.js").read_text(encoding="utf-8"))
    # Only this script may run: questions and answers are text of a model.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("ask_page.html").render(
        result=result, lines=_lines(result), script=script, script_hash=f"sha256-{digest}", saved_as=SAVED_AS
    )


def _lines(result: AskResult) -> list[_Line]:
    lines = []
    for fact in result.known:
        compared = ""
        if fact.compared is not None:
            compared = f"{fact.compared.answer} ({fact.compared.agree} of {fact.compared.askings})"
        sure = f"{fact.agree} of {fact.askings} askings"
        lines.append(_Line(fact.row.question, _marked_parts(fact.row), sure, compared, _json(fact.record())))
    for text in result.recited:
        sure = f"{text.longest_run} words by heart"
        lines.append(_Line("(text)", [(text.text, False)], sure, "", _json(text.record())))
    return lines


def _marked_parts(row: Example) -> list[tuple[str, bool]]:
    parts: list[tuple[str, bool]] = []
    end = 0
    for start, stop in row.forget_spans or ():
        parts += [(row.answer[end:start], False), (row.answer[start:stop], True)]
        end = stop
    return [*parts, (row.answer[end:], False)]


def _json(record: dict[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False)
