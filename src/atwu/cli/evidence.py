"""`atwu evidence`: write the evidence of an unlearning request as HTML and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable, sha256_of
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import DEVICE, note, plain_table, say, terminal, warn
from atwu.errors import UsageError


@dataclass(kw_only=True)
class EvidenceCommand:
    """Write the evidence of an unlearning request as an HTML page and a JSON file.

    The evidence has the request, the training run, the thresholds set before training with their results, attacks, hashes and
    limitations. Missing measurements are made now.

    Example: atwu evidence unlearned --output evidence.html
    """

    run_folder: str | None = cli_option(
        "Folder of a finished run of atwu unlearn. (required unless --print-thresholds)",
        None,
        flag="run",
        positional=True,
    )
    thresholds: Path | None = cli_option("YAML file of thresholds. Default: those recorded with the request.", None)
    print_thresholds: bool = cli_option("Print the shipped thresholds file and exit.", False)
    output: Path | None = cli_option(
        "HTML page to write; the JSON file goes to the same folder. Default: RUN/request/evidence.html.",
        None,
        alias=("-o",),
    )
    overwrite: bool = cli_option("Replace existing files.", False)
    show_rows: bool = cli_option("Include the forget rows, not only their hashes.", False)
    strict: bool = cli_option("Exit with code 3 unless every threshold is met and no earlier request came back.", False)
    device: str | None = cli_option(DEVICE, None)

    def run(self) -> None:
        from atwu.request.thresholds import shipped_text

        if self.print_thresholds:
            say(shipped_text().rstrip("\n"))
            return
        if self.run_folder is None:
            raise UsageError("RUN is missing; give the folder of a finished run of atwu unlearn.")
        from atwu.request.collect_evidence import gather
        from atwu.request.evidence import (
            between,
            format_figure,
            is_evidence,
            shown_limit,
            summary_text,
            threshold_outcome,
        )

        page = self.output or Path(self.run_folder).expanduser() / "request" / "evidence.html"
        if page.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"--output must end in .html, got {page.name!r}; the JSON file gets the same name.")
        data = page.with_suffix(".json")
        for file in (page, data):
            if self.output is not None or file.exists():
                left_by_a_kill = file == data and not page.exists() and is_evidence(data)
                check_writable(file, overwrite=self.overwrite or left_by_a_kill)
        evidence = gather(
            self.run_folder, thresholds=self.thresholds, show_rows=self.show_rows, device=self.device, say=note
        )
        evidence.write(data, page)
        report = evidence.thresholds
        say(f"thresholds: {report.name} (sha256 {report.sha256[:16]}...). {report.statement}\n")
        table = plain_table("metric", "limit", "measured", "result")
        for column in table.columns[:-1]:
            column.no_wrap = True
        for each in report.results:
            name, limit = each.name.replace(".", ".\n", 1).replace("@", "\n@"), shown_limit(each, "\n(holdout)")
            measured = f"{format_figure(each.value)} {between(each.low, each.high)}".strip()
            table.add_row(name, limit, measured, threshold_outcome(each))
        terminal().print(table)
        for each in report.results:
            if each.passed is None:
                say(f"not measured: {each.name}: {each.missing_reason}")
        not_tried = ", ".join(each.name for each in evidence.attacks if not each.tried)
        say(f"\n{summary_text(evidence)}" + (f" Attacks not tried: {not_tried}." if not_tried else ""))
        warn(evidence.warnings)
        say(f"written: {page}")
        say(f"written: {data} (sha256 {sha256_of(data)})")
        if self.strict and not evidence.good:
            raise SystemExit(3)
