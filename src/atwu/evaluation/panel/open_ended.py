"""What is left of the model's fluency: answers to open-ended instructions, alone and beside those of the starting model."""

from __future__ import annotations

from collections.abc import Iterable

from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import INSTRUCTIONS, question_prompt
from atwu.evaluation.relative import win
from atwu.evaluation.repetitiveness import repetitiveness
from atwu.judge.verdicts import Pair

DECODED = 128
"""New tokens per answer, as in the ATWU paper."""


class OpenEnded(Group):
    """Repetitiveness (n-gram entropy) and, given the starting model's result, the win rate against it."""

    def prepare(self) -> None:
        """Answer the instructions; longer than other answers, hence apart."""
        rows = self.session.sets[INSTRUCTIONS]
        prompts = [question_prompt(row) for row in rows]
        said = self.session.generate(prompts, label="instructions", decoding=self.session.decoding_of(DECODED))
        self._said = tuple(said[prompt].text for prompt in prompts)
        self.session.texts.setdefault(INSTRUCTIONS, {})["answer"] = self._said
        before = self.session.original.rows.get(INSTRUCTIONS) if self.session.original else None
        self._before = before.texts.get("answer", ()) if before is not None else ()

    def pairs(self) -> Iterable[Pair]:
        """The starting model's answer is shown first, as in the paper."""
        rows = self.session.sets[INSTRUCTIONS] if self._before else ()
        return [
            Pair(instruction=row.question, first=before, second=after)
            for row, before, after in zip(rows, self._before, self._said, strict=False)
        ]

    def record(self) -> None:
        """Record both."""
        record = self.session.record
        record(INSTRUCTIONS, "repetitiveness", [repetitiveness(text) for text in self._said], digits=0)
        if self._before:
            rated = [self.session.preference(pair) for pair in self.pairs()]
            wins = [win(pair.first, pair.second) for pair in rated]
            record(INSTRUCTIONS, "win_rate", wins, unscored=sum(win is None for win in wins), digits=1)
