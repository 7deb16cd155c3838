"""The result of asking a model: facts and recited texts, as rows to edit, as a data frame, and in one line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._files import write_parts
from atwu.data.schema import Example
from atwu.request.asking.asked_facts import AskedFact, RecitedText

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class AskResult:
    """What a model says about a name, to questions, or of a document."""

    model: str
    about: str
    """The name, or the file of questions or of the document."""
    facts: tuple[AskedFact, ...]
    """Every question that got an answer; the surest first."""
    texts: tuple[RecitedText, ...] = ()
    """Passages of a document with what the model continues."""
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
        write_parts(path, (json.dumps(record, ensure_ascii=False) + "\n" for record in self.records))

    def to_pandas(self) -> pandas.DataFrame:
        """Return one line per question that got an answer, whether the model knows it or not."""
        import pandas

        lines = [{"known": fact.known, "key_text": fact.key_text} | fact.record() for fact in self.facts]
        lines += [{"known": text.recited} | text.record() for text in self.texts]
        return pandas.DataFrame(lines)

    def summary(self) -> str:
        """Return one sentence: how much is known, or how little agrees."""
        parts = []
        if self.facts and not self.known:
            # Of every question, one asking is what the others are compared with.
            agree = sum(fact.agree - 1 for fact in self.facts)
            askings = sum(fact.askings - 1 for fact in self.facts)
            parts.append(f"says nothing stable about {self.about} ({agree} of {askings} answers agree)")
        elif self.facts:
            parts.append(f"knows {_counted(len(self.known), 'fact')} of {self.about}")
        elif not self.texts:
            parts.append(f"says nothing about {self.about}")
        if self.texts:
            parts.append(f"recites {len(self.recited)} of {_counted(len(self.texts), 'passage')} of {self.about}")
        return f"{self.model} {' and '.join(parts)}."


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
