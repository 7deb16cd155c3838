"""Ask several models the same questions: their answers, and how well each knows the key tokens of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from atwu.data.encode import Encoder
from atwu.data.schema import Example, Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.modeling.open_model import ModelLoadArgs, open_model


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
            (read,) = read_tokens(model, Encoder(tokenizer).encode_rows([row], what="answers").rows)
            yield title, read
