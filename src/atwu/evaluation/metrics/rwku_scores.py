"""Scores of RWKU (Jin et al. 2024): FB, QA, AA, their means, and N_delta, neighbours minus targets.

A probe's score is the ROUGE-L recall of the greedy answer, in one of two flavours. `official` follows RWKU: 30 new
tokens, cut at the first line end, package `rouge` (words separated by white space, no stemming, an empty answer is
scored as NOANSWER). `port` follows open-unlearning: 100 new tokens, cut at the first blank line, `rouge_score` with
stemmer; its recalls are higher. N_delta in the literature is official.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from atwu._extras import require
from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import RWKU, AggregateColumn, Column
from atwu.evaluation.generations import Decoding
from atwu.evaluation.intervals import AggregateMetric
from atwu.evaluation.metric import MetricSetting, ProbeMetric
from atwu.evaluation.metrics.rouge import rouge_l_recall

if TYPE_CHECKING:
    from atwu.evaluation.columns import Direction
    from atwu.evaluation.intervals import ModelComparison

RwkuNumber = TypeVar("RwkuNumber", float, FloatArray)
Flavour = Literal["official", "port"]

NO_ANSWER = "NOANSWER"
"""Text that RWKU scores in place of an empty answer."""

DECODING: Mapping[str, Decoding] = {
    "official": Decoding(max_new_tokens=30, stop=("\n",)),
    "port": Decoding(max_new_tokens=100, stop=("\n\n",)),
}


def official_rouge_l_recall(reference: str, output: str) -> float | None:
    """ROUGE-L recall as RWKU reports it (Jin et al. 2024), range [0, 1], by the package `rouge`; None without words.

    The package splits texts into sentences at every full stop ("J. K." is two), joins the common subsequences of all
    pairs of sentences and counts distinct words: |words in any of them| / |distinct words of the reference|. So word
    order matters only within a sentence, and a repeated word counts once. One quirk is corrected: white space between
    full stops is not a word. An output without words is scored as `NO_ANSWER`.
    """
    expected, output_text = _sentences(reference), _sentences(output) or NO_ANSWER
    if not expected:
        return None
    return float(_official_scorer().get_scores(output_text, expected)[0]["rouge-l"]["r"])


def forget_all(fb: RwkuNumber, qa: RwkuNumber, aa: RwkuNumber) -> RwkuNumber:
    """Mean over the three kinds of target probes, each with equal weight."""
    return (fb + qa + aa) / 3


def neighbour_all(fb: RwkuNumber, qa: RwkuNumber) -> RwkuNumber:
    """Mean over the two kinds of neighbour probes, each with equal weight."""
    return (fb + qa) / 2


def n_delta(
    fb: RwkuNumber, qa: RwkuNumber, aa: RwkuNumber, neighbour_fb: RwkuNumber, neighbour_qa: RwkuNumber
) -> RwkuNumber:
    """Recall on neighbours minus recall on targets, in [-1, 1], higher is better."""
    return neighbour_all(neighbour_fb, neighbour_qa) - forget_all(fb, qa, aa)


RECALL = {"official": official_rouge_l_recall, "port": rouge_l_recall}
_KINDS: Mapping[str, tuple[Direction, str]] = {
    "fb": ("down", "fill-in-the-blank probes about the targets (FB)"),
    "qa": ("down", "question probes about the targets (QA)"),
    "aa": ("down", "adversarial probes about the targets (AA)"),
    "neighbour_fb": ("up", "fill-in-the-blank probes about neighbours of the targets"),
    "neighbour_qa": ("up", "question probes about neighbours of the targets"),
}
_TARGETS: tuple[str, ...] = ("fb", "qa", "aa")
_NEAR: tuple[str, ...] = ("neighbour_fb", "neighbour_qa")
_SUMS: Mapping[str, tuple[Any, tuple[str, ...], Direction, str, str]] = {
    "forget_all": (forget_all, _TARGETS, "down", "targets", "mean recall on target probes, over FB, QA and AA"),
    "neighbour_all": (neighbour_all, _NEAR, "up", "neighbours", "mean recall on neighbour probes, over FB and QA"),
    "N_delta": (n_delta, (*_TARGETS, *_NEAR), "up", "N Δ", "mean recall on neighbours minus mean recall on targets"),
}


def _columns(flavour: Flavour) -> Iterator[Column]:
    for kind, (direction, words) in _KINDS.items():
        meaning = f"ROUGE-L recall on RWKU's {words}, {flavour} settings (Jin et al. 2024)"
        yield Column(
            f"{kind}_{flavour}",
            RECALL[flavour],
            f"{kind}_{flavour}".replace("_", " "),
            meaning,
            sets=(RWKU,),
            direction=direction,
        )
    for name, (formula, _, direction, title, words) in _SUMS.items():
        yield AggregateColumn(
            f"{name}_{flavour}",
            formula,
            f"{title} ({flavour})",
            f"RWKU: {words}, {flavour} settings (Jin et al. 2024)",
            direction=direction,
            range=(-1.0, 1.0) if name == "N_delta" else (0.0, 1.0),
        )


class Rwku(ProbeMetric):
    name = "rwku"
    about = "RWKU's own probes: recall on targets (FB, QA, AA), recall on neighbours, and N_delta"
    cost = "one answer per probe and flavour"
    needs = (RWKU,)
    needs_weights = False
    default = True
    settings = (
        MetricSetting(
            "rwku_flavours",
            str,
            ("official",),
            "Settings for scoring RWKU's probes: official (RWKU) or port (open-unlearning).",
            many=True,
            choices=get_args(Flavour),
            flag="rwku-flavour",
        ),
    )
    columns = tuple(column for flavour in get_args(Flavour) for column in _columns(flavour))

    @classmethod
    def check(cls, config: SimpleNamespace) -> None:
        if "official" in config.rwku_flavours:
            require("rouge", extra="rwku")

    def prepare(self) -> None:
        self._recalls: dict[str, list[float | None]] = {}
        for flavour in self.session.config.rwku_flavours:
            said = self.answer_probes(_KINDS, DECODING[flavour], label=f"rwku {flavour}")
            self._recalls[flavour] = [
                None if text is None else RECALL[flavour](probe.row.answer, text)
                for probe, text in zip(self.session.benchmark_probes, said, strict=True)
            ]

    def record(self) -> None:
        for flavour, recalls in self._recalls.items():
            for kind in _KINDS:
                self.record_kind(kind, f"{kind}_{flavour}", recalls)

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        for flavour in get_args(Flavour):
            if not all(sides.this.has(RWKU, f"{kind}_{flavour}") for kind in _KINDS):
                continue
            for name, (formula, kinds, *_) in _SUMS.items():
                if found := sides.this.derived(formula, [(RWKU, f"{kind}_{flavour}") for kind in kinds]):
                    yield f"{name}_{flavour}", found


def _sentences(text: str) -> str:
    """Remove sentences without words, which the package counts as a word of length 0."""
    return ".".join(part for part in text.split(".") if part.strip())


@lru_cache(maxsize=1)
def _official_scorer() -> Any:
    return require("rouge", extra="rwku").Rouge(metrics=["rouge-l"], stats=["r"])
