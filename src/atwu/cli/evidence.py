"""`atwu evidence`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._files import check_writable, sha256_of
from atwu.cli.cli_options import UsageError, cli_option
from atwu.cli.output import note, say, warn
from atwu.cli.shared import DEVICE

if TYPE_CHECKING:
    from atwu.request.evidence import Evidence


@dataclass(kw_only=True)
class EvidenceCommand:
    """Put what a request came to on one page that can be filed, and in one JSON.

    The request, what was done, the thresholds set before training and what came of each, attacks, hashes, limits. What a
    threshold or an attack needs and nobody measured yet is measured now.

    Example: atwu evidence unlearned --output evidence.html
    """

    run_folder: str | None = cli_option("Finished run of atwu unlearn. (needed)", None, flag="run", positional=True)
    thresholds: Path | None = cli_option("YAML of limits; default: those that were set with the request.", None)
    print_thresholds: bool = cli_option("Print the shipped thresholds, to start a file from, and stop.", False)
    output: Path | None = cli_option(
        "Page to write, with the JSON beside it. Default: evidence.html in the run's folder request.",
        None,
        alias=("-o",),
    )
    overwrite: bool = cli_option("Replace what is there.", False)
    show_rows: bool = cli_option("Put the rows themselves in, not only their hashes.", False)
    strict: bool = cli_option("End with an error unless every threshold is met and no request came back.", False)
    device: str | None = cli_option(DEVICE, None)

    def run(self) -> None:
        """Measure what is missing, write, say what came of it."""
        from atwu.request.collect_evidence import gather
        from atwu.request.evidence_page import write_evidence_page
        from atwu.request.thresholds import shipped_text

        if self.print_thresholds:
            say(shipped_text().rstrip("\n"))
            return
        if self.run_folder is None:
            raise UsageError("RUN missing.")
        page = self.output or Path(self.run_folder).expanduser() / "request" / "evidence.html"
        if page.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"--output must end in .html, got {page.name!r}; the JSON goes beside it.")
        data = page.with_suffix(".json")
        for file in (page, data):
            if self.output is not None or file.exists():
                check_writable(file, overwrite=self.overwrite)
        evidence = gather(
            self.run_folder, thresholds=self.thresholds, show_rows=self.show_rows, device=self.device, say=note
        )
        evidence.write(data)
        write_evidence_page(evidence, page, data=data)
        _print(evidence)
        warn(evidence.warnings)
        say(f"written: {page}")
        say(f"written: {data} (sha256 {sha256_of(data)})")
        if self.strict and not evidence.good:
            raise SystemExit(3)


def _print(evidence: Evidence) -> None:
    """The thresholds as a table, and what came of them."""
    from rich.console import Console
    from rich.table import Table

    from atwu.request.evidence_page import between, format_figure, lead, shown_limit, threshold_outcome

    bar = evidence.thresholds
    say(f"thresholds: {bar.name} (sha256 {bar.sha256[:16]}...). {bar.statement}\n")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("number", "limit", "measured", ""):
        table.add_column(name, no_wrap=name in ("number", "measured"))
    for each in bar.results:
        name, limit = each.name.replace("@", "\n@"), shown_limit(each, " (holdout)")
        table.add_row(
            name, limit, f"{format_figure(each.value)} {between(each.low, each.high)}".strip(), threshold_outcome(each)
        )
    Console(soft_wrap=False).print(table)
    for each in bar.results:
        if each.passed is None:
            say(f"not measured: {each.name}: {each.missing_reason}")
    untried = ", ".join(each.name for each in evidence.attacks if not each.tried)
    say(f"\n{lead(evidence)}" + (f" Attacks that were not tried: {untried}." if untried else ""))
