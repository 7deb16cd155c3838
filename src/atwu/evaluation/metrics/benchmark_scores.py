"""Scores of the benchmarks LUME, MUSE and KnowUnDo, each as its authors compute them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from atwu.benchmarks.base import Probe
from atwu.benchmarks.lume import LUME_KINDS, MEMBERS, NON_MEMBERS
from atwu.benchmarks.muse import KNOWMEM, VERBMEM
from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, LUME, MUSE, OVERALL, RETAIN, AggregateColumn, Column, Percent, apply_known
from atwu.evaluation.generations import Decoding, Prompt
from atwu.evaluation.intervals import AggregateMetric, Estimate, ModelComparison, combine
from atwu.evaluation.metric import Metric, MetricSetting, ProbeMetric
from atwu.evaluation.metrics.membership import Membership, attack_area, attack_auc, loss_score, privleak
from atwu.evaluation.metrics.memorization import exact_memorization, row_exact_memorization
from atwu.evaluation.metrics.rouge import rouge_l_f1, rouge_l_recall

_LUME_DECODING = Decoding(max_new_tokens=256)
_LOSSES = {kind: f"lume_{kind}_loss" for kind in (MEMBERS, NON_MEMBERS)}


def same_answer(reference: str, answer: str) -> float:
    """1 if the whole answer is the reference, ignoring case and surrounding space, else 0."""
    return float(reference.strip().lower() == answer.strip().lower())


def task_aggregate(*means: Any) -> Any:
    """Harmonic mean of the means per kind, in the order of `LUME_KINDS`; those of the forget set count as 1 minus the mean.

    Range [0, 1]: 0 if a part is 0.
    """
    parts = list(means)
    for place, kind in enumerate(LUME_KINDS):
        if kind.startswith("forget"):
            parts[place] = 1 - parts[place]
    with np.errstate(divide="ignore"):
        return len(parts) / sum(1 / np.asarray(part, dtype=np.float64) for part in parts)


def mia_score(auc: Any) -> Any:
    """1 - 2 |AUC - 1/2|: 1 if the loss does not tell members from non-members, 0 if it always does."""
    return 1 - 2 * np.abs(auc - 0.5)


def final_score(aggregate: Any, mia: Any, mmlu: Any) -> Any:
    """Mean of the three scores; the accuracy on MMLU is in percent."""
    return (aggregate + mia + mmlu / 100) / 3


class Lume(ProbeMetric):
    """Scores of LUME (Ramakrishna et al. 2025), as the organisers of SemEval-2025 Task 4 compute them.

    A completion is scored by ROUGE-L recall (`rouge_score` with stemmer), a question by equality of the whole answer, ignoring
    case and surrounding space; both greedy, with 256 new tokens. The task aggregate is the harmonic mean of the twelve means
    over split, form and task, those of the forget set as 1 minus the mean, so one part at 0 makes it 0. The final score is
    the mean of the task aggregate, the score of the membership attack, and the accuracy on MMLU (`--task mmlu`).
    """

    name = "lume"
    about = "LUME: ROUGE-L of completions, exact match of answers, membership attack, task aggregate, final score"
    cost = "one answer per probe, of up to 256 tokens"
    needs = (LUME,)
    needs_weights = False
    settings = (
        MetricSetting(
            "lume_bare_questions",
            bool,
            False,
            "Ask LUME's questions without a template, as the organisers' script does.",
        ),
    )
    columns = (
        *(
            Column(
                f"lume_{kind}",
                rouge_l_recall if "completion" in kind else same_answer,
                f"LUME {kind.replace('_', ' ')}",
                ("ROUGE-L recall of continued " if "completion" in kind else "share of exact answers about ")
                + f"{kind.rpartition('_')[2]} of LUME's {kind.partition('_')[0]} set",
                sets=(LUME,),
                direction="down" if kind.startswith("forget") else "up",
            )
            for kind in LUME_KINDS
        ),
        *(
            Column(
                column,
                loss_score,
                kind,
                f"loss on a {kind} document",
                sets=(LUME,),
                direction="none",
                range=(0.0, None),
                shown=False,
            )
            for kind, column in _LOSSES.items()
        ),
        AggregateColumn(
            "lume_task_aggregate",
            task_aggregate,
            "LUME task aggregate",
            "harmonic mean of LUME's twelve scores, those of the forget set as 1 minus the score",
            direction="up",
        ),
        AggregateColumn(
            "lume_mia_auc",
            attack_auc,
            "LUME attack AUC",
            "AUC of the loss attack on LUME's members against its non-members",
            direction="none",
        ),
        AggregateColumn(
            "lume_mia_score",
            mia_score,
            "LUME MIA score",
            "1 minus twice the distance of LUME's attack AUC from 1/2",
            direction="up",
        ),
        AggregateColumn(
            "lume_final",
            final_score,
            "LUME final score",
            "mean of LUME's task aggregate, MIA score and the accuracy on MMLU",
            direction="up",
        ),
    )

    def read(self) -> None:
        probes = self.session.benchmark_probes
        self._values: list[float | None] = [None] * len(probes)
        # The membership attack reads the documents, which a served model cannot.
        attacked = [index for index, probe in enumerate(probes) if probe.kind in _LOSSES]
        if self.session.model is not None and attacked:
            encoded = self.session.encode([probes[index].row for index in attacked], what="LUME's members")
            for index, row in zip(attacked, self.session.read(encoded, label="read members"), strict=True):
                self._values[index] = loss_score(row.logps[row.content])

    def prepare(self) -> None:
        answers = self.answer_probes(LUME_KINDS, _LUME_DECODING, label="lume")
        for index, (probe, answer) in enumerate(zip(self.session.benchmark_probes, answers, strict=True)):
            if answer is None:
                continue
            if probe.opening:
                self._values[index] = rouge_l_recall(probe.row.answer, answer)
            else:
                self._values[index] = same_answer(probe.row.answer, answer)

    def record(self) -> None:
        probes = zip(self.session.benchmark_probes, self._values, strict=True)
        measured = {probe.kind for probe, value in probes if value is not None}
        for kind in (*LUME_KINDS, *_LOSSES):
            if kind in measured:
                self.record_kind(kind, _LOSSES.get(kind, f"lume_{kind}"), self._values)

    def prompt(self, probe: Probe) -> Prompt:
        if self.session.config.lume_bare_questions and not probe.opening:
            return Prompt((), prefill=probe.row.question)
        return super().prompt(probe)

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        aggregate = sides.this.apply_formula(task_aggregate, [(LUME, f"lume_{kind}") for kind in LUME_KINDS])
        if aggregate is not None:
            yield "lume_task_aggregate", aggregate
        if not all(sides.this.has(LUME, column) for column in _LOSSES.values()):
            return
        used = tuple((LUME, column) for column in _LOSSES.values())
        area = attack_area(sides.this, (LUME, LUME), *(sides.this.values(*pair) for pair in used))
        score = combine(mia_score, area)
        yield "lume_mia_auc", AggregateMetric(area, used)
        yield "lume_mia_score", AggregateMetric(score, used)
        # The final score needs MMLU from the harness; without it, the other scores are given.
        mmlu = sides.tasks.get("mmlu")
        if aggregate is not None and mmlu is not None:
            accuracy = Estimate(mmlu, np.full_like(score.draws, mmlu))
            yield (
                "lume_final",
                AggregateMetric(combine(final_score, aggregate.estimate, score, accuracy), (*aggregate.used, *used)),
            )


_MUSE_ANSWER = Decoding(max_new_tokens=32, stop=("\n\n", "\nQuestion", "Question:"))
_MUSE_DECODING = {VERBMEM: Decoding(max_new_tokens=128), **dict.fromkeys(KNOWMEM, _MUSE_ANSWER)}


def first_tokens(text: str, tokenizer: Any, count: int) -> str:
    """The text of the first tokens, special ones included in their number as in MUSE's code."""
    return str(tokenizer.decode(tokenizer(text)["input_ids"][:count], skip_special_tokens=True))


class Muse(ProbeMetric):
    """VerbMem, KnowMem and PrivLeak of MUSE (Shi et al. 2024), in percent.

    Both are ROUGE-L F1 (`rouge_score`, no stemmer) of greedy answers. VerbMem continues the beginning of a text by 128 tokens
    and compares with the first 128 tokens of the rest. KnowMem answers a question after ten answered ones in at most 32
    tokens, up to an empty line or the next question. Utility is KnowMem on the retain set. PrivLeak is `privleak_min_k` of the
    metric membership.
    """

    name = "muse"
    about = "MUSE: VerbMem, KnowMem of forget and retain set (utility), and PrivLeak with the metric membership"
    cost = "one answer per probe"
    needs = (MUSE,)
    columns = (
        Percent(
            "verbmem",
            rouge_l_f1,
            "VerbMem",
            "ROUGE-L F1 of 128 tokens that continue a text of the forget set (Shi et al. 2024)",
            sets=(MUSE,),
            direction="down",
        ),
        Percent(
            "knowmem_forget",
            rouge_l_f1,
            "KnowMem forget",
            "ROUGE-L F1 of answers about the forget set, after ten answered questions (Shi et al. 2024)",
            sets=(MUSE,),
            direction="down",
        ),
        Percent(
            "knowmem_retain",
            rouge_l_f1,
            "KnowMem retain",
            "ROUGE-L F1 of answers about the retain set, after ten answered questions: utility (Shi et al. 2024)",
            sets=(MUSE,),
            direction="up",
        ),
        AggregateColumn(
            "muse_privleak",
            privleak,
            "PrivLeak",
            "AUC of Min-40% relative to the retain-only model's, in percent; 0 is ideal (Shi et al. 2024)",
            direction="none",
            range=(-100.0, None),
            digits=1,
        ),
    )

    def prepare(self) -> None:
        self._answers = {
            kind: self.answer_probes((kind,), decoding, label=kind) for kind, decoding in _MUSE_DECODING.items()
        }

    def record(self) -> None:
        for kind, answers in self._answers.items():
            self.record_kind(kind, kind, apply_known(self._score, self.session.benchmark_probes, answers))

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Yield PrivLeak, if the membership scores were measured, too."""
        if sides.this.has(MUSE, VERBMEM):
            yield from (
                ("muse_privleak", value) for name, value in Membership.derive(sides) if name == "privleak_min_k"
            )

    def _score(self, probe: Probe, answer: str) -> float:
        reference = probe.row.answer
        if probe.kind == VERBMEM:
            # The continuation has at most so many tokens, so the rest of the reference could not be said.
            reference = first_tokens(reference, self.session.tokenizer, _MUSE_DECODING[VERBMEM].max_new_tokens)
        return 100 * rouge_l_f1(reference, answer)


def loss_perplexity(loss: FloatArray) -> FloatArray:
    """Exp of the mean loss per token."""
    return np.exp(loss)


class KnowUnDo(Metric):
    """Teacher-forced accuracy and perplexity of the answers on both sets (KnowUnDo, Tian et al. 2024).

    Both follow the authors' `run_eval_lora.py`: the share of answer tokens that the model predicts, averaged over rows, and
    exp of the mean over rows of the loss per token, without the terminal token. Unlearning success is 100 minus the accuracy
    on what has to be unlearned, retention success the accuracy on what has to stay.
    """

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
        forget, retain = (map(row_exact_memorization, self.session.tokens(split)) for split in (FORGET, RETAIN))
        self.record_column(FORGET, "unlearn_success", apply_known(lambda share: 100 * (1 - share), forget))
        self.record_column(RETAIN, "retention_success", apply_known(lambda share: 100 * share, retain))
        self.record_tokens(answer_loss=lambda _, tokens: loss_score(tokens.logps[tokens.content]))
