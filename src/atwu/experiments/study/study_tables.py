"""Terminal tables of studies: the built-in studies and settings, a plan, and a comparison with published results."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from atwu._file_reading import printable
from atwu.evaluation.result import ARROWS, format_interval, format_number
from atwu.experiments.benchmark_settings import BENCHMARK_SETTINGS
from atwu.experiments.experiment_run import format_options
from atwu.experiments.published import PublishedTable
from atwu.experiments.study.published_comparison import COMPARED_METRICS, Ordering, Orderings, published_value
from atwu.experiments.study.study_file import library
from atwu.experiments.study.study_plan import StudyPlan
from atwu.report.metric_labels import MISSING_CELL
from atwu.report.report_records import Records


def library_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("study", "question"):
        table.add_column(name, overflow="fold")
    for name, title in library().items():
        table.add_row(name, title)
    return table


def settings_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("setting", "benchmark", "original model", "about"):
        table.add_column(name, overflow="fold")
    for setting in BENCHMARK_SETTINGS.values():
        table.add_row(setting.name, str(setting.benchmark), str(setting.target), setting.about)
    return table


def print_plan(console: Console, planned: StudyPlan, processes: int) -> None:
    """Print the variants of a study, their tuning budget, and the estimated duration."""
    table = Table("variant", "method", "settings", "seeds", "finished", box=None, pad_edge=False)
    for label in dict.fromkeys(run.label for run in planned.runs):
        runs = [run for run in planned.runs if run.label == label]
        shared = planned.setting.training
        settings = format_options({k: value for k, value in runs[0].options.items() if shared.get(k) != value})
        table.add_row(
            label,
            runs[0].method,
            settings or "published",
            ", ".join(str(run.seed) for run in runs),
            f"{sum(run.finished for run in runs)} of {len(runs)}",
        )
    title = Text(printable(planned.study.title), "bold")
    console.print(Text.assemble(title, f" at setting {planned.setting.name}, in {planned.folder}"))
    console.print(table)
    console.print(f"tuning budget: {planned.budget}")
    seconds, source = planned.seconds_per_run()
    console.print(
        f"{len(planned.remaining)} of {len(planned.runs)} runs to do, {processes} in parallel, about {seconds:.0f} s "
        f"each ({source}): about {_duration(planned.estimate(processes))}"
    )
    if models := planned.seconds_of_models():
        console.print(f"plus the models of {planned.setting.name}, if not cached: {_duration(models)}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def comparison_table(records: Records, published: PublishedTable) -> Table:
    """Table of our and the published numbers: a row per common label, a pair of columns per common metric."""
    labels = [label for label in records.results if label in published.rows]
    metrics = [metric for metric in COMPARED_METRICS if metric in published.metrics]
    place = (records.study.get("setting") or {}).get("name", records.title)
    table = Table(title=Text(f"{place} compared with: {published.title}"), title_justify="left", pad_edge=False)
    floor = ["ES_delta uses values with a floor of one token in both."] if "ES_delta" in metrics else []
    table.caption = Text(" ".join([*published.notes, *floor, "Published runs use one seed."]))
    table.caption_justify = "left"
    table.add_column("", no_wrap=True)
    for metric in metrics:
        arrow = ARROWS[COMPARED_METRICS[metric][1]]
        table.add_column(Text(f"{metric}{arrow}\nhere"), justify="right")
        table.add_column(Text(f"{metric}{arrow}\npublished"), justify="right", style="dim")
    for label in labels:
        cells = []
        for metric in metrics:
            theirs = published.rows[label].get(metric)
            mark = " (!)" if (label, metric) in published.degraded else ""
            cells += [_ours(records, label, metric), MISSING_CELL if theirs is None else f"{theirs:g}{mark}"]
        table.add_row(Text(label), *cells)
    return table


def _ours(records: Records, label: str, metric: str) -> str:
    cell = published_value(records, metric, label)
    if cell is None:
        return MISSING_CELL
    return f"{format_number(cell.value, cell.digits)} {format_interval(cell)}".strip()


def ordering_table(metric: str, found: Orderings) -> Table:
    """Table of published orderings and whether they hold here, pair by pair."""
    table = Table(title=Text(f"{metric}: {found.reading}"), title_justify="left", pad_edge=False)
    for column in ("published order", "published difference", "our difference", "verdict"):
        table.add_column(column, justify="right" if "difference" in column else "left")
    for pair in found.pairs:
        table.add_row(
            f"{pair.better} better than {pair.worse}",
            f"{pair.published:+.3g}",
            _interval(pair),
            Text(pair.outcome, "dim" if "noise" in pair.outcome or pair.outcome == "open" else "bold"),
        )
    return table


def _interval(pair: Ordering) -> str:
    if pair.ours is None:
        return MISSING_CELL
    value, low, high = pair.ours
    return f"{value:+.3g}" if low != low else f"{value:+.3g} [{low:+.3g}, {high:+.3g}]"
