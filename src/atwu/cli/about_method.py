"""What there is to say about one method of the table, as plain data: formulas, needs, values and an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atwu.methods.hyperparameters import Range
    from atwu.methods.parts import ForgetLoss, RetainLoss
    from atwu.methods.recipe import Recipe
    from atwu.methods.table import Method

MEANS: Mapping[str, str] = {
    "tokens": "mean over tokens",
    "selected": "mean over selected tokens",
    "sequences": "mean over sequences",
    "row_means": "mean over rows of each one's mean over tokens",
}
"""Reductions in words."""

NEEDS: Mapping[str, str] = {
    "retain": "retain rows (--retain)",
    "labels": "secret tokens: forget_spans in the forget rows, or --forget-words",
    "scorer": "a token scorer, learned on the way (--scorer-..., --preset)",
    "starting_logps": "log-probabilities of the starting model, read before training",
    "reference_logps": "log-probabilities of the starting model (--reference)",
    "reference_distributions": "next-token distributions of the starting model (--reference)",
    "reference_activations": "one layer's outputs of the starting model (--reference)",
    "alternates": "alternate answers: of the rows, else refusals drawn for every epoch",
    "auxiliary_models": "two auxiliary models (--auxiliary-forget, --auxiliary-retain), else trained and cached",
    "text": "forget rows as text, not as token ids",
    "noun_finder": "a noun finder (--noun-finder: a spaCy model, or simple)",
    "refusal": "a refusal to aim at (--refusal), and the tokenizer for it",
}
"""What a method may need besides forget rows."""

TARGET_COMMAND = (
    "atwu finetune --scratch people-tiny --data people:tiny:full --output target \\\n"
    "  --learning-rate 3e-3 --num-train-epochs 30 \\\n"
    "  --warmup-steps 0.05 --weight-decay 0"
)
"""Makes the starting model of the examples."""


def needs_of(recipe: Recipe) -> list[str]:
    """Keys of `NEEDS`."""
    loss, retainer, weighters = recipe.forgetter, recipe.retainer, recipe.weighters
    auxiliary = any(weighter.needs_auxiliary for weighter in weighters)
    nouns = any(weighter.needs_answers for weighter in weighters)
    asked = {
        "retain": recipe.needs_retain_rows or auxiliary,
        "labels": recipe.needs_labels,
        "scorer": recipe.needs_scorer,
        "starting_logps": any(weighter.needs_ref_logps for weighter in weighters),
        "reference_logps": loss.needs_ref_logps,
        "reference_distributions": loss.needs_teacher or (retainer is not None and retainer.needs_teacher),
        "reference_activations": retainer is not None and retainer.layer,
        "alternates": recipe.needs_alternate,
        "auxiliary_models": auxiliary,
        "text": nouns or recipe.needs_alternate,
        "noun_finder": nouns,
        "refusal": loss.ids == "refusal",
    }
    return [need for need, needed in asked.items() if needed]


def numbers_of(recipe: Recipe) -> dict[str, float]:
    """Hyperparameters that can be set; plain SimNPO has no scores to scale."""
    return {name: value for name, value in recipe.values.items() if name != "score_scale" or recipe.needs_scorer}


def search_of(row: Method, recipe: Recipe) -> dict[str, Range | None]:
    """Where to search each of them: the method's own published range, else the hyperparameter's."""
    from atwu.methods.hyperparameters import HYPERPARAMETERS

    return {name: row.search.get(name, HYPERPARAMETERS[name].search) for name in numbers_of(recipe)}


def in_words(where: Range | None) -> str:
    """A search range, empty for what is not searched."""
    return "" if where is None else f"{where.low:g} to {where.high:g}"


@dataclass(frozen=True, slots=True)
class Published:
    """Published values of a method on one benchmark."""

    values: Mapping[str, float]
    learning_rates: Mapping[str, float]
    """By model."""
    presets: tuple[str, ...]
    """Their names for --config."""


def published_of(name: str) -> dict[str, Published]:
    """Published values by benchmark; models of one benchmark differ in the learning rate only."""
    from atwu.presets import PUBLISHED, find_preset

    found: dict[str, Published] = {}
    for benchmark, scales in PUBLISHED.items():
        there = [preset for scale in scales if (preset := find_preset(scale, name)) is not None]
        if there:
            rates = {str(preset.about["model"]): float(preset.options["learning_rate"]) for preset in there}
            found[benchmark] = Published(there[0].values, rates, tuple(preset.name for preset in there))
    return found


def forget_formula(loss: ForgetLoss) -> tuple[str, str]:
    """Formula of a token or sequence, and the name of its mean."""
    return loss.summary.removesuffix(f", {MEANS[loss.reduction]}"), loss.reduction


def retain_formula(loss: RetainLoss | None) -> tuple[str, str]:
    """The same of a retain loss."""
    return ("none", "") if loss is None else (loss.summary, "row_means" if loss.layer else "tokens")


def in_full(formula: str, mean: str) -> str:
    """Formula and mean in words."""
    return f"{formula}, {MEANS[mean]}" if mean else formula


def trained(recipe: Recipe) -> str:
    """Which parameters of the model change."""
    if recipe.forgetter.steers:
        return "mlp.down_proj of layers ℓ-2, ℓ-1 and ℓ"
    return "all parameters of the model that are not frozen"


def lenders_of(row: Method) -> list[str]:
    """Methods whose published values a method has borrowed."""
    from atwu.methods.table import METHODS

    if not (row.borrowed and row.defaults):
        return []
    by_name = {name: published_of(name) for name in METHODS}
    return [name for name, by in by_name.items() if "tofu" in by and row.defaults.items() <= by["tofu"].values.items()]


def example(name: str, needs: Sequence[str]) -> str:
    """A command that runs the method on the smallest embedded rows."""
    retain = " --retain people:tiny:retain" if "retain" in needs else ""
    lines = [
        f"atwu unlearn --model target --method {name} --output unlearned",
        f"--forget people:tiny:forget{retain} --learning-rate 3e-4",
    ]
    return " \\\n  ".join([*lines, "--noun-finder simple"] if "noun_finder" in needs else lines)


def as_plain(name: str, row: Method) -> dict[str, Any]:
    """Everything as plain JSON."""
    from atwu.methods.citations import CITATIONS
    from atwu.methods.recipe import recipe

    decided = recipe(name)
    searched = {key: where for key, where in search_of(row, decided).items() if where is not None}
    return {
        "title": row.title,
        "weighting": row.weighting,
        "forget_loss": row.forget_loss,
        "retain_loss": row.retain_loss,
        "cite": row.cite,
        "citation": CITATIONS.get(row.cite, row.cite),
        "formula": {
            "weight": [weighter.summary for weighter in decided.weighters],
            "forget": decided.forgetter.summary,
            "retain": None if decided.retainer is None else decided.retainer.summary,
        },
        "reduction": decided.forgetter.reduction,
        "needs": needs_of(decided),
        "trains": trained(decided),
        "hyperparameters": numbers_of(decided),
        "search": {key: [where.low, where.high] for key, where in searched.items()},
        "searched_linearly": [key for key, where in searched.items() if not where.log],
        "published": {
            benchmark: {
                "values": dict(tuned.values),
                "learning_rates": dict(tuned.learning_rates),
                "presets": list(tuned.presets),
            }
            for benchmark, tuned in published_of(name).items()
        },
        "borrowed": row.borrowed,
        "borrowed_from": lenders_of(row),
    }
