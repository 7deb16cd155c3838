"""Which lines the headline table shows, and names and definitions of metrics that fit the head of a column and a glossary."""

from __future__ import annotations

import re

from atwu.report.values import OVERALL, Line

PANEL: tuple[Line, ...] = (
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
"""The lines of the paper's panel."""
HEADLINE: tuple[tuple[Line, ...], ...] = (
    *((line,) for line in PANEL),
    ((OVERALL, "model_utility"),),
    ((OVERALL, "mia_auc_min_k"), (OVERALL, "mia_auc_loss")),
    (("forget", "auroc_scorer"),),
    ((OVERALL, "forget_all_official"), (OVERALL, "forget_all_port")),
    ((OVERALL, "neighbour_all_official"), (OVERALL, "neighbour_all_port")),
    ((OVERALL, "N_delta_official"), (OVERALL, "N_delta_port")),
)
"""The headline table: the panel and what follows it; of each group the first that was measured."""

SUBSCRIPT = re.compile(r"\b(J|ES|N)[_ ](F|R|P|ICR|W|AVG|Δ)(?!\w)")
"""Names of which a part stands below the line: J_W, ES Δ."""

_HEADS: dict[Line, str] = {
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
_NAMES = {
    "extraction_strength": "ES",
    "extraction_strength_floored": "ES floored",
    "exact_memorization": "EM",
    "probability": "probability",
    "probability_with_options": "probability, options",
    "rouge_l_recall": "ROUGE-L",
    "ES_delta": "ES Δ",
    "ES_delta_floored": "ES Δ floored",
    "N_delta": "N Δ",
    "truth_ratio": "truth ratio",
    "truth_ratio_arithmetic": "truth ratio, arithmetic",
    "model_utility": "model utility",
    "forget_quality_p": "forget quality p",
    "forget_quality_log10_p": "forget quality log₁₀ p",
    "forget_quality_distance": "forget quality distance",
    "win_rate": "win rate",
    "auroc_scorer": "AUROC",
    "repetitiveness": "Rep.",
}
_ATTACKS = {
    "relearn_forget": "relearning on forget rows",
    "relearn_retain": "relearning on retain rows",
    "int8": "rounding to 8 bits",
    "int4": "rounding to 4 bits",
}
_DEFINITIONS = {
    "extraction_strength": (
        "extraction strength: how much of the end of an answer greedy decoding gives away by itself; 1 is all of it "
        "(Carlini et al. 2021)"
    ),
    "extraction_strength_floored": "extraction strength of at least one token, as in published tables",
    "exact_memorization": "share of answer tokens predicted right when the tokens before them are given",
    "probability": "probability of the answer per token (geometric mean)",
    "probability_with_options": "probability of the true answer among it and the false ones",
    "rouge_l_recall": "share of the answer's words that the greedy answer repeats in order",
    "ES_delta": "ES on retain rows minus ES on forget rows",
    "ES_delta_floored": "the same with the floor",
    "J_P": "percent of forget rows whose fact is stated in answer to the question or one of its paraphrases",
    "J_ICR": "the same with three answered retain questions shown first",
    "J_W": "percent of forget rows that leak in either way",
    "J_AVG": "percent of wordings answered right on rows to keep",
    "FQ": "forgetting, in percent: 1 − J_W / J_W of the starting model",
    "RD": "damage to what should be kept, in percent: 1 − J_AVG / J_AVG of the starting model",
    "UQ": "unlearning quality: FQ − RD, nothing below 0",
    "repetitiveness": "repetitiveness: entropy of word pairs and triples in open answers × 100; low is repetitive text",
    "auroc_scorer": "how well the learned token scores find the secret words of a row; 0.5 is chance, 1 is perfect",
    "win_rate": "percent of open answers that the judge prefers to the starting model's; 50 is neutral",
    "truth_ratio": "is the true answer likelier than false ones, scaled so that the goal of the set is 1 (Maini et al. 2024)",
    "truth_ratio_arithmetic": "truth ratio with the arithmetic mean over false answers",
    "model_utility": "harmonic mean of probability, ROUGE and truth ratio over what is to be kept (Maini et al. 2024)",
    "forget_quality_p": "p-value: are the truth ratios those of a model that never saw the forget rows? (Maini et al. 2024)",
    "forget_quality_log10_p": "the same as a power of ten",
    "forget_quality_distance": "Kolmogorov-Smirnov distance behind that p-value",
    "N_delta": "RWKU: neighbours kept minus targets left (Jin et al. 2024)",
    "forget_all": "RWKU: mean over kinds of probes of the targets (Jin et al. 2024)",
    "neighbour_all": "RWKU: mean over kinds of probes of the neighbours (Jin et al. 2024)",
}
_PREFIXES = (
    (
        "auroc_",
        "score AUROC, ",
        "how well these token scores find the secret words of a row; 0.5 is chance, 1 is perfect",
    ),
    ("mia_auc_", "attack AUC, ", "how well this attack tells forget rows from unseen rows; 0.5: not at all"),
    ("privleak_", "privleak, ", "distance of that to the retain-only model's; 0 is ideal (Shi et al. 2024)"),
    ("leak_", "leak, ", "percent of forget rows whose fact this kind of question brings up (Jin et al. 2024)"),
    ("N_delta", "N Δ", _DEFINITIONS["N_delta"]),
    ("forget_all", "targets", _DEFINITIONS["forget_all"]),
    ("neighbour_all", "neighbours", _DEFINITIONS["neighbour_all"]),
)


def head_name(line: Line) -> str:
    """How a line is called in the headline table; J_W means J with a W below it."""
    return _HEADS.get(line) or line_name(line)


def short_name(metric: str) -> str:
    """How a metric is called at the head of a column."""
    if metric in _NAMES:
        return _NAMES[metric]
    if metric.startswith("recovered_"):
        return f"recovered {short_name(metric.removeprefix('recovered_'))}"
    base, _, attack = metric.partition("@")
    if attack:
        return f"{short_name(base)} after {_ATTACKS.get(attack, attack)}"
    for prefix, name, _ in _PREFIXES:
        if metric.startswith(prefix):
            rest = metric.removeprefix(prefix).strip("_").replace("_", " ")
            return (f"{name} ({rest})" if rest and prefix in _DEFINITIONS else f"{name}{rest}").strip(" ,")
    return metric.replace("_", " ") if metric.islower() else metric


def definition(metric: str) -> str | None:
    """What it measures, in one sentence without a full stop; None where there is nothing to say."""
    if metric in _DEFINITIONS:
        return _DEFINITIONS[metric]
    if metric.startswith("recovered_"):
        return "percent of what was forgotten that the attack brings back"
    base, _, attack = metric.partition("@")
    if attack:
        return f"{short_name(base)} of forget rows after {_ATTACKS.get(attack, attack)}"
    return next((meaning for prefix, _, meaning in _PREFIXES if metric.startswith(prefix)), None)


def line_name(line: Line) -> str:
    """Set and metric in words."""
    split, metric = line
    return short_name(metric) if split == OVERALL else f"{split} {short_name(metric)}"


def is_attack(line: Line) -> bool:
    """Whether a line tells what an attack or an adversarial question brings back."""
    metric = line[1]
    return "@" in metric or metric.startswith(("leak_", "mia_auc_", "privleak_", "recovered_"))
