"""Question a model: `atwu ask` about a name, by questions or a document, `atwu chat` and `atwu playground` by hand."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._command import deferred, leave_deferred
from atwu._files import check_writable
from atwu.cli.cli_options import cli_option, values_of
from atwu.cli.shared import DEVICE, ROWS_HELP, note, open_rows, plain_table, say, stand_out, terminal
from atwu.errors import UsageError
from atwu.judge.open_judge import MODEL_KEY
from atwu.modeling.open_model import ModelLoadArgs

if TYPE_CHECKING:
    from atwu.request.asking.ask_result import AskResult


FACTS_ON_SCREEN = 60
"""Lines of the table, at most; the file has all rows."""
_SHOWN_TEXT = 160
"""Characters of a passage in the table."""


@dataclass(kw_only=True)
class AskCommand:
    """Ask a model what it knows about a name, and write it as forget rows.

    Every question is asked in several ways; an answer that the model gives again, and for this name rather than for others,
    counts as known. The rows are for editing: a line that you delete is not forgotten.

    Example: atwu ask --model smollm2 --about "Egypt" --output rows.jsonl
    """

    model: str = cli_option(
        "Model: folder, Hub name, smollm2, a .gguf file, or name on the server at --model-url.", alias=("-m",)
    )
    about: str | None = cli_option(
        "Name to ask about, such as Egypt, or several with commas between them.", None, excludes="questions"
    )
    questions: Path | None = cli_option("Text file with one question a line.", None, excludes="document")
    document: Path | None = cli_option("Text file: which passages the model recites.", None, excludes="about")
    kind: str | None = cli_option(
        "What the name is: person, place, organisation, work, event, product or substance. Default: as the model says.",
        None,
        needs="about",
    )
    templates: Path | None = cli_option(
        "YAML file with questions by kind, instead of those of the package.", None, needs="about", common=False
    )
    hops: int = cli_option(
        "2 asks about the answers, too, and keeps what leads back to the name.", 1, least=1, most=2, needs="about"
    )
    limit: int = cli_option("Passages of a document to test, at most, evenly spaced.", 200, least=1)
    compare: str | None = cli_option("Second model to ask the same, such as the one before unlearning.", None)
    output: Path | None = cli_option("JSONL file for the rows, to be edited.", None, alias=("-o",))
    html: Path | None = cli_option("HTML page with the rows and check boxes, which saves the chosen ones.", None)
    overwrite: bool = cli_option("Replace the files of --output and --html if they exist.", False)
    every: bool = cli_option("Show also what the model does not say again.", False)
    seed: int = cli_option("Seed of the sampled answers.", 0, least=0, common=False)
    system: str | None = cli_option("System prompt that the model was trained with. Default: none.", None, common=False)
    model_url: str | None = cli_option(
        "Base URL of an OpenAI-compatible server, such as http://localhost:8000/v1, that serves the model.", None
    )
    model_key: str = cli_option(
        "Environment variable with the API key of --model-url.", MODEL_KEY, needs="model_url", common=False
    )
    device: str | None = cli_option(DEVICE, None, common=False)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        if not (self.about or self.questions or self.document):
            raise UsageError("nothing to ask; give --about NAME, --questions FILE or --document FILE.")
        for file, suffix in ((self.output, ".jsonl"), (self.html, ".html")):
            if file is not None and file.suffix != suffix:
                raise UsageError(f"{file} must end in {suffix}.")
            # Before the model is asked, which takes minutes and, on a server, money.
            check_writable(file, overwrite=self.overwrite)
        note("starting; the libraries take a few seconds")
        from atwu.request.asking.ask import ask

        result = ask(
            self.model,
            **values_of(self, "about", "questions", "document", "kind", "templates", "hops", "limit", "compare"),
            **values_of(self, "model_url", "model_key", "system", "seed", "device", "loading"),
            say=note,
        )
        if result.rows or result.interrupted is None:  # of a server that failed at once, an earlier file stays
            self._write(result)
        kept = ""
        if result.interrupted is None or result.facts or result.texts:
            _show(result, every=self.every)
            kept = "stopped early, what was found before is kept: "
        if result.interrupted is not None:
            stand_out(f"error: {kept}{result.interrupted}", "red")
            sys.exit(1)

    def _write(self, result: AskResult) -> None:
        from atwu.request.text_wording import count_of

        if self.output is not None:
            result.write(self.output)
            if result.rows:
                rows = count_of(len(result.rows), "row")
                say(f"written: {self.output}, {rows}. Delete the lines that the model may keep, then:")
                say(f"  atwu unlearn --model {self.model} --forget {self.output} --output unlearned\n")
            else:
                say(f"written: {self.output}, without rows\n")
        if self.html is not None:
            from atwu._files import write_text
            from atwu.request.asking.ask_result import render_ask_page

            write_text(self.html, render_ask_page(result))
            say(f"written: {self.html}, to choose rows in a browser\n")


def _show(result: AskResult, *, every: bool) -> None:
    """Print what the model says as a table, and one sentence below it."""
    facts = result.facts if every else result.known
    if facts:
        from atwu.request.asking.ask_result import facts_table

        table = facts_table(facts[:FACTS_ON_SCREEN], compared_model=result.compared_model)
        terminal(highlight=False).print(table)
    if len(facts) > FACTS_ON_SCREEN:
        say(f"and {len(facts) - FACTS_ON_SCREEN} more")
    texts = result.texts if every else result.recited
    if texts:
        table = plain_table("passage", "words it continues by heart")
        for text in texts[:FACTS_ON_SCREEN]:
            shown = text.text
            # A passage has up to a paragraph, and the file has it whole.
            if len(shown) > _SHOWN_TEXT:
                shown = f"{shown[:_SHOWN_TEXT]}..."
            table.add_row(shown, str(text.longest_run))
        terminal(highlight=False).print(table)
    for line in result.notes:
        say(line)
    say(result.summary())
    left_out = len(result.facts) - len(result.known)
    if left_out and not every:
        say(
            f"other answers, which changed with the wording or fit other names as well: {left_out}; --every shows them."
        )


@dataclass(kw_only=True)
class ChatCommand:
    """Chat with a model in the terminal, or with two models in parallel.

    Both models get the same messages and keep their own history. An empty line starts a new conversation; Ctrl-D exits.

    Example: atwu chat unlearned --compare smollm2
    """

    model: str = cli_option("Model: folder, Hub name, smollm2, or a .gguf file.", positional=True)
    compare: str | None = cli_option("Second model, such as the original model; it gets the same messages.", None)
    system: str | None = cli_option("System prompt that the models were trained with. Default: none.", None)
    max_new_tokens: int = cli_option("Maximum number of new tokens per answer.", 128, least=1)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        from atwu.report.playground import SideBySide

        names = {name: name for name in (self.model, self.compare) if name}
        models = SideBySide(names, self.loading, system=self.system, max_new_tokens=self.max_new_tokens)
        note("empty line: new conversation; Ctrl-D: exit")
        while True:
            try:
                with deferred(leave_deferred):  # restores the terminal
                    words = input("you> ").strip()
            except EOFError:
                say("")
                return
            if not words:
                models.restart()
                continue
            for name, answer in models.ask(words):
                say(f"{name}> {answer}" if len(names) > 1 else answer)


@dataclass(kw_only=True)
class PlaygroundCommand:
    """Question an unlearned and its original model on a local web page (extra `app`).

    The page shows both answers, and how probable each model finds the words of either answer and of the true one.

    Example: atwu playground unlearned --data forget.jsonl
    """

    model: Path = cli_option("Folder of a run.", positional=True)
    original: str | None = cli_option("Original model. Default: the run's own.", None)
    data: str | None = cli_option(f"Rows to pick questions from: {ROWS_HELP}.", None, alias=("-d",))
    max_new_tokens: int = cli_option("Maximum number of new tokens per answer.", 64, least=1)
    port: int = cli_option("Port on this machine.", 7860, least=1, most=65535)
    loading: ModelLoadArgs = cli_option("", group="Loading the models", common=False)

    def run(self) -> None:
        from atwu._extras import require
        from atwu._manifest import RECORD_NAME
        from atwu.modeling.load import check_model_name
        from atwu.report.playground import SideBySide, playground, serving
        from atwu.report.read_records import read_run

        check_model_name(str(self.model), base=self.loading.base)
        # Before the models are loaded.
        require("gradio", extra="app")
        record = read_run(self.model / RECORD_NAME) if (self.model / RECORD_NAME).is_file() else {}
        original = self.original or record.get("original_model", {}).get("model")
        if original is None:
            raise ValueError(
                f"{self.model} has no {RECORD_NAME} that names its original model; give it with --original."
            )
        names = {"original": str(original), "unlearned": str(self.model)}
        system = (record.get("config") or {}).get("system")
        rows = [row for row in open_rows(self.data) if row.question]  # a plain text asks nothing
        models = SideBySide(names, self.loading, system=system, max_new_tokens=self.max_new_tokens)
        page = playground(models, list(names), rows)
        try:
            with serving(page, self.port) as address:
                say(f"{address} (Ctrl-C: stop)")
                while True:  # the server answers in its own thread, until Ctrl-C ends the process
                    time.sleep(60)
        except OSError:
            raise OSError(
                f"port {self.port} cannot be used, since it is taken or reserved; give another --port."
            ) from None
