"""ROUGE-L recall of the greedy answer against the reference answer: of rows, and of RWKU's probes (Jin et al. 2024).

Of rows it uses `rouge_score` with the settings of open-unlearning: Porter stemmer, lower case, only a-z and 0-9, so text in
other scripts has no words.

RWKU's scores are FB, QA, AA, their means, and N_delta, neighbours minus targets, in one of two flavours. `official` follows
RWKU: 30 new tokens, cut at the first line end, package `rouge` (words separated by white space, no stemming, an empty answer
is scored as NOANSWER). `port` follows open-unlearning: 100 new tokens, cut at the first blank line, `rouge_score` with
stemmer; its recalls are higher. N_delta in the literature is official. The two recalls differ except on short ASCII texts
without repetition; do not mix them in one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, get_args

from atwu._extras import require, without_init
from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET_OR_RETAIN, RWKU, AggregateColumn, Column, Direction, apply_known
from atwu.evaluation.generations import Decoding
from atwu.evaluation.intervals import AggregateMetric, ModelComparison
from atwu.evaluation.metric import Metric, MetricSetting, ProbeMetric


def rouge_l_recall(reference: str, output: str) -> float | None:
    """Share of the reference's words that the output contains in order: LCS(reference, output) / words(reference).

    Range [0, 1]; lower is better on the forget set, higher on retain sets. Extra words in the output cost nothing, so
    long answers can score high.

    Returns:
        The recall; 0.0 for an empty output; None if the reference has no word for `rouge_score` (skip the row).
    """
    scorer = _scorer(stemmed=True)
    # A text in another script has no words for it, and a recall of 0 would look like forgetting.
    if not scorer._tokenizer.tokenize(reference):
        return None
    return float(scorer.score(reference, output)["rougeL"].recall)


def rouge_l_f1(reference: str, output: str) -> float:
    """Harmonic mean of the shares of the reference's and of the output's words in their longest common subsequence.

    As in MUSE, without stemmer. Range [0, 1]; 0 if one of the two has no word.
    """
    return float(_scorer(stemmed=False).score(reference, output)["rougeL"].fmeasure)


@lru_cache(maxsize=2)
def _scorer(*, stemmed: bool) -> Any:
    """Build the scorer once; each word is stemmed once."""
    with without_init("nltk", "stem"):
        from nltk.stem.porter import PorterStemmer
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenize import tokenize

    stemmer = None
    if stemmed:
        stemmer = SimpleNamespace(stem=lru_cache(maxsize=1 << 16)(PorterStemmer().stem))
    # The scorer's own tokenizer logs through absl, which changes the format of all later warnings.
    return RougeScorer(["rougeL"], tokenizer=SimpleNamespace(tokenize=lambda text: tokenize(text, stemmer)))


class Rouge(Metric):
    name = "rouge"
    about = "ROUGE-L recall of the greedy answer"
    cost = "one answer per row"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    default = True
    asks = True
    uses = ("max_new_tokens",)
    columns = (
        Column(
            "rouge_l_recall",
            rouge_l_recall,
            "ROUGE-L",
            "ROUGE-L recall: share of the reference answer's words that the greedy answer contains in order",
        ),
    )

    def record(self) -> None:
        for split in self.session.forget_and_retain_sets:
            answers = tuple(text or "" for text in self.session.question_answers(split))
            self.session.rows[split].texts["answer"] = answers
            recalls = self.session.score_answers(split, lambda row, text: rouge_l_recall(row.answer, text))
            self.record_column(split, "rouge_l_recall", recalls)


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
    # The ATWU paper calls AA a worst case, but RWKU's code and the authors' average all of its probes.
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
            # Each flavour has answers of its own: they differ in length and where a text is cut.
            said = self.answer_probes(_KINDS, DECODING[flavour], label=f"rwku {flavour}")
            references = [probe.row.answer for probe in self.session.benchmark_probes]
            self._recalls[flavour] = apply_known(RECALL[flavour], references, said)

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
                derived = sides.this.apply_formula(formula, [(RWKU, f"{kind}_{flavour}") for kind in kinds])
                if derived is not None:
                    yield f"{name}_{flavour}", derived


def _sentences(text: str) -> str:
    """Remove sentences without words, which the package counts as a word of length 0."""
    return ".".join(part for part in text.split(".") if part.strip())


@lru_cache(maxsize=1)
def _official_scorer() -> Any:
    return require("rouge", extra="rwku").Rouge(metrics=["rouge-l"], stats=["r"])
