"""The result of asking a model: facts and recited texts, as rows to edit, a table for laymen, a data frame, or one page.

The table says in how many askings a model says the same. On the page, check boxes choose rows, and a button saves them as a
file, without a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._files import write_parts
from atwu.data.schema import Example
from atwu.request.asking.asked_facts import AskedFact, RecitedText
from atwu.request.asking.subject_templates import CHAIN, TRAINED_CHAIN

if TYPE_CHECKING:
    import pandas
import io
from typing import TYPE_CHECKING

from atwu._file_reading import printable

if TYPE_CHECKING:
    from rich.table import Column, Table
    from rich.text import Text
import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class AskResult:
    """What a model says about a name, to questions, or of a document."""

    model: str
    about: str
    """The names, or the file of questions or of the document."""
    facts: tuple[AskedFact, ...]
    """Every question that got an answer; the surest first."""
    texts: tuple[RecitedText, ...] = ()
    """Passages of a document with what the model continues."""
    names: tuple[str, ...] = ()
    """The names that were asked about; empty for a file."""
    kinds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know, one line each."""
    interrupted: str | None = None
    """Why asking ended early; what was found before is kept."""
    compared_model: str | None = None

    @property
    def known(self) -> tuple[AskedFact, ...]:
        """The facts that the model knows."""
        return tuple(fact for fact in self.facts if fact.known)

    @property
    def direct(self) -> tuple[AskedFact, ...]:
        """The known facts about the names themselves."""
        return tuple(fact for fact in self.known if fact.source not in (CHAIN, TRAINED_CHAIN))

    @property
    def chained(self) -> tuple[AskedFact, ...]:
        """The known questions about answers, which lead back to a name."""
        return tuple(fact for fact in self.known if fact.source in (CHAIN, TRAINED_CHAIN))

    @property
    def recited(self) -> tuple[RecitedText, ...]:
        """The passages that the model recites."""
        return tuple(text for text in self.texts if text.recited)

    @property
    def rows(self) -> tuple[Example, ...]:
        """Forget rows: the known facts, and the recited passages as plain texts."""
        return (*(fact.row for fact in self.known), *(Example((), text.text) for text in self.recited))

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows with what was measured, as they are written."""
        return [*(fact.record() for fact in self.known), *(text.record() for text in self.recited)]

    def write(self, path: str | Path) -> None:
        """Write the rows as JSONL; the file is replaced atomically."""
        write_records(path, self.records)

    def to_pandas(self) -> pandas.DataFrame:
        """Return one line per question that got an answer, whether the model knows it or not."""
        import pandas

        lines = [{"known": fact.known, "key_text": fact.key_text} | fact.record() for fact in self.facts]
        lines += [{"known": text.recited} | text.record() for text in self.texts]
        return pandas.DataFrame(lines)

    def summary(self) -> str:
        """Return one sentence: how much is known, or how little agrees."""
        facts = [fact for fact in self.facts if fact.source not in (CHAIN, TRAINED_CHAIN)]
        parts = [_said_about(name, [fact for fact in facts if fact.subject == name]) for name in self.names]
        if not self.names and (facts or not self.texts):
            parts.append(_said_about(self.about, facts))
        if self.chained:
            parts.append(f"leads back from answers by {_counted(len(self.chained), 'question')}")
        if self.texts:
            parts.append(f"recites {len(self.recited)} of {_counted(len(self.texts), 'passage')} of {self.about}")
        sentence = f"{self.model} {' and '.join(parts)}."
        compared = [fact.compared for fact in self.known if fact.compared is not None]
        if compared:
            same = sum(answers.repeated for answers in compared)
            sentence += f" {self.compared_model} says the same to {same} of {_counted(len(compared), 'question')}."
        return sentence


def write_records(path: str | Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records as JSONL; the file is replaced atomically."""
    write_parts(path, (json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def _said_about(name: str, facts: Sequence[AskedFact]) -> str:
    """Return how many of these facts are known, or how little agrees."""
    known = sum(fact.known for fact in facts)
    if known:
        return f"knows {_counted(known, 'fact')} of {name}"
    if not facts:
        return f"says nothing about {name}"
    # Of every question, one asking is what the others are compared with.
    agree = sum(fact.agree - 1 for fact in facts)
    askings = sum(fact.askings - 1 for fact in facts)
    return f"says nothing stable about {name} ({agree} of {askings} answers agree)"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_COUNT_WIDTH = 12
"""Characters of a column of counts: room for two texts is scarcer."""
_WIDTH = 110
"""Characters of a line where the width of the terminal is not known; most answers fit beside their question."""


def facts_table(facts: Sequence[AskedFact], *, compared_model: str | None = None) -> Table:
    """Return facts as a table.

    Args:
        compared_model: name or folder of a second model that was asked the same; its askings agree with the first model.
    """
    from rich.table import Column, Table

    agreeing = Column("askings that agree", max_width=_COUNT_WIDTH)
    columns = [_text_column("question"), _text_column("what the model says"), agreeing]
    if compared_model is not None:
        columns += [_text_column(f"what {Path(compared_model).name} says"), agreeing.copy()]
    table = Table(*columns, box=None, pad_edge=False)
    for fact in facts:
        table.add_row(*_cells(fact, compared=compared_model is not None))
    return table


def _text_column(head: str) -> Column:
    from rich.table import Column

    return Column(head, overflow="fold")


def facts_lines(facts: Sequence[AskedFact], *, most: int) -> list[str]:
    """Return the table of the first `most` facts as lines of plain text."""
    from rich.console import Console

    # A text stream rather than `capture`: no colours, and the same width wherever the command runs.
    stream = io.StringIO()
    Console(file=stream, width=_WIDTH, markup=False, emoji=False, highlight=False).print(facts_table(facts[:most]))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _cells(fact: AskedFact, *, compared: bool) -> list[str | Text]:
    cells: list[str | Text] = [
        printable(fact.row.question),
        _in_bold(fact.row),
        fact.how_sure,
    ]
    if compared and fact.compared is not None:
        cells += [printable(fact.compared.answer), f"{fact.compared.agree} of {fact.compared.askings}"]
    elif compared:
        cells += ["", ""]
    return cells


def _in_bold(row: Example) -> Text:
    """Return an answer with its fact in bold."""
    from rich.text import Text

    text = Text()
    end = 0
    for start, stop in row.forget_spans or ():
        text.append(printable(row.answer[end:start]))
        text.append(printable(row.answer[start:stop]), style="bold")
        end = stop
    text.append(printable(row.answer[end:]))
    return text


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
        lines.append(_Line(fact.row.question, _marked_parts(fact.row), fact.how_sure, compared, _json(fact.record())))
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
