"""ROUGE-L recall of the greedy answer."""

from __future__ import annotations

from collections.abc import Iterable

from atwu.evaluation.overlap import rouge_l_recall
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import question_prompt
from atwu.evaluation.prompts import Prompt


class Overlap(Group):
    """Text rows have no question to answer and get no value."""

    def prompts(self) -> Iterable[Prompt]:
        """Every row's own question."""
        rows = [row for rows in self.session.answered.values() for row in rows]
        return [question_prompt(row) for row in rows if row.messages]

    def record(self) -> None:
        """Record the recall, and what was said."""
        for split, rows in self.session.answered.items():
            said = [self.session.answer(question_prompt(row)) if row.messages else "" for row in rows]
            self.session.texts.setdefault(split, {})["answer"] = tuple(said)
            recalls = [
                rouge_l_recall(row.answer, text) if row.messages else None for row, text in zip(rows, said, strict=True)
            ]
            self.session.record(split, "rouge_l_recall", recalls)
