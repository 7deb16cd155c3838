"""Print the tables of methods and components, or describe one method. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from atwu.methods.citations import CITATIONS
from atwu.methods.component import NEEDS
from atwu.methods.components import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options
from atwu.methods.method_facts import (
    TARGET_COMMAND,
    component_sources,
    example,
    formula,
    formula_with_mean,
    published_values,
    range_text,
    search_ranges,
    trained_parameters,
)
from atwu.methods.method_table import CODE, METHODS
from atwu.methods.recipe import Recipe, recipe

_LEGEND = (
    "w: token weight, p: probability of the token, y: answer, π: model, π0: original model, z0: its logits, h: hidden state, "
    "h0: that of π0, u: random vector, H: entropy, n: number of answer tokens, σ: sigmoid"
)
_MEANS_IN_SHORT = {"tokens": "tokens", "selected": "selected", "sequences": "sequences", "row_means": "rows"}
_MEANS_LEGEND = "selected: sum divided by the total weight; sequences: one loss per answer; rows: mean of row means"
_COMBINED = "a*b is the product of two weightings, a+b the mean of their ranks within the row"


def _print_table(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, optional: int = 0
) -> None:
    """Print a table without its last columns (at most `optional`) if the terminal is too narrow."""
    body = [list(row) for row in rows]
    kept = len(head)
    widths = [max(len(row[column]) for row in (list(head), *body)) + 2 for column in range(kept)]
    while kept > len(head) - optional and sum(widths[:kept]) > console.width:
        kept -= 1
    console.print(title, style="italic")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, text in enumerate(head[:kept]):
        table.add_column(text, no_wrap=column == 0, style="bold" if column == 0 else "")
    for row in body:
        table.add_row(*row[:kept])
    console.print(table)
    console.print()


def _settings(decided: Recipe) -> str:
    options = decided.options
    return " ".join(f"{options[key].symbol or key}={value:g}" for key, value in decided.values.items())


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def list_methods(console: Console) -> None:
    """Print all methods, components and hyperparameters."""
    _print_table(
        console,
        "Methods (--method)",
        ["", "weighting", "forget loss", "retain", "values", "source"],
        [
            [
                name + " *" * (row.values_from is not None),
                row.weighting,
                row.forget_loss,
                row.retain_loss,
                _settings(recipe(name)),
                row.cite,
            ]
            for name, row in METHODS.items()
        ],
        optional=2,
    )
    console.print(
        "* no published hyperparameters. For formulas, values, inputs and an example, run: atwu methods NAME\n"
    )
    _print_table(
        console,
        f"Token weightings (--weighting); {_COMBINED}",
        ["", "weight of a token"],
        [[name, weighting.formula] for name, weighting in WEIGHTINGS.items()],
    )
    for title, losses in (
        ("Forget losses (--forget-loss)", FORGET_LOSSES),
        ("Retain losses (--retain-loss)", RETAIN_LOSSES),
    ):
        found = [(name, *formula(loss)) for name, loss in losses.items()]
        body = [[name, text, _MEANS_IN_SHORT.get(mean, "")] for name, text, mean in found]
        _print_table(console, title, ["", "loss", "mean over"], body)
    _print_table(
        console,
        "Hyperparameters and search ranges",
        ["", "", "range", "meaning"],
        [
            [_flag(name), option.symbol, range_text(option.search), option.help]
            for name, option in component_options().items()
            if option.number
        ],
    )
    console.print(f"{_LEGEND}\n\n{_MEANS_LEGEND}")


def explain_method(console: Console, name: str) -> None:
    """Print the description of one method."""
    row, decided, tuned = METHODS[name], recipe(name), published_values(name)
    needs = decided.needs
    console.print(f"{row.title} ({name})", style="bold")
    console.print(f"{CITATIONS.get(row.cite, row.cite)}\n")
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="bold")
    weights = [weighter.formula for weighter in decided.weighters]
    joint = " times " if decided.combination == "product" else ", mean of ranks with "
    total = "γ forget" if decided.retainer is None else "γ forget + α retain"
    facts.add_row("loss", total)
    facts.add_row("forget", formula_with_mean(*formula(decided.forgetter)))
    facts.add_row("w", joint.join(weights))
    facts.add_row("retain", formula_with_mean(*formula(decided.retainer)))
    facts.add_row("trains", trained_parameters(decided))
    for index, place in enumerate(component_sources(decided)):
        facts.add_row("" if index else "code", place)
    for index, need in enumerate([NEEDS[need] for need in needs] or ["only forget rows"]):
        facts.add_row("" if index else "needs", need)
    console.print(facts)
    console.print()
    _print_table(
        console,
        "Hyperparameters",
        ["", "", "default", "search", *(f"published, {setting}" for setting in tuned)],
        [
            [_flag(key), decided.options[key].symbol, f"{value:g}", range_text(where)]
            + [f"{setting.values[key]:g}" if key in setting.values else "" for setting in tuned.values()]
            for (key, value), where in zip(decided.values.items(), search_ranges(row, decided).values(), strict=True)
        ],
    )
    if row.values_from is not None:
        source = (
            f"are those of {row.values_from}"
            if row.values_from != CODE
            else "come from its published code, except the retain weight, which is 0 there"
        )
        console.print(f"No values were published for this method; the defaults {source}.")
    for setting, values in tuned.items():
        rates = ", ".join(f"{rate:.2e} ({model})" for model, rate in values.learning_rates.items())
        console.print(f"Published learning rates, {setting}: {rates}")
    if names := [name for values in tuned.values() for name in values.presets]:
        console.print(f"Presets (--config): {', '.join(names)}")
    # Printed unwrapped, so that no terminal breaks a command in two.
    console.print(f"\nExample\n\n{TARGET_COMMAND}\n{example(name, needs)}", soft_wrap=True)
