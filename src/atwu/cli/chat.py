"""`atwu chat` and `atwu playground`: question one model, or two in parallel, in the terminal and on a web page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from atwu._interrupts import deferred, leave_deferred
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import ROWS_HELP, note, open_rows, say
from atwu.modeling.open_model import ModelLoadArgs


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
        from atwu.evaluation.side_by_side import SideBySide

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
        from atwu.evaluation.side_by_side import SideBySide
        from atwu.modeling.load import check_model_name
        from atwu.report.playground import playground
        from atwu.report.playground_server import serving
        from atwu.report.read_records import read_run

        check_model_name(str(self.model), base=self.loading.base)
        require("gradio", extra="app")
        record = read_run(self.model / RECORD_NAME) if (self.model / RECORD_NAME).is_file() else {}
        original = self.original or record.get("original_model", {}).get("model")
        if original is None:
            raise ValueError(
                f"{self.model} has no {RECORD_NAME} that names its original model; give it with --original."
            )
        names = {"original": str(original), "unlearned": str(self.model)}
        system = (record.get("config") or {}).get("system")
        rows = [row for row in open_rows(self.data) if row.question]
        models = SideBySide(names, self.loading, system=system, max_new_tokens=self.max_new_tokens)
        page = playground(models, list(names), rows)
        try:
            with serving(page, self.port) as address:
                say(f"{address} (Ctrl-C: stop)")
                while True:
                    time.sleep(60)
        except OSError:
            raise OSError(
                f"port {self.port} cannot be used, since it is taken or reserved; give another --port."
            ) from None
