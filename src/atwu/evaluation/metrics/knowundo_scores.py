"""Scores of KnowUnDo (Tian et al. 2024): teacher-forced accuracy and perplexity of the answers, on both sets.

Both follow the authors' `run_eval_lora.py`: the share of answer tokens that the model predicts, averaged over rows, and
exp of the mean over rows of the loss per token, without the terminal token. Unlearning success is 100 minus the accuracy
on what has to be unlearned, retention success the accuracy on what has to stay.
"""

from __future__ import annotations

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, OVERALL, RETAIN, Column, Percent
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.membership import loss_score
from atwu.evaluation.metrics.memorization import exact_memorization, row_exact_memorization


def loss_perplexity(loss: FloatArray) -> FloatArray:
    """Exp of the mean loss per token."""
    return np.exp(loss)


class KnowUnDo(Metric):
    name = "knowundo"
    about = "KnowUnDo: unlearning success, retention success, and perplexity of the answers of both sets"
    cost = "one forward pass over both sets"
    needs = reads = (FORGET, RETAIN)
    columns = (
        Percent(
            "unlearn_success",
            exact_memorization,
            "unlearning success",
            "percentage of answer tokens that are not predicted under teacher forcing",
            sets=(FORGET,),
            direction="up",
        ),
        Percent(
            "retention_success",
            exact_memorization,
            "retention success",
            "percentage of answer tokens predicted under teacher forcing",
            sets=(RETAIN,),
            direction="up",
        ),
        Column(
            "answer_loss",
            loss_score,
            "loss",
            "loss per token of the answer without its terminal token",
            sets=(FORGET, RETAIN),
            direction="none",
            range=(0.0, None),
            shown=False,
        ),
        *(
            Column(
                f"{split}_perplexity",
                loss_perplexity,
                f"perplexity, {split}",
                f"exp of the mean loss per token of the answers of the {split} set",
                sets=(OVERALL,),
                direction="down" if split == RETAIN else "none",
                range=(1.0, None),
                digits=2,
                of=((split, "answer_loss"),),
            )
            for split in (FORGET, RETAIN)
        ),
    )

    def record(self) -> None:
        for split, column in {FORGET: "unlearn_success", RETAIN: "retention_success"}.items():
            shares = map(row_exact_memorization, self.session.tokens(split))
            percent = [None if share is None else 100 * (1 - share if split == FORGET else share) for share in shares]
            self.record_column(split, column, percent)
        self.record_tokens(answer_loss=lambda _, read: loss_score(read.logps[read.content]))
