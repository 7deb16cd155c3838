"""`atwu chat`: talk to one model, or to two in parallel."""

from __future__ import annotations

from dataclasses import dataclass

from atwu._interrupts import deferred, leave_deferred
from atwu.cli.cli_options import cli_option
from atwu.cli.output import note, say
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
