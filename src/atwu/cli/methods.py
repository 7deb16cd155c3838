"""`atwu methods`: the table of methods and their parts, or everything there is to know about one of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from atwu.methods import Method
    from atwu.parts import ForgetLoss, RetainLoss
    from atwu.recipe import Recipe

_SYMBOLS = {
    "forget_weight": "γ",
    "retain_weight": "α",
    "beta": "β",
    "beta1": "β1",
    "beta2": "β2",
    "delta": "δ",
    "score_scale": "s",
    "temperature": "τ",
    "steering_coeff": "c",
    "layer": "ℓ",
}
_LEGEND = (
    "w weight, p probability of the token, π model, π0 starting model, z0 its logits, h hidden state, u random vector, "
    "H entropy, n tokens of the answer, σ sigmoid"
)
_MEANS = {
    "tokens": "mean over tokens",
    "selected": "mean over selected tokens",
    "sequences": "mean over sequences",
    "row_means": "mean over rows of each one's mean over tokens",
}
_NEEDS = {
    "retain": "retain rows (--retain)",
    "labels": "secret tokens: forget_spans in the forget rows, or --forget-words",
    "scorer": "a token scorer, learned on the way (--scorer-..., --preset)",
    "reference_logps": "log-probabilities of the starting model",
    "reference_distributions": "next-token distributions of the starting model",
    "reference_activations": "one layer's outputs of the starting model",
    "alternates": "alternate answers: of the rows, else refusals drawn for every epoch",
    "auxiliary_models": "two auxiliary models (--auxiliary-forget, --auxiliary-retain), else trained and cached",
    "text": "forget rows as text, not as token ids",
    "noun_finder": "a noun finder (--noun-finder: a spaCy model, or simple)",
    "refusal": "a refusal to aim at (--refusal), and the tokenizer for it",
}
_MODELS = ("reference_logps", "reference_distributions", "reference_activations")
_COMBINED = "a*b multiplies two weightings, a+b takes the mean of their ranks in the row"


def methods(
    name: Annotated[str | None, typer.Argument(help="Explain this method.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List every method and the parts they are made of, or explain one.

    Example: atwu methods atwu
    """
    from atwu.methods import METHODS
    from atwu.recipe import lookup
    from atwu.registry import load_plugins

    load_plugins()
    if name is not None:
        row: Method = lookup("method", name, METHODS)
        if not as_json:
            _explain(name, row)
            return
    if as_json:
        plain = _plain(name, row) if name is not None else {key: _plain(key, each) for key, each in METHODS.items()}
        typer.echo(json.dumps(plain, indent=2))
        return
    _list()


# What there is to say about a method


def _needs(recipe: Recipe) -> list[str]:
    """Keys of `_NEEDS`."""
    loss, retainer, weighters = recipe.forgetter, recipe.retainer, recipe.weighters
    auxiliary = any(weighter.needs_auxiliary for weighter in weighters)
    nouns = any(weighter.needs_answers for weighter in weighters)
    asked = {
        "retain": recipe.needs_retain_rows or auxiliary,
        "labels": recipe.needs_labels,
        "scorer": recipe.needs_scorer,
        "reference_logps": loss.needs_ref_logps or any(weighter.needs_ref_logps for weighter in weighters),
        "reference_distributions": loss.needs_teacher or (retainer is not None and retainer.needs_teacher),
        "reference_activations": retainer is not None and retainer.layer,
        "alternates": recipe.needs_alternate,
        "auxiliary_models": auxiliary,
        "text": nouns or recipe.needs_alternate,
        "noun_finder": nouns,
        "refusal": loss.ids == "refusal",
    }
    return [need for need, needed in asked.items() if needed]


def _numbers(recipe: Recipe) -> dict[str, float]:
    """Hyperparameters that can be set; plain SimNPO has no scores to scale."""
    return {name: value for name, value in recipe.values.items() if name != "score_scale" or recipe.needs_scorer}


def _search(row: Method, recipe: Recipe) -> dict[str, tuple[float, float]]:
    from atwu.parts import HYPERPARAMETERS

    return {name: row.search.get(name, HYPERPARAMETERS[name].search) for name in _numbers(recipe)}


def _forget_formula(loss: ForgetLoss) -> str:
    mean = _MEANS[loss.reduction]
    return loss.summary if mean in loss.summary else f"{loss.summary}, {mean}"


def _retain_formula(loss: RetainLoss | None) -> str:
    return "none" if loss is None else f"{loss.summary}, {_MEANS['row_means' if loss.layer else 'tokens']}"


def _trained(recipe: Recipe) -> str:
    if recipe.forgetter.steers:
        return "mlp.down_proj of layers ℓ-2, ℓ-1 and ℓ"
    return "all parameters of the model that are not frozen"


def _lenders(row: Method) -> list[str]:
    """Methods whose published values a method has borrowed."""
    from atwu.published import TUNED

    if not (row.borrowed and row.defaults):
        return []
    return [name for name, by in TUNED.items() if "tofu" in by and row.defaults.items() <= by["tofu"].values.items()]


def _example(name: str, needs: Sequence[str]) -> str:
    nouns = " --noun-finder simple" if "noun_finder" in needs else ""
    retain = " --retain people:tiny:retain" if "retain" in needs else ""
    return (
        f"atwu unlearn --model target --method {name}{nouns} \\\n"
        f"  --forget people:tiny:forget{retain} --output unlearned"
    )


_TARGET = (
    "atwu finetune --scratch people-tiny --data people:tiny:full --output target \\\n"
    "  --learning-rate 3e-3 --num-train-epochs 30 --warmup-steps 0.05 --weight-decay 0"
)


def _plain(name: str, row: Method) -> dict[str, Any]:
    from atwu.citations import CITATIONS
    from atwu.published import TUNED
    from atwu.recipe import recipe

    decided = recipe(name)
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
        "needs": _needs(decided),
        "trains": _trained(decided),
        "hyperparameters": _numbers(decided),
        "search": {key: list(ends) for key, ends in _search(row, decided).items()},
        "published": {
            setting: {"values": dict(tuned.values), "learning_rates": dict(tuned.learning_rates)}
            for setting, tuned in TUNED.get(name, {}).items()
        },
        "borrowed": row.borrowed,
        "borrowed_from": _lenders(row),
    }


# Printing


def _console() -> Console:
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def _print_table(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, optional: int = 0
) -> None:
    """Print a table whose last columns, `optional` of them, are left out as far as the terminal is too narrow."""
    from rich.table import Table

    body = [list(row) for row in rows]
    kept = len(head)
    widths = [max(len(row[column]) for row in (list(head), *body)) + 2 for column in range(kept)]
    while kept > len(head) - optional and sum(widths[:kept]) > console.width:
        kept -= 1
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, text in enumerate(head[:kept]):
        table.add_column(text, no_wrap=column == 0, style="bold" if column == 0 else "")
    for row in body:
        table.add_row(*row[:kept])
    console.print(table)
    console.print()


def _settings(values: Iterable[tuple[str, float]]) -> str:
    return " ".join(f"{_SYMBOLS.get(key, key)}={value:g}" for key, value in values)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _list() -> None:
    from atwu.methods import METHODS
    from atwu.parts import FORGET_LOSSES, HYPERPARAMETERS, RETAIN_LOSSES, WEIGHTINGS
    from atwu.recipe import recipe

    console = _console()
    _print_table(
        console,
        "Methods (--method)",
        ["", "weighting", "forget loss", "retain", "values", "source"],
        [
            [
                name,
                row.weighting,
                row.forget_loss,
                row.retain_loss,
                _settings(_numbers(recipe(name)).items()) + " *" * row.borrowed,
                row.cite,
            ]
            for name, row in METHODS.items()
        ],
        optional=2,
    )
    console.print("Formula, values, needs and an example of one: atwu methods NAME. * not published for this method.\n")
    _print_table(
        console,
        f"Token weightings (--weighting); {_COMBINED}",
        ["", "weight of a token"],
        [[name, weighting.summary] for name, weighting in WEIGHTINGS.items()],
    )
    _print_table(
        console,
        "Forget losses (--forget-loss)",
        ["", "loss"],
        [[name, _forget_formula(loss)] for name, loss in FORGET_LOSSES.items()],
    )
    _print_table(
        console,
        "Retain losses (--retain-loss)",
        ["", "loss"],
        [[name, _retain_formula(loss)] for name, loss in RETAIN_LOSSES.items()],
    )
    _print_table(
        console,
        "Hyperparameters, and where to search",
        ["", "", "range", "meaning"],
        [
            [_flag(name), _SYMBOLS.get(name, ""), f"{number.search[0]:g} to {number.search[1]:g}", number.help]
            for name, number in HYPERPARAMETERS.items()
        ],
    )
    console.print(_LEGEND)


def _explain(name: str, row: Method) -> None:
    from rich.table import Table

    from atwu.citations import CITATIONS
    from atwu.published import TUNED
    from atwu.recipe import recipe

    console, decided, tuned = _console(), recipe(name), TUNED.get(name, {})
    needs = _needs(decided)
    console.print(f"{row.title} ({name})", style="bold")
    console.print(f"{CITATIONS.get(row.cite, row.cite)}\n")
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="bold")
    weights = [weighter.summary for weighter in decided.weighters]
    joint = " times " if decided.combination == "product" else ", mean of ranks with "
    total = "γ forget" if decided.retainer is None else "γ forget + α retain"
    facts.add_row("loss", total)
    facts.add_row("forget", _forget_formula(decided.forgetter))
    facts.add_row("w", joint.join(weights))
    facts.add_row("retain", _retain_formula(decided.retainer))
    facts.add_row("trains", _trained(decided))
    for index, need in enumerate(needs or ["nothing"]):
        flag = " (--reference)" if need in _MODELS else ""
        facts.add_row("" if index else "needs", _NEEDS.get(need, "nothing but forget rows") + flag)
    console.print(facts)
    console.print()
    _print_table(
        console,
        "Hyperparameters",
        ["", "", "default", "search", *(f"published, {setting}" for setting in tuned)],
        [
            [_flag(key), _SYMBOLS.get(key, ""), f"{value:g}", f"{low:g} to {high:g}"]
            + [f"{setting.values[key]:g}" if key in setting.values else "" for setting in tuned.values()]
            for (key, value), (low, high) in zip(
                _numbers(decided).items(), _search(row, decided).values(), strict=True
            )
        ],
    )
    if row.borrowed:
        lenders = _lenders(row)
        source = f"are those of {' and '.join(lenders)}" if lenders else "come from the method's first code"
        console.print(f"No values were published for this method; the defaults {source}.\n")
    for setting, values in tuned.items():
        rates = ", ".join(f"{rate:g} ({model})" for model, rate in values.learning_rates.items())
        console.print(f"Published learning rates, {setting}: {rates}")
    # Plain lines, so that no terminal breaks a command in two.
    typer.echo(f"\nExample\n\n{_TARGET}\n{_example(name, needs)}")
