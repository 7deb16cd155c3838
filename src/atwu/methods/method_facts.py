"""Description of a method as plain data: formulas, needs, hyperparameters and an example command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atwu._names import source_location
from atwu.methods.citations import CITATIONS
from atwu.methods.component import ForgetLoss, RetainLoss
from atwu.methods.component_options import Range
from atwu.methods.method_table import Method
from atwu.methods.presets import PUBLISHED, find_preset
from atwu.methods.recipe import Recipe, recipe

REDUCTION_TEXT: Mapping[str, str] = {
    "tokens": "mean over tokens",
    "selected": "mean over selected tokens",
    "sequences": "mean over sequences",
    "row_means": "mean over tokens of each row, then mean over rows",
}
"""Description of each reduction."""

TARGET_COMMAND = (
    "atwu finetune --scratch people-tiny --data people:tiny:full --output target \\\n"
    "  --learning-rate 3e-3 --num-train-epochs 30 \\\n"
    "  --warmup-steps 0.05 --weight-decay 0"
)
"""Command that creates the original model of the examples."""


def search_ranges(row: Method, decided: Recipe) -> dict[str, Range | None]:
    """Return the search range of each hyperparameter: the published range of the method, otherwise that of the component."""
    return {name: row.search.get(name, decided.options[name].search) for name in decided.values}


def range_text(where: Range | None) -> str:
    """Format a search range; empty if the number is not searched."""
    return "" if where is None else f"{where.low:g} to {where.high:g}"


@dataclass(frozen=True, slots=True)
class PublishedValues:
    """Published values of a method on one benchmark."""

    values: Mapping[str, float]
    learning_rates: Mapping[str, float]
    """Learning rate by model."""
    presets: tuple[str, ...]
    """Preset names for --config."""


def published_values(name: str) -> dict[str, PublishedValues]:
    """Return published values by benchmark; the models of one benchmark differ only in the learning rate."""
    published: dict[str, PublishedValues] = {}
    for benchmark, settings in PUBLISHED.items():
        matching = [preset for setting in settings if (preset := find_preset(setting, name)) is not None]
        if matching:
            rates = {str(preset.about["model"]): float(preset.options["learning_rate"]) for preset in matching}
            published[benchmark] = PublishedValues(matching[0].values, rates, tuple(preset.name for preset in matching))
    return published


def formula(component: type[ForgetLoss] | type[RetainLoss] | ForgetLoss | RetainLoss | None) -> tuple[str, str]:
    """Return the formula per token or sequence, and the name of the reduction."""
    if component is None:
        return "none", ""
    return component.formula.removesuffix(f", {REDUCTION_TEXT[component.reduction]}"), component.reduction


def formula_with_mean(formula: str, mean: str) -> str:
    """Return the formula followed by a description of the reduction."""
    return f"{formula}, {REDUCTION_TEXT[mean]}" if mean else formula


def trained_parameters(decided: Recipe) -> str:
    """Describe which parameters of the model are trained."""
    if decided.forgetter.trained_layers(1) is not None:
        return "mlp.down_proj of layers ℓ-2, ℓ-1 and ℓ"
    return "all parameters that are not frozen"


def component_sources(decided: Recipe) -> list[str]:
    """Return file and class of weighting, forget loss and retain loss."""
    components = (*decided.weighters, decided.forgetter, decided.retainer)
    return [source_location(type(component)) for component in components if component is not None]


def example(name: str, needs: Sequence[str]) -> str:
    """Return a command that runs the method on the smallest built-in benchmark."""
    retain = " --retain people:tiny:retain" if "retain" in needs else ""
    lines = [
        f"atwu unlearn --model target --method {name} --output unlearned",
        f"--forget people:tiny:forget{retain} --learning-rate 3e-4",
    ]
    return " \\\n  ".join([*lines, "--noun-finder simple"] if "noun_finder" in needs else lines)


def as_plain(name: str, row: Method) -> dict[str, Any]:
    """Return the whole description as JSON-compatible data."""
    decided = recipe(name)
    searched = {key: where for key, where in search_ranges(row, decided).items() if where is not None}
    return {
        "title": row.title,
        "weighting": row.weighting,
        "forget_loss": row.forget_loss,
        "retain_loss": row.retain_loss,
        "cite": row.cite,
        "citation": CITATIONS.get(row.cite, row.cite),
        "formula": {
            "weight": [weighter.formula for weighter in decided.weighters],
            "forget": decided.forgetter.formula,
            "retain": None if decided.retainer is None else decided.retainer.formula,
        },
        "reduction": decided.forgetter.reduction,
        "needs": list(decided.needs),
        "trains": trained_parameters(decided),
        "code": component_sources(decided),
        "hyperparameters": decided.values,
        "search": {key: [where.low, where.high] for key, where in searched.items()},
        "searched_linearly": [key for key, where in searched.items() if not where.log],
        "published": {
            benchmark: {
                "values": dict(tuned.values),
                "learning_rates": dict(tuned.learning_rates),
                "presets": list(tuned.presets),
            }
            for benchmark, tuned in published_values(name).items()
        },
        "borrowed_from": row.values_from,
    }
