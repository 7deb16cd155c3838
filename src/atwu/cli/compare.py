"""`atwu compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._names import did_you_mean
from atwu.cli.cli_options import UsageError, cli_option
from atwu.cli.output import note, say, terminal, warn

if TYPE_CHECKING:
    from atwu.evaluation.result import EvalResult
    from atwu.report.report_table import Head
    from atwu.report.table_values import MetricKey


@dataclass(kw_only=True)
class CompareCommand:
    """Put results side by side, with intervals; mark the best, the second best and the degraded.

    Models named original and retain-only are compared with, not ranked. Intervals of two models may overlap while their
    difference is clear: --baseline shows differences over the same resampled rows. Of a study, all numbers and
    differences are means
    over its seeds; of several, --baseline shows the differences in each and their mean.

    Example: atwu compare runs/atwu/eval.json runs/npo/eval.json runs/rmu/eval.json --baseline atwu
    """

    results: list[Path] = cli_option(
        "Results of atwu evaluate, two or more; or folders of studies, or of results.", positional=True
    )
    baseline: str | None = cli_option("Show paired differences to this one of them (its name in the table).", None)
    metrics: str | None = cli_option("Lines to show, comma-separated, such as forget:J_W,UQ.", None)
    everything: bool = cli_option("Every line, not only the headline panel.", False, flag="all")
    form: str = cli_option("What to print.", "table", flag="format", choices=("table", "markdown"))

    def run(self) -> None:
        """Read, check, print."""
        if len(self.results) > 1 and all(path.is_dir() for path in self.results):
            self._studies()
        else:
            self._results()

    def _results(self) -> None:
        """Single results, or one study."""
        from atwu.evaluation.result import read_result
        from atwu.report.markdown import panel_markdown
        from atwu.report.metric_labels import PANEL
        from atwu.report.report_table import table_of
        from atwu.report.terminal_tables import differences_table, panel_table

        found = None
        if len(self.results) == 1 and self.results[0].is_dir():
            from atwu.report.run_records import read_records

            records = read_records(self.results)
            loaded = records.results
            if self.baseline in loaded:
                found = {name: records.differences(name, self.baseline) for name in loaded if name != self.baseline}
        elif len(self.results) < 2:
            raise UsageError("give two results or more, or the folder of a study; atwu evaluate --output writes them.")
        else:
            loaded = _named([(path, read_result(path)) for path in self.results])
            _same_settings(loaded)
        if self.baseline is not None and self.form != "table":
            raise UsageError(f"--baseline prints a table; leave --format {self.form} or --baseline out.")
        if self.metrics and self.everything:
            raise UsageError("give --metrics or --all, not both.")
        known = table_of(loaded).keys
        if self.metrics:
            lines = [_line(text.strip(), known) for text in self.metrics.split(",")]
        else:
            lines = known if self.everything else [line for line in PANEL if line in known] or known
        given = {result.fingerprint for result in loaded.values()}
        if self.baseline is not None:
            if self.baseline not in loaded:
                raise UsageError(f"--baseline must be one of {', '.join(loaded)}; got {self.baseline!r}.")
            terminal().print(differences_table(loaded, to=self.baseline, keys=lines, found=found))
            lacking = {
                role for result in loaded.values() for role, name in result.references.items() if name not in given
            }
            if lacking:
                note(
                    f"To have differences of what is relative to them, add the results of: {', '.join(sorted(lacking))} "
                    "(of a study: FOLDER/references/NAME/eval.json)."
                )
        elif self.form == "markdown":
            say(panel_markdown(table_of(loaded, lines)).rstrip("\n"))
        else:
            terminal().print(panel_table(loaded, keys=None if self.everything else lines))
        said: dict[str, list[str]] = {}
        for name, result in loaded.items():
            for warning in result.warnings:
                said.setdefault(warning, []).append(name)
        warn(f"{', '.join(names)}: {warning}" for warning, names in said.items())

    def _studies(self) -> None:
        """Differences in each of several studies, and over all."""
        from atwu.report.metric_labels import LEADING_METRICS
        from atwu.report.report_table import table_of
        from atwu.report.run_records import read_records
        from atwu.report.terminal_tables import studies_table

        if self.baseline is None or self.form != "table" or self.everything:
            raise UsageError(
                "several studies have other rows each: give --baseline NAME for the differences in each, "
                "--metrics for more than one."
            )
        short = [path.resolve().name for path in self.results]
        names = short if len(set(short)) == len(short) else [str(path) for path in self.results]
        studies = {name: read_records([path]) for name, path in zip(names, self.results, strict=True)}
        heads: dict[MetricKey, Head] = {}
        found = {}
        for name, records in studies.items():
            if self.baseline not in records.results:
                raise UsageError(
                    f"--baseline must be one of {', '.join(records.results)}, of {name}; got {self.baseline!r}."
                )
            heads |= {head.key: head for head in table_of(records.results).heads}
            others = [label for label in records.results if label != self.baseline]
            found[name] = {label: records.differences(label, self.baseline) for label in others}
        asked = [_line(text.strip(), list(heads)) for text in self.metrics.split(",")] if self.metrics else []
        lines = asked or [line for line in LEADING_METRICS if line in heads][:1] or list(heads)
        terminal().print(studies_table(found, to=self.baseline, heads=[heads[line] for line in lines]))


def _named(results: Sequence[tuple[Path, EvalResult]]) -> dict[str, EvalResult]:
    """Short names: the last part of the model's name, or of the file's path where that is not unique."""
    short = [Path(result.model).name or result.model for _, result in results]
    names = [
        name if short.count(name) == 1 else str(path.with_suffix(""))
        for name, (path, _) in zip(short, results, strict=True)
    ]
    if len(set(names)) < len(names):
        raise ValueError(f"a result is given twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}.")
    return dict(zip(names, (result for _, result in results), strict=True))


def _line(text: str, known: Sequence[MetricKey]) -> MetricKey:
    split, _, metric = text.rpartition(":")
    found = [line for line in known if line[1] == metric and split in ("", line[0])]
    if not found:
        names = [name for split, metric in known for name in (f"{split}:{metric}", metric)]
        hint = did_you_mean(text, names, " --all shows every line.", shown=str)
        raise ValueError(f"no result has a value for {text!r}.{hint}")
    return found[0]


def _same_settings(results: Mapping[str, EvalResult]) -> None:
    from atwu.evaluation.comparability import check_comparable

    (first_name, first), *others = results.items()
    for name, other in others:
        try:
            check_comparable(first.settings, other, role=name)
        except ValueError as error:
            warn([f"{first_name} and {name}: {error}"])
