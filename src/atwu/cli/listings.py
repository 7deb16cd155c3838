"""`atwu methods`, `atwu benchmarks` and `atwu evaluate --list`: methods and components, one method, benchmarks, metrics.

Every list fits the terminal without words broken in two, and is printed as JSON for scripts. Does not import torch.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from atwu._names import source_location
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import plain_table, say, terminal
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, RETAIN, Column
from atwu.evaluation.metric import Metric
from atwu.methods.component import ForgetLoss, Range, RetainLoss
from atwu.methods.component_registry import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options, load_plugins
from atwu.methods.method_table import CODE, METHODS, OURS, citations
from atwu.methods.presets import PUBLISHED, Preset, shipped_presets
from atwu.methods.recipe import recipe
from atwu.training.training_options import UPDATE_OPTIONS, UnlearnOptions

_LEGEND = (
    "w: token weight, p: probability of the token, y: answer, π: model, z: its logits, π0: original model, z0: its logits, "
    "h: hidden state, h0: that of π0, u: random vector, H: entropy, n: number of answer tokens, σ: sigmoid"
)
_MEANS: Mapping[str, tuple[str, str]] = {
    "tokens": ("tokens", "mean over tokens"),
    "selected": ("selected", "mean over selected tokens"),
    "sequences": ("sequences", "mean over sequences"),
    "row_means": ("rows", "mean over tokens of each row, then mean over rows"),
}
"""Reduction -> its name in the table of losses, and its description."""
_MEANS_LEGEND = "selected: sum divided by the total weight; sequences: one loss per answer; rows: mean of row means"
_TARGET_COMMAND = (
    "atwu finetune --scratch people-tiny --data people:tiny:full --output target \\\n"
    "  --learning-rate 3e-3 --num-train-epochs 30 \\\n"
    "  --warmup-steps 0.05 --weight-decay 0"
)
"""Command that creates the original model of the examples."""
AS_JSON = "Print everything as JSON."
_COMBINED = "a*b is the product of two weightings, a+b the mean of their ranks within the row"


@dataclass(kw_only=True)
class MethodsCommand:
    """List all methods and their components, or describe one method.

    Example: atwu methods atwu
    """

    name: str | None = cli_option("Name of the method to describe.", None, positional=True)
    json: bool = cli_option(AS_JSON, False)

    def run(self) -> None:
        load_plugins()
        if self.name is not None:
            METHODS.find(self.name)
            if self.json:
                _say_json(**_method_facts(self.name))
            else:
                explain_method(terminal(highlight=False), self.name)
        elif self.json:
            _say_json(
                methods={name: _method_facts(name) for name in METHODS},
                weightings=_formulas(WEIGHTINGS),
                forget_losses=_formulas(FORGET_LOSSES),
                retain_losses=_formulas(RETAIN_LOSSES),
                updates=_update_options(),
            )
        else:
            list_methods(terminal(highlight=False))


@dataclass(kw_only=True)
class BenchmarksCommand:
    """List the benchmarks: names, size, licence, what each measures, and whether its data are at hand.

    Data are looked for in the folder ATWU_DATA, else on the Hub; see docs/benchmarks.md.

    Example: atwu benchmarks
    """

    json: bool = cli_option(AS_JSON, False)

    def run(self) -> None:
        from atwu.benchmarks.catalog import all_benchmarks

        entries = all_benchmarks()
        if self.json:
            _say_json(
                benchmarks=[
                    {
                        "names": entry.names,
                        "rows": entry.source,
                        "size": entry.size,
                        "licence": entry.licence,
                        "measures": entry.measures,
                        "data": entry.data(),
                    }
                    for entry in entries
                ]
            )
            return
        lines = []
        for entry in entries:
            lines.append(_paragraph("  ".join(entry.names)))
            lines.append(_paragraph(entry.measures, indent=4))
            lines.append(_paragraph(f"{entry.size}; licence: {entry.licence}", indent=4))
            lines.append(_paragraph(f"data: {entry.data()}", indent=4))
            lines.append("")
        say("\n".join(lines[:-1]))


def list_metrics(*, as_json: bool) -> None:
    """Print every metric with its columns, as `atwu evaluate --list`."""
    from atwu.evaluation.registry import all_metrics

    if as_json:
        _say_json(metrics={name: _metric_facts(metric) for name, metric in all_metrics().items()})
        return
    lines = ["↓ lower is better, ↑ higher is better, ↕ lower on the forget set and higher on retain sets"]
    for name, metric in all_metrics().items():
        lines += ["", f"{name}  {metric.about}"]
        if metric.needs:
            lines.append(f"    needs: {', '.join(metric.needs)}")
        if metric.cost:
            lines.append(f"    cost: {metric.cost}")
        for column in (column for column in metric.columns if column.shown):
            lines.append(f"    {column.name}  {_arrow(column)} {_interval(column)}")
            lines += [" " * 8 + column.meaning, " " * 8 + column.where]
    say("\n".join(_paragraph(line.lstrip(), indent=len(line) - len(line.lstrip())) for line in lines))


def _arrow(column: Column) -> str:
    if column.direction is not None:
        return {"up": "↑", "down": "↓", "none": " "}[column.direction]
    if column.sets == (FORGET,):
        return "↓"
    # Besides forget rows there are retain rows, or neighbours, which must stay.
    if FORGET_OR_RETAIN in column.sets or FORGET in column.sets:
        return "↕"
    return "↑"


def _interval(column: Column) -> str:
    """Return the range of a column; a loss has no upper end, a difference none at all."""
    low, high = column.range
    smallest = "-inf" if low is None else f"{low:g}"
    largest = "inf" if high is None else f"{high:g}"
    return f"[{smallest}, {largest}]"


def _metric_facts(metric: type[Metric]) -> dict[str, Any]:
    columns = {
        column.name: {
            "meaning": column.meaning,
            "range": column.range,
            "better": column.direction or {split: column.direction_on(split) for split in (FORGET, RETAIN)},
            "formula": column.where,
        }
        for column in metric.columns
        if column.shown
    }
    return {"about": metric.about, "needs": metric.needs, "cost": metric.cost, "columns": columns}


def _method_facts(name: str) -> dict[str, Any]:
    row, decided = METHODS[name], recipe(name)
    return {
        "title": row.title,
        "weighting": row.weighting,
        "forget_loss": row.forget_loss,
        "retain_loss": row.retain_loss,
        "values": decided.values,
        "values_from": row.values_from or "publication",
        "needs": decided.needs,
        "source": citations().get(row.cite, row.cite),
    }


def _formulas(components: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if component is None else component.formula for name, component in components.items()}


def _update_options() -> dict[str, str]:
    """Return the options that change the updates of any method, with their help."""
    fields = UnlearnOptions.__dataclass_fields__
    return {name: fields[name].metadata["help"] for name in UPDATE_OPTIONS}


def _say_json(**values: Any) -> None:
    say(json.dumps(values, indent=2, ensure_ascii=False))


def _paragraph(text: str, *, indent: int = 0) -> str:
    """Return a text in the width of the terminal; a word that is too long for it gets a line of its own."""
    margin = " " * indent
    return textwrap.fill(
        text,
        terminal().width,
        initial_indent=margin,
        subsequent_indent=margin + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _range_text(where: Range | None) -> str:
    if where is None:
        return ""
    return f"{where.low:g} to {where.high:g}"


def _loss_formula(loss: type[ForgetLoss] | type[RetainLoss] | ForgetLoss | RetainLoss | None) -> str:
    """Return the formula per token or sequence, without its mean, which the listings show apart."""
    if loss is None:
        return "none"
    return loss.formula.removesuffix(f", {_MEANS[loss.reduction][1]}")


def _print_table(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, optional: int = 0
) -> None:
    """Print a table without its last columns (at most `optional`) if the terminal is too narrow."""
    body = [list(row) for row in rows]
    kept = len(head)
    widths = [max(len(row[column]) for row in (list(head), *body)) + 2 for column in range(kept)]
    # A table that is broken within words is harder to read than one without its sources.
    while kept > len(head) - optional and sum(widths[:kept]) > console.width:
        kept -= 1
    console.print(title, style="italic")
    table = plain_table(*head[:kept])
    table.columns[0].no_wrap, table.columns[0].style = True, "bold"
    for row in body:
        table.add_row(*row[:kept])
    console.print(table)
    console.print()


def list_methods(console: Console) -> None:
    rows = []
    for name, row in METHODS.items():
        decided = recipe(name)
        values = (f"{decided.options[key].symbol or key}={value:g}" for key, value in decided.values.items())
        marked = name + " *" * (row.values_from is not None)
        rows.append([marked, row.weighting, row.forget_loss, row.retain_loss, " ".join(values), row.cite])
    heads = ["", "weighting", "forget loss", "retain", "values", "source"]
    _print_table(console, "Methods (--method)", heads, rows, optional=2)
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
        body = [
            [name, _loss_formula(loss), "" if loss is None else _MEANS[loss.reduction][0]]
            for name, loss in losses.items()
        ]
        _print_table(console, title, ["", "loss", "mean over"], body)
    changes = [[_flag(name), meaning] for name, meaning in _update_options().items()]
    _print_table(console, "Changes of the update, with any method", ["", "meaning"], changes)
    _print_table(
        console,
        "Hyperparameters and search ranges",
        ["", "", "range", "meaning"],
        [
            [_flag(name), option.symbol, _range_text(option.search), option.help]
            for name, option in component_options().items()
            if option.number
        ],
    )
    console.print(f"{_LEGEND}\n\n{_MEANS_LEGEND}")


def explain_method(console: Console, name: str) -> None:
    row, decided = METHODS[name], recipe(name)
    published: dict[str, list[Preset]] = {}
    for benchmark, settings in PUBLISHED.items():
        shipped = [shipped_presets(setting)[name] for setting in settings if name in shipped_presets(setting)]
        if shipped:  # presets of one benchmark differ only in the learning rate
            published[benchmark] = shipped
    console.print(f"{row.title} ({name})", style="bold")
    console.print(f"{citations().get(row.cite, row.cite)}\n")
    facts = plain_table("", "")
    facts.show_header, facts.columns[0].no_wrap, facts.columns[0].style = False, True, "bold"
    weights = [weighting.formula for weighting in decided.weighting_components]
    joint = " times " if decided.combination == "product" else ", mean of ranks with "
    total = "γ forget" if decided.retain_component is None else "γ forget + α retain"
    facts.add_row("loss", total)
    formulas = [_loss_formula(decided.forget_component), joint.join(weights), _loss_formula(decided.retain_component)]
    formulas[0] += f", {_MEANS[decided.forget_component.reduction][1]}"
    if decided.retain_component is not None:
        formulas[2] += f", {_MEANS[decided.retain_component.reduction][1]}"
    for part, formula in zip(("forget", "w", "retain"), formulas, strict=True):
        facts.add_row(part, formula)
    trained = "all parameters that are not frozen"
    # RMU trains three layers, the most of all methods.
    layers = decided.forget_component.trained_layers(3)
    if layers is not None:
        trained = "mlp.down_proj of layers ℓ-2, ℓ-1 and ℓ"
        if len(layers) == 1:
            trained = "mlp.down_proj of layer ℓ"
    facts.add_row("trains", trained)
    components = (*decided.weighting_components, decided.forget_component, decided.retain_component)
    locations = [source_location(type(component)) for component in components if component is not None]
    # The heading of several lines stands beside the first one.
    for heading, lines in (("code", locations), ("needs", decided.needs or ("only forget rows",))):
        for index, line in enumerate(lines):
            facts.add_row("" if index else heading, line)
    console.print(facts)
    console.print()
    _print_table(
        console,
        "Hyperparameters",
        ["", "", "default", "search", *(f"published, {benchmark}" for benchmark in published)],
        [
            [
                *(_flag(key), decided.options[key].symbol, f"{value:g}"),
                _range_text(row.search.get(key, decided.options[key].search)),
                *(f"{first.values[key]:g}" if key in first.values else "" for first, *_ in published.values()),
            ]
            for key, value in decided.values.items()
        ],
    )
    if row.values_from is not None:
        source = {CODE: "come from its code", OURS: "are ours"}.get(row.values_from, f"are those of {row.values_from}")
        console.print(f"No values were published for this method; the defaults {source}.")
    for benchmark, shipped in published.items():
        rates = ", ".join(f"{preset.options['learning_rate']:.2e} ({preset.about['model']})" for preset in shipped)
        console.print(f"Published learning rates, {benchmark}: {rates}")
    names = [preset.name for shipped in published.values() for preset in shipped]
    if names:
        console.print(f"Presets (--config): {', '.join(names)}")
    rows = "--forget people:tiny:forget"
    if decided.reads_retain:
        rows += " --retain people:tiny:retain"
    lines = [f"atwu unlearn --model target --method {name} --output unlearned", f"{rows} --learning-rate 3e-4"]
    if "noun_finder" in decided.settings:  # the default is a model of spaCy, which may not be installed
        lines.append("--noun-finder simple")
    command = " \\\n  ".join(lines)
    # Printed unwrapped, so that no terminal breaks a command in two.
    console.print(f"\nExample\n\n{_TARGET_COMMAND}\n{command}", soft_wrap=True)
