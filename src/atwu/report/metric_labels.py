"""Metrics of reports: their values in a result, those of the headline table, and their short names. Does not need pandas."""

from __future__ import annotations

import math
import re
from typing import Literal

from atwu.evaluation.columns import FORGET, MUSE, OVERALL, RETAIN, TASKS
from atwu.evaluation.registry import find_column, short_name
from atwu.evaluation.result import EvalResult, MetricValue

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


def head_name(key: MetricKey) -> str:
    """Return the name of a metric in the headline table; J_W means J with subscript W."""
    return _HEADS.get(key) or metric_label(key)


def metric_label(key: MetricKey) -> str:
    """Return set and metric in words."""
    split, metric = key
    return short_name(metric, split) if split == OVERALL else f"{split} {short_name(metric, split)}"


def is_attack(key: MetricKey) -> bool:
    """Whether a metric is measured under an attack or with adversarial prompts."""
    found = find_column(key[1], key[0])
    return found is not None and found[0].attack


def cell_of(result: EvalResult, key: MetricKey) -> MetricValue | None:
    """Return a model's value of a metric; None if there is no number."""
    split, metric = key
    cell = (result.overall if split == OVERALL else result.sets.get(split, {})).get(metric)
    return None if cell is None or cell.value is None or math.isnan(cell.value) else cell
