"""`atwu chat`."""

from __future__ import annotations

from dataclasses import dataclass

from atwu._interrupts import deferred, leave_deferred
from atwu.cli.cli_options import cli_option
from atwu.cli.output import note, say
from atwu.modeling.open_model import ModelLoadArgs


@dataclass(kw_only=True)
class ChatCommand:
    """Talk to a model in the terminal, or to two at once.

    Both hear the same words; each remembers its own answers. An empty line starts anew, Ctrl-D ends.

    Example: atwu chat unlearned --compare smollm2
    """

    model: str = cli_option("Model: folder, Hub name, smollm2, or a .gguf file.", positional=True)
    compare: str | None = cli_option("A second model, to compare with.", None)
    system: str | None = cli_option("System turn, as the models were trained with.", None)
    max_new_tokens: int = cli_option("Longest answer in tokens.", 128, least=1)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Read a line, answer, and so on."""
        from atwu.data.schema import Message
        from atwu.evaluation.backends import TransformersGenerator
        from atwu.evaluation.generations import Decoding, Prompt, generate_all
        from atwu.modeling.open_model import open_model

        names = [self.model, *([self.compare] if self.compare else [])]
        models = {name: TransformersGenerator(*open_model(name, self.loading)) for name in names}
        start = () if self.system is None else (Message("system", self.system),)
        talks = dict.fromkeys(names, start)
        decoding = Decoding(max_new_tokens=self.max_new_tokens)
        note("an empty line starts anew, Ctrl-D ends")
        while True:
            try:
                with deferred(leave_deferred):  # which leaves the terminal as it was
                    words = input("you> ").strip()
            except EOFError:
                say("")
                return
            if not words:
                talks = dict.fromkeys(names, start)
                continue
            for name, generator in models.items():
                talks[name] = (*talks[name], Message("user", words))
                (answer,) = generate_all(generator, [Prompt(talks[name])], decoding)
                talks[name] = (*talks[name], Message("assistant", answer.text))
                say(f"{name}> {answer.text}" if len(names) > 1 else answer.text)
