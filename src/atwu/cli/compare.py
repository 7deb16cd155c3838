"""`atwu compare`: show several evaluation results in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._names import did_you_mean
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import note, terminal, warn
from atwu.errors import UsageError

if TYPE_CHECKING:
    from atwu.evaluation.result import EvalResult
    from atwu.report.metric_table import Head, MetricKey


@dataclass(kw_only=True)
class CompareCommand:
    """Compare evaluation results in one table, with intervals; marks the best, the second best and degraded values.

    Models named original and retain-only are references and not ranked. Intervals of two models may overlap although
    their difference is significant: --baseline shows paired differences over the same resampled rows. For a study,
    values and differences are means over seeds. For several studies, --baseline shows the differences in each and their
    mean.

    Example: atwu compare runs/atwu/eval.json runs/npo/eval.json runs/rmu/eval.json --baseline atwu
    """

    results: list[Path] = cli_option(
        "Two or more result files of atwu evaluate; or folders of studies or of result files.", positional=True
    )
    baseline: str | None = cli_option("Show paired differences to this model (its name in the table).", None)
    metrics: str | None = cli_option("Metrics to show, comma-separated, such as forget:J_W,UQ.", None)
    everything: bool = cli_option("Show every metric instead of the main ones.", False, flag="all", excludes="metrics")

    def run(self) -> None:
        from atwu.evaluation.result import read_result
        from atwu.report.metric_table import PANEL, table_of
        from atwu.report.report_records import EVAL_NAME, models_by_warning
        from atwu.report.run_records import read_records
        from atwu.report.terminal_tables import differences_table, panel_table

        if len(self.results) > 1 and all(path.is_dir() for path in self.results):
            self._studies()
            return
        found = None
        if len(self.results) == 1 and self.results[0].is_dir():
            records = read_records(self.results)
            loaded = records.results
            if self.baseline in loaded:
                found = {name: records.differences(name, self.baseline) for name in loaded if name != self.baseline}
        elif len(self.results) < 2:
            raise UsageError(
                "give two or more results or the folder of a study; atwu evaluate --output writes results."
            )
        else:
            paths = [path / EVAL_NAME if path.is_dir() else path for path in self.results]
            loaded = _named([(path, read_result(path)) for path in paths])
            _same_settings(loaded)
        known = table_of(loaded).keys
        if self.metrics:
            lines = _lines(self.metrics, known)
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
                    f"Differences of metrics relative to a reference model need its result: add "
                    f"{', '.join(sorted(lacking))} (in a study: FOLDER/references/NAME/eval.json)."
                )
        else:
            terminal().print(panel_table(loaded, keys=None if self.everything else lines))
        said = models_by_warning(loaded.items())
        warn(f"{', '.join(names)}: {warning}" for warning, names in said.items())

    def _studies(self) -> None:
        """Show the differences in each of several studies, and their mean."""
        from atwu.report.metric_table import LEADING_METRICS, table_of
        from atwu.report.run_records import read_records
        from atwu.report.terminal_tables import studies_table

        if self.baseline is None or self.everything:
            raise UsageError(
                "studies have different rows: give --baseline NAME for the differences in each study, and "
                "--metrics for more than one metric."
            )
        short = [path.resolve().name for path in self.results]
        names = short if len(set(short)) == len(short) else map(str, self.results)
        heads: dict[MetricKey, Head] = {}
        found = {}
        for name, path in zip(names, self.results, strict=True):
            records = read_records([path])
            if self.baseline not in records.results:
                raise UsageError(
                    f"--baseline must be one of {', '.join(records.results)} (study {name}); got {self.baseline!r}."
                )
            heads |= {head.key: head for head in table_of(records.results).heads}
            others = [label for label in records.results if label != self.baseline]
            found[name] = {label: records.differences(label, self.baseline) for label in others}
        leading = [line for line in LEADING_METRICS if line in heads][:1] or list(heads)
        lines = _lines(self.metrics, list(heads)) if self.metrics else leading
        terminal().print(studies_table(found, to=self.baseline, heads=[heads[line] for line in lines]))


def _named(results: Sequence[tuple[Path, EvalResult]]) -> dict[str, EvalResult]:
    """Return results by short name: the last part of the model's name, or the file's path if that is not unique."""
    short = [Path(result.model).name or result.model for _, result in results]
    names = [
        name if short.count(name) == 1 else str(path.with_suffix(""))
        for name, (path, _) in zip(short, results, strict=True)
    ]
    if len(set(names)) < len(names):
        raise ValueError(
            f"result given twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}; leave one out."
        )
    return dict(zip(names, (result for _, result in results), strict=True))


def _lines(texts: str, known: Sequence[MetricKey]) -> list[MetricKey]:
    lines = []
    for text in map(str.strip, texts.split(",")):
        split, _, metric = text.rpartition(":")
        found = [line for line in known if line[1] == metric and split in ("", line[0])]
        if not found:
            names = [name for split, metric in known for name in (f"{split}:{metric}", metric)]
            hint = did_you_mean(text, names, " --all shows every metric.", shown=str)
            raise ValueError(f"no result has a value for {text!r}.{hint}")
        lines.append(found[0])
    return lines


def _same_settings(results: Mapping[str, EvalResult]) -> None:
    from atwu.evaluation.result_checks import check_comparable, different_template

    (first_name, first), *others = results.items()
    for name, other in others:
        try:
            check_comparable(first.settings, other, role=name)
        except ValueError as error:
            warn([f"{first_name} and {name}: {error}"])
        warn(filter(None, [different_template(first.settings, other, role=name)]))
