"""VerbMem, KnowMem and PrivLeak of MUSE (Shi et al. 2024), in percent.

Both are ROUGE-L F1 (`rouge_score`, no stemmer) of greedy answers. VerbMem continues the beginning of a text by 128 tokens
and compares with the first 128 tokens of the rest. KnowMem answers a question after ten answered ones in at most 32
tokens, up to an empty line or the next question. Utility is KnowMem on the retain set. PrivLeak is `privleak_min_k` of the
metric membership.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from atwu.benchmarks.muse import KNOWMEM, VERBMEM
from atwu.evaluation.columns import MUSE, AggregateColumn, Percent
from atwu.evaluation.generations import Decoding
from atwu.evaluation.intervals import AggregateMetric
from atwu.evaluation.metric import ProbeMetric
from atwu.evaluation.metrics.membership import Membership, privleak
from atwu.evaluation.metrics.rouge import rouge_l_f1

if TYPE_CHECKING:
    from atwu.benchmarks.base import Probe
    from atwu.evaluation.intervals import ModelComparison

_ANSWER = Decoding(max_new_tokens=32, stop=("\n\n", "\nQuestion", "Question:"))
_DECODING = {VERBMEM: Decoding(max_new_tokens=128), **dict.fromkeys(KNOWMEM, _ANSWER)}


def first_tokens(text: str, tokenizer: Any, count: int) -> str:
    """The text of the first tokens, special ones included in their number as in MUSE's code."""
    return str(tokenizer.decode(tokenizer(text)["input_ids"][:count], skip_special_tokens=True))


class Muse(ProbeMetric):
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
            kind: self.answer_probes((kind,), decoding, label=kind) for kind, decoding in _DECODING.items()
        }

    def record(self) -> None:
        for kind, answers in self._answers.items():
            pairs = zip(self.session.benchmark_probes, answers, strict=True)
            self.record_kind(kind, kind, [None if text is None else self._score(probe, text) for probe, text in pairs])

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Yield PrivLeak, if the membership scores were measured, too."""
        if sides.this.has(MUSE, VERBMEM):
            yield from (
                ("muse_privleak", found) for name, found in Membership.derive(sides) if name == "privleak_min_k"
            )

    def _score(self, probe: Probe, answer: str) -> float:
        reference = probe.row.answer
        if probe.kind == VERBMEM:
            reference = first_tokens(reference, self.session.tokenizer, _DECODING[VERBMEM].max_new_tokens)
        return 100 * rouge_l_f1(reference, answer)
