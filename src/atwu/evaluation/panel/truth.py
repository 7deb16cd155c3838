"""TOFU's truth ratio: how much likelier false answers are than the true one (Maini et al. 2024). Needs false answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from atwu.data.schema import Example
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import FORGET
from atwu.evaluation.teacher_forced import FloatArray
from atwu.evaluation.truth_ratio import Mean, forget_form, probability_with_options, retain_form, truth_ratio


class Truth(Group):
    """The ratio of every row, its form for each set, and the probability of the answer among the options."""

    def read(self) -> None:
        """Read the answers that the shared pass does not hold."""
        self._losses: dict[str, tuple[list[float | None], list[list[float]]]] = {}
        for split, rows in self.session.answered.items():
            if not any(row.wrong_answers for row in rows):
                continue
            asked = [(index, row) for index, row in enumerate(rows) if row.wrong_answers]
            reworded = [
                (index, _answered(row, row.paraphrased_answer)) for index, row in asked if row.paraphrased_answer
            ]
            wrong = [(index, _answered(row, text)) for index, row in asked for text in row.wrong_answers]
            losses = self._read(split, [row for _, row in reworded + wrong])
            correct: list[float | None] = [None] * len(rows)
            for index, _ in asked:
                correct[index] = _loss(self.session.tokens(split)[index].logps)
            for (index, _), loss in zip(reworded, losses, strict=False):
                correct[index] = loss
            false: list[list[float]] = [[] for _ in rows]
            for (index, _), loss in zip(wrong, losses[len(reworded) :], strict=True):
                false[index].append(loss)
            self._losses[split] = correct, false

    def _read(self, split: str, rows: list[Example]) -> list[float]:
        assert self.session.encoder is not None
        encoded = self.session.encoder.encode_rows(rows, what=f"{split}, other answers")
        return [_loss(row.logps) for row in self.session.read(encoded.rows, label=f"read {split}, other answers")]

    def record(self) -> None:
        """Record the ratio in both definitions, and the probability among options."""
        for split, (correct, wrong) in self._losses.items():
            pairs = list(zip(correct, wrong, strict=True))
            form = forget_form if split == FORGET else retain_form
            definitions: tuple[tuple[str, Mean], ...] = (("", "geometric"), ("_arithmetic", "arithmetic"))
            for suffix, mean in definitions:
                ratios = [None if true is None else truth_ratio(true, false, mean=mean) for true, false in pairs]
                self.session.record(split, f"truth_ratio_raw{suffix}", ratios, direction="none", shown=False)
                formed = [None if ratio is None else form(ratio) for ratio in ratios]
                self.session.record(split, f"truth_ratio{suffix}", formed, direction="up")
            own = [float(np.exp(np.mean(row.logps))) for row in self.session.tokens(split)]
            among = [
                probability_with_options(p, [float(np.exp(-loss)) for loss in false]) if false else None
                for p, (_, false) in zip(own, pairs, strict=True)
            ]
            self.session.record(split, "probability_with_options", among)


def _answered(row: Example, answer: str | None) -> Example:
    return replace(row, answer=answer or row.answer, forget_spans=None)


def _loss(logps: FloatArray) -> float:
    return -float(np.mean(logps))
