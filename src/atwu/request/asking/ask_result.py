"""The result of asking a model: facts and recited texts, as rows to edit, as a data frame, and in one line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._files import write_parts
from atwu.data.schema import Example
from atwu.request.asking.asked_facts import AskedFact, RecitedText
from atwu.request.asking.subject_templates import CHAIN

if TYPE_CHECKING:
    import pandas


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
        return tuple(fact for fact in self.known if fact.source != CHAIN)

    @property
    def chained(self) -> tuple[AskedFact, ...]:
        """The known questions about answers, which lead back to a name."""
        return tuple(fact for fact in self.known if fact.source == CHAIN)

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
        facts = [fact for fact in self.facts if fact.source != CHAIN]
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
