"""`atwu report` and `atwu compare`: tables, figures and pages of finished runs, of results and of several studies."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._files import check_output_folder, check_writable, write_text
from atwu._names import did_you_mean
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import ResultFile, note, say, terminal, warn
from atwu.errors import UsageError
from atwu.judge.open_judge import EstimatedJudgeOptions

if TYPE_CHECKING:
    from atwu.evaluation.intervals import Estimate
    from atwu.evaluation.result import EvalResult
    from atwu.report.metric_table import MetricKey
    from atwu.report.report_records import Records


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
        from atwu.evaluation.aggregate import paired_differences
        from atwu.evaluation.result import read_result
        from atwu.report.metric_table import LEADING_METRICS, PANEL, table_of
        from atwu.report.read_records import read_records
        from atwu.report.report_records import EVAL_NAME, models_by_warning
        from atwu.report.table_writers import differences_table, panel_table

        studies = {}
        if all(path.is_dir() for path in self.results):
            # Resolved, since `.` has no name.
            names = [path.resolve().name for path in self.results]
            if len(set(names)) < len(names):
                names = list(map(str, self.results))
            studies = {name: read_records([path]) for name, path in zip(names, self.results, strict=True)}
            shown = {name: records.results for name, records in studies.items()}
        elif len(self.results) < 2:
            raise UsageError(
                "give two or more results or the folder of a study; atwu evaluate --output writes results."
            )
        else:
            paths = [path / EVAL_NAME if path.is_dir() else path for path in self.results]
            shown = {"": _name_results([(path, read_result(path)) for path in paths])}
            _same_settings(shown[""])
        several = len(shown) > 1
        if several and (self.baseline is None or self.everything):
            raise UsageError(
                "studies have different rows: give --baseline NAME for the differences in each study, and "
                "--metrics for more than one metric."
            )
        heads = {head.key: head for results in shown.values() for head in table_of(results).heads}
        if self.everything:
            lines = list(heads)
        elif self.metrics:
            lines = _lines(self.metrics, list(heads))
        elif several:  # the one metric that ranks methods: each takes a line per study
            lines = ([line for line in LEADING_METRICS if line in heads] or list(heads))[:1]
        else:
            lines = [line for line in PANEL if line in heads] or list(heads)
        results = next(iter(shown.values()))
        if self.baseline is None:
            # Without keys the table has all metrics, grouped by set.
            terminal().print(panel_table(results, keys=None if self.everything else lines))
        else:
            differences: dict[str, dict[str, Mapping[MetricKey, Estimate]]] = {}
            for study, results in shown.items():
                if self.baseline not in results:
                    where = f" (study {study})" if several else ""
                    raise UsageError(f"--baseline must be one of {', '.join(results)}{where}; got {self.baseline!r}.")
                differences[study] = {}
                for name, result in results.items():
                    if name == self.baseline:
                        continue
                    if studies:
                        differences[study][name] = studies[study].differences(name, self.baseline)
                    else:
                        base, every = results[self.baseline], list(results.values())
                        differences[study][name] = paired_differences(result, base, every)
            chosen = [heads[line] for line in lines]
            terminal().print(differences_table(differences, to=self.baseline, heads=chosen))
        if several:
            return
        fingerprints = {result.fingerprint for result in results.values()}
        lacking = {
            role for result in results.values() for role, name in result.references.items() if name not in fingerprints
        }
        if self.baseline is not None and lacking:
            note(
                f"Differences of metrics relative to a reference model need its result: add {', '.join(sorted(lacking))} "
                "(in a study: FOLDER/references/NAME/eval.json)."
            )
        warn(f"{', '.join(names)}: {text}" for text, names in models_by_warning(results.items()).items())


def _name_results(results: Sequence[tuple[Path, EvalResult]]) -> dict[str, EvalResult]:
    """Return results by short name: the last part of the model's name, or the file's path if that is not unique."""
    # The whole path of a folder would fill the table.
    short = [Path(result.model).name or result.model for _, result in results]
    names = [
        name if short.count(name) == 1 else str(path.with_suffix(""))
        for name, (path, _) in zip(short, results, strict=True)
    ]
    if len(set(names)) < len(names):
        raise ValueError(
            f"result given twice: {', '.join(sorted({name for name in names if names.count(name) > 1}))}; leave one out."
        )
    return dict(zip(names, (result for _, result in results), strict=True))


def _lines(texts: str, known: Sequence[MetricKey]) -> list[MetricKey]:
    lines = []
    for text in map(str.strip, texts.split(",")):
        split, _, metric = text.rpartition(":")
        fitting = [line for line in known if line[1] == metric and split in ("", line[0])]
        if not fitting:
            names = [name for split, metric in known for name in (f"{split}:{metric}", metric)]
            hint = did_you_mean(text, names, " --all shows every metric.", shown=str)
            raise ValueError(f"no result has a value for {text!r}.{hint}")
        lines.append(fitting[0])
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


_FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}


@dataclass(kw_only=True)
class ReportCommand:
    """Write a report page, tables or figures of finished runs.

    Prints the table unless --output or --figures is given. The page is a single file that works offline. With a folder as
    --output, studies of several benchmarks and models come onto one page, index.html.

    Example: atwu report runs/headline-people-small --output report.html
    Example: atwu report runs/headline-people-small runs/headline-tofu-part --output board
    """

    runs: list[Path] = cli_option(
        "A study folder, run folders with an eval.json, or result files of atwu evaluate; for a folder as --output, study "
        "folders, or folders of results with a board.yaml.",
        positional=True,
    )
    output: Path | None = cli_option(
        "File to write, whose suffix determines the format; or a folder, for several studies.", None, alias=("-o",)
    )
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    figures: Path | None = cli_option("Folder for figures as PDF and SVG.", None)
    focus: str = cli_option("Method to highlight in figures and on the page.", "atwu")

    def run(self) -> None:
        from atwu.report.read_records import read_records

        ending = ""
        if self.output is not None:
            ending = self.output.suffix.lower()
            if not ending and self.figures is None:
                self._write_board(self.output)
                return
            if ending not in _FORMATS:
                raise UsageError(
                    f"--output must end in one of {', '.join(_FORMATS)}, or be a folder (without --figures); got "
                    f"{self.output.name!r}."
                )
        if self.figures is not None:
            check_output_folder(self.figures)
        records = read_records(self.runs)
        if not records.runs:
            raise UsageError("the given runs contain reference models only, and no unlearned model.")
        if self.focus not in records.labels and self.focus != "atwu":
            raise UsageError(f"--focus must be one of {', '.join(records.labels)}; got {self.focus!r}.")
        if self.output is not None:
            check_output_folder(self.output.parent)
            self.output.parent.mkdir(parents=True, exist_ok=True)
            check_writable(self.output, overwrite=self.overwrite)
            write_text(self.output, self._text(records, _FORMATS[ending]))
            say(f"wrote {self.output}")
        elif self.figures is None:
            from atwu.report.table_writers import headline_table

            terminal().print(headline_table(records))
        if self.figures is not None:
            from atwu.report.figures import save_figures

            for path in save_figures(records, self.figures, focus=self.focus):
                say(f"wrote {path}")

    def _write_board(self, folder: Path) -> None:
        from atwu.report.board import read_board, render_board

        check_output_folder(folder)
        # Read before the folder is made: a study that cannot be read leaves nothing behind.
        studies = read_board(self.runs)
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "index.html"
        check_writable(page, overwrite=self.overwrite)
        write_text(page, render_board(studies))
        say(f"wrote {page}: {len(studies)} {'study' if len(studies) == 1 else 'studies'}")

    def _text(self, records: Records, form: str) -> str:
        if form == "html":
            from atwu.report.report_page import render_report_page

            return render_report_page(records, command=shlex.join(["atwu", *sys.argv[1:]]), focus=self.focus)
        from atwu.report.table_writers import WRITERS

        return WRITERS[form](records)


AGREEMENT_SCHEMA = "atwu.agreement/1"


@dataclass(kw_only=True)
class JudgeAgreementCommand:
    """Compare a judge with human labels: accuracy, kappa, false positives and negatives.

    Before you rely on a judge, check it on about a hundred labelled answers of your own.

    Example: atwu judge agreement --judge openai:my-model --judge-url http://localhost:8000/v1 --data labelled.jsonl
    """

    data: Path | None = cli_option(
        "JSONL with question, reference, answer, label (optional: facts, kind, split). Default: the labelled cases "
        "shipped with the package.",
        None,
        alias=("-d",),
    )
    split: str | None = cli_option(
        "Split to use. Default: test for the shipped cases (the offline rules were tuned on dev).",
        None,
        choices=("dev", "test"),
    )
    show_errors: int = cli_option("Number of disagreements to print.", 5, least=0)
    result: ResultFile
    judging: EstimatedJudgeOptions

    def run(self) -> None:
        from atwu._files import versions, write_json
        from atwu.judge.agreement import agreement, load_cases
        from atwu.judge.open_judge import open_judge
        from atwu.judge.prompted import PromptedJudge
        from atwu.report.table_writers import agreement_table

        self.result.check()
        # The offline rules were tuned on dev, and would look better there.
        split = self.split or ("test" if self.data is None else None)
        loaded = load_cases(split, path=self.data)
        if not loaded:
            raise ValueError(f"there is no case in split {split!r}; leave out --split to use all cases.")
        claims = [case.claim for case in loaded]
        name, judge = self.judging.judge, open_judge(self.judging)
        if self.judging.estimate:
            cost: object = "judged offline at no cost"
            if isinstance(judge, PromptedJudge):
                cost = judge.estimate(claims)
            say(f"{name}: {cost}")
            return
        verdicts = judge.judge(claims)
        judged = [verdict.correct for verdict in verdicts]
        agreed = agreement([case.label for case in loaded], judged, kinds=[case.kind for case in loaded])
        if self.result.output is not None:
            record = {
                "schema": AGREEMENT_SCHEMA,
                "judge": dict(judge.identity),
                **asdict(agreed),
                "versions": versions(),
            }
            write_json(self.result.output, record)
        terminal().print(agreement_table(agreed, title=f"{name} against labels"))
        wrong = [
            (case.claim, verdict)
            for case, verdict in zip(loaded, verdicts, strict=True)
            if verdict.correct is not None and verdict.correct != case.label
        ]
        for claim, verdict in wrong[: self.show_errors]:
            say(f"\n{claim.question}\n  reference: {claim.reference}\n  answer:    {claim.answer}")
            say(f"  {name} says {'yes' if verdict.correct else 'no'} ({verdict.reason})")
        if len(wrong) > self.show_errors:
            say(f"\n... and {len(wrong) - self.show_errors} more disagreements (--show-errors)")
        if self.result.output is not None:
            say(f"written: {self.result.output}")
