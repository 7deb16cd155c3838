"""One tidy data frame of all numbers of all models, the tables made from it, and the names of metrics in them.

Every table (terminal, text, data, page) is a layout of this frame. Best and second-best values among the unlearned
models, and materially degraded general abilities, are marked as in the ATWU paper. Destroyed and unchanged models are not
ranked, because each wins half of the metrics trivially.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from atwu.evaluation.columns import FORGET, MUSE, OVERALL, RETAIN, TASKS, Direction
from atwu.evaluation.registry import short_name
from atwu.evaluation.result import ARROWS, EvalResult, MetricValue, format_interval, format_number, measured_numbers
from atwu.evaluation.result_checks import find_degraded

REFERENCE_MODELS = ("original", "retain-only")
"""Reference models, which are not ranked."""
MISSING_CELL = "–"

MetricKey = tuple[str, str]
"""Set (or `OVERALL`) and metric."""
Mark = Literal["best", "second", "degraded"]

PANEL: tuple[MetricKey, ...] = (
    ("forget", "extraction_strength"),
    ("retain", "extraction_strength"),
    (OVERALL, "ES_delta"),
    ("forget", "J_P"),
    ("forget", "J_ICR"),
    ("forget", "J_W"),
    ("retain", "J_AVG"),
    (OVERALL, "FQ"),
    (OVERALL, "RD"),
    (OVERALL, "UQ"),
    ("instructions", "repetitiveness"),
    ("instructions", "win_rate"),
)
"""Metrics of the paper's panel."""
LEADING_METRICS: tuple[MetricKey, ...] = (
    (OVERALL, "UQ"),
    (OVERALL, "ES_delta"),
    (OVERALL, "N_delta_official"),
    (OVERALL, "N_delta_port"),
    *PANEL,
)
"""Metrics that rank methods, in order of priority: the first one with a value is used, and tables begin with it."""
HEADLINE: tuple[tuple[MetricKey, ...], ...] = (
    *((key,) for key in PANEL),
    ((OVERALL, "model_utility"),),
    ((OVERALL, "mia_auc_min_k"), (OVERALL, "mia_auc_loss")),
    (("forget", "auroc_scorer"),),
    ((OVERALL, "forget_all_official"), (OVERALL, "forget_all_port")),
    ((OVERALL, "neighbour_all_official"), (OVERALL, "neighbour_all_port")),
    ((OVERALL, "N_delta_official"), (OVERALL, "N_delta_port")),
    ((OVERALL, "general_text_perplexity"),),
    *(((OVERALL, f"lume_{name}"),) for name in ("task_aggregate", "mia_score", "final")),
    *(((MUSE, name),) for name in ("verbmem", "knowmem_forget", "knowmem_retain")),
    ((OVERALL, "muse_privleak"),),
    *(((TASKS, name),) for name in ("wmdp_bio", "wmdp_cyber", "mmlu")),
    ((FORGET, "unlearn_success"),),
    ((RETAIN, "retention_success"),),
    ((OVERALL, "retain_perplexity"),),
)
"""The headline table: the panel and further metrics; from each group the first that is available."""

SUBSCRIPT = re.compile(r"\b(J|ES|N)[_ ](F|R|P|ICR|W|AVG|Δ)(?!\w)")
"""Names with a subscript: J_W, ES Δ."""

_HEADS: dict[MetricKey, str] = {
    ("forget", "extraction_strength"): "ES_F",
    ("retain", "extraction_strength"): "ES_R",
    (OVERALL, "ES_delta"): "ES_Δ",
    ("instructions", "repetitiveness"): "Rep.",
    ("instructions", "win_rate"): "WR",
    (OVERALL, "model_utility"): "MU",
    (OVERALL, "mia_auc_min_k"): "MIA min-k",
    (OVERALL, "mia_auc_loss"): "MIA loss",
    ("forget", "auroc_scorer"): "AUROC scorer",
    (OVERALL, "forget_all_official"): "targets (official)",
    (OVERALL, "forget_all_port"): "targets (port)",
    (OVERALL, "neighbour_all_official"): "neighbours (official)",
    (OVERALL, "neighbour_all_port"): "neighbours (port)",
    (OVERALL, "N_delta_official"): "N_Δ (official)",
    (OVERALL, "N_delta_port"): "N_Δ (port)",
} | {(split, metric): metric for split, metric in PANEL if metric.isupper() or metric.startswith("J_")}


def metric_label(key: MetricKey) -> str:
    split, metric = key
    if split == OVERALL:
        return short_name(metric, split)
    return f"{split} {short_name(metric, split)}"


def cell_of(result: EvalResult, key: MetricKey) -> MetricValue | None:
    """Return a model's value of a metric; None if there is no number."""
    split, metric = key
    cells = result.sets.get(split, {})
    if split == OVERALL:
        cells = result.overall
    cell = cells.get(metric)
    if cell is None or cell.value is None or math.isnan(cell.value):
        return None
    return cell


DESTROYED, UNTOUCHED, REFERENCE_COPY = "destroyed", "untouched", "unchanged"
MEANING = {
    DESTROYED: "less than half of the retained knowledge is left, by every metric of it",
    UNTOUCHED: "the forget set is known as well as before, by every metric of it",
    REFERENCE_COPY: "its weights are those of a reference model",
}
RETAIN_METRICS = ("extraction_strength", "probability", "rouge_l_recall", "J_AVG")
FORGET_METRICS = ("extraction_strength", "probability", "rouge_l_recall", "J_P")
"""Metrics of knowledge of the retain set, and of the forget set."""
DESTROYED_SHARE, UNTOUCHED_SHARE = 0.5, 0.95
"""Share of the original model's value below which retained knowledge counts as lost, and above which nothing counts
as forgotten."""
DATA = ("label", "seeds", "set", "metric", "value", "low", "high", "seed_std", "n", "direction")
"""Data columns; the others control the display."""
_COLUMNS = (*DATA, "digits", "number", "spread", "interval", "told", "lost", "reference")


def table_of(results: Mapping[str, EvalResult]) -> Table:
    """Return the table of some results; numbers that only some of the averaged runs have are not ranked.

    Its frame has one row per model and metric, model by model, set by set, derived metrics last. `number`, `spread` (over
    seeds), `interval`, `told` (`2 of 3 seeds`) and `lost` (how a general ability is degraded) are text; `place` is the rank
    among unlearned models, and `mark` is best, second, degraded or empty.
    """
    original, out = results.get("original"), standings(results)
    rows: list[dict[str, Any]] = []
    for label, result in results.items():
        count, reference = seeds_of(result), label in REFERENCE_MODELS
        lost = {}
        if not reference:
            lost = {(split, name): sentence for split, name, sentence in find_degraded(result, original)}
        for split, metric, cell in measured_numbers(result):
            spread = seeds = ""
            if cell.seed_std is not None:
                spread = format_number(cell.seed_std, cell.digits)
            if cell.seeds < count:
                seeds = f"{cell.seeds} of {count} seeds"
            text = {
                "number": format_number(cell.value, cell.digits),
                "spread": spread,
                "interval": format_interval(cell),
                "told": seeds,
                "lost": lost.get((split, metric), ""),
                "reference": reference,
            }
            rows.append({"label": label, "set": split, "metric": metric} | dataclasses.asdict(cell) | text)
    # Without rows, all columns would be of objects, and pandas takes a mask of objects for names of columns.
    frame = pd.DataFrame(rows, columns=_COLUMNS).astype({"reference": bool})
    # A column of None alone would be of objects, too.
    numbers = ["value", "low", "high", "seed_std"]
    frame[numbers] = frame[numbers].astype(float)
    measured = list(dict.fromkeys(zip(frame.set, frame.metric, strict=True)))
    sets = [name for name in dict.fromkeys(split for split, _ in measured) if name != OVERALL]
    keys = sorted(measured, key=lambda key: [*sets, OVERALL].index(key[0]))
    return Table(_rank(frame, out), keys, list(results), out)


def _rank(frame: pd.DataFrame, out: Collection[str]) -> pd.DataFrame:
    """Add `place` and `mark`, without models `out`: equal printed values share a place, of two models one is marked."""
    unranked = frame.reference | frame.label.isin(list(out)) | (frame.told != "") | (frame.direction == "none")
    ranked = frame[~unranked]
    # By the printed number: a reader sees no difference between models that print the same.
    number = ranked.number.astype(float)
    columns = [ranked.set, ranked.metric]
    place = number.where(ranked.direction == "down", -number).groupby(columns).rank("min")
    # Without a second place all values are equal, or there is one model: then none is best.
    runner_up = place.where(place > 1).groupby(columns).transform("min")
    mark = pd.Series("", frame.index)
    mark[place.index[(place == 1) & runner_up.notna()]] = "best"
    mark[place.index[(place == runner_up) & (place.groupby(columns).transform("size") > 2)]] = "second"
    return frame.assign(place=place, mark=mark.where(frame.lost == "", "degraded"))


@dataclass(frozen=True, slots=True)
class Head:
    key: MetricKey
    name: str
    direction: Direction
    count: str
    """Number of rows it was evaluated on, as a range if models differ."""

    @property
    def text(self) -> str:
        """Short name and arrow."""
        return self.name + ARROWS[self.direction]

    @property
    def full(self) -> str:
        """Set, metric and arrow, as in the data."""
        return " ".join(self.key) + ARROWS[self.direction]


@dataclass(frozen=True)
class Table:
    frame: pd.DataFrame
    """Numbers of these metrics, as made by `table_of`."""
    keys: list[MetricKey]
    """Set by set, derived metrics last."""
    labels: Sequence[str]
    out: Mapping[str, str]
    """Models other than references that are not ranked, and why in a word (`standing`)."""

    def shown(self, label: str) -> str:
        """A model's name, with the reason why it is not ranked."""
        if label in self.out:
            return f"{label} ({self.out[label]})"
        return label

    @property
    def ruled(self) -> list[str]:
        """Models below a rule: a method that follows references."""
        pairs = itertools.pairwise(self.labels)
        return [label for above, label in pairs if above in REFERENCE_MODELS and label not in REFERENCE_MODELS]

    def only(self, keys: Sequence[MetricKey]) -> Table:
        """The same with some metrics, in this order."""
        wanted = pd.MultiIndex.from_frame(self.frame[["set", "metric"]]).isin(keys)
        return replace(self, frame=self.frame[wanted], keys=list(keys))

    @cached_property
    def heads(self) -> list[Head]:
        by_metric: dict[MetricKey, pd.DataFrame] = dict(iter(self.frame.groupby(["set", "metric"])))
        heads = []
        for key in self.keys:
            direction: Direction = "none"
            count = "0"
            rows = by_metric.get(key)
            if rows is not None:
                direction = rows.direction.iloc[0]
                count = format_range(rows.n)
            heads.append(Head(key, _HEADS.get(key) or metric_label(key), direction, count))
        return heads

    def cells(self, write: Callable[[Any], Any], missing: Any = "") -> pd.DataFrame:
        """One row per model, one column per metric; `write` makes a cell of a row of the frame."""
        written = pd.Series([write(cell) for cell in self.frame.itertuples()], self.frame.index, dtype=object)
        wide = self.frame.assign(written=written).pivot(index="label", columns=["set", "metric"], values="written")
        # `pivot` sorts rows and columns by name, and leaves out what has no cell.
        wide = wide.reindex(
            index=list(self.labels), columns=pd.MultiIndex.from_tuples(self.keys, names=["set", "metric"])
        )
        return wide.map(lambda cell: missing if isinstance(cell, float) else cell)  # NaN: missing combination

    def caption(self, marks: Mapping[Mark, str], *, intervals: bool = True) -> list[str]:
        """Notes needed to read the table, one sentence each without full stop; `marks`: what the marks look like."""
        notes = []
        # What the table does not show needs no note.
        if (self.frame.spread != "").any():
            means = "Numbers are means over seeds"
            if intervals:
                means += ", ± their standard deviation"
            notes.append(means)
        bracketed: set[str] = set()
        if intervals:
            bracketed = set(self.frame.set[self.frame.interval != ""])
        if bracketed - {TASKS}:
            notes.append("In brackets: 95 % bootstrap intervals, resampled by subject")
        if TASKS in bracketed:
            notes.append("For tasks: 95 % intervals from the harness's standard errors")
        shown = [text for mark, text in marks.items() if (self.frame.mark == mark).any()]
        if shown:
            notes.append(", ".join(shown).capitalize())
        return notes + self.reasons_not_ranked()

    def reasons_not_ranked(self) -> list[str]:
        """Return why models are not ranked, one sentence per reason, without full stops."""
        labels: dict[str, list[str]] = {}
        for label, word in self.out.items():
            labels.setdefault(word, []).append(label)
        return [
            f"Not ranked, because {word} ({meaning}): {', '.join(labels[word])}"
            for word, meaning in MEANING.items()
            if word in labels
        ]


def seeds_of(result: EvalResult) -> int:
    """Return the number of runs that a result averages."""
    return max((cell.seeds for *_, cell in measured_numbers(result)), default=1)


def format_range(numbers: Iterable[int]) -> str:
    """`38–40`, or one number if all are equal."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    if low == high:
        return str(low)
    return f"{low}–{high}"


def format_duration(seconds: float) -> str:
    """`85.0 s`, `12.5 min` or `3.1 h`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def standing(result: EvalResult, original: EvalResult | None) -> str:
    """Return `destroyed` or `untouched`; an empty text for a ranked model, and if the original model was not evaluated."""
    if original is None:
        return ""

    def shares(split: str, names: Sequence[str]) -> list[float]:
        """Values as shares of the original model's values, where those are above 0."""
        cells = [(cell_of(result, (split, name)), cell_of(original, (split, name))) for name in names]
        pairs = [(now.value or 0.0, before.value) for now, before in cells if now is not None and before is not None]
        return [now / before for now, before in pairs if before]

    left, known = shares(RETAIN, RETAIN_METRICS), shares(FORGET, FORGET_METRICS)
    if left and max(left) < DESTROYED_SHARE:
        return DESTROYED
    if known and min(known) > UNTOUCHED_SHARE:
        return UNTOUCHED
    return ""


def standings(results: Mapping[str, EvalResult]) -> dict[str, str]:
    """Return the status of models that are not ranked, by name."""
    references = {results[role].fingerprint for role in REFERENCE_MODELS if role in results}
    words = {}
    for label, result in results.items():
        if label in REFERENCE_MODELS:
            continue
        word = standing(result, results.get("original"))
        if result.fingerprint in references:
            word = REFERENCE_COPY
        if word:
            words[label] = word
    return words
