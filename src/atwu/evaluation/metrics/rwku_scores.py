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
from atwu.data.schema import Message
from atwu.evaluation.columns import RWKU, AggregateColumn, Column
from atwu.evaluation.generations import Decoding, Prompt
from atwu.evaluation.intervals import AggregateMetric
from atwu.evaluation.metric import Metric, MetricSetting
from atwu.evaluation.metrics.rouge import rouge_l_recall

if TYPE_CHECKING:
    from atwu.benchmarks.base import ProbeKind, RwkuProbe
    from atwu.evaluation.columns import Direction
    from atwu.evaluation.row_statistics import ModelComparison

RwkuNumber = TypeVar("RwkuNumber", float, FloatArray)
Flavour = Literal["official", "port"]

NO_ANSWER = "NOANSWER"
"""Text that RWKU scores in place of an empty answer."""

DECODING: Mapping[str, Decoding] = {
    "official": Decoding(max_new_tokens=30, stop=("\n",)),
    "port": Decoding(max_new_tokens=100, stop=("\n\n",)),
}


def to_prompt(probe: RwkuProbe) -> Prompt:
    """Return the user turn of a probe, with `Answer:` as the start of the assistant's turn.

    A probe with an affirmative suffix has its own start of the answer.
    """
    from atwu.benchmarks.rwku_probes import probe_question

    prefill = "" if probe.attack == "affirmative suffix" else "Answer:"
    return Prompt((Message("user", probe_question(probe)),), prefill=prefill)


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
_KINDS: Mapping[ProbeKind, tuple[Direction, str]] = {
    "fb": ("down", "fill-in-the-blank probes about the targets (FB)"),
    "qa": ("down", "question probes about the targets (QA)"),
    "aa": ("down", "adversarial probes about the targets (AA)"),
    "neighbour_fb": ("up", "fill-in-the-blank probes about neighbours of the targets"),
    "neighbour_qa": ("up", "question probes about neighbours of the targets"),
}
_TARGETS: tuple[ProbeKind, ...] = ("fb", "qa", "aa")
_NEAR: tuple[ProbeKind, ...] = ("neighbour_fb", "neighbour_qa")
_SUMS: Mapping[str, tuple[Any, tuple[ProbeKind, ...], Direction, str, str]] = {
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


class Rwku(Metric):
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
        """Answer the probes; each flavour has its own decoding."""
        probes = self.session.benchmark_probes
        prompts = [to_prompt(probe) for probe in probes]
        self._recalls: dict[str, list[float | None]] = {}
        for flavour in self.session.config.rwku_flavours:
            said = self.session.generate(prompts, label=f"rwku {flavour}", decoding=DECODING[flavour])
            self._recalls[flavour] = [
                None if (text := said[prompt]) is None else RECALL[flavour](probe.answer, text)
                for probe, prompt in zip(probes, prompts, strict=True)
            ]

    def record(self) -> None:
        """Record the recalls of each kind, None for probes of other kinds, so that all kinds share resampled
        subjects."""
        probes = self.session.benchmark_probes
        for flavour, recalls in self._recalls.items():
            for kind in _KINDS:
                column = [recall if probe.kind == kind else None for probe, recall in zip(probes, recalls, strict=True)]
                self.record_column(RWKU, f"{kind}_{flavour}", column)

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
