"""`atwu evidence`: write the evidence of an unlearning request as HTML and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable, sha256_of
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import DEVICE, note, say
from atwu.errors import UsageError


@dataclass(kw_only=True)
class EvidenceCommand:
    """Write the evidence of an unlearning request as an HTML page and a JSON file.

    The model is asked for every fact again: as saved, sampled, with rounded weights, after fine-tuning on half of the facts
    and on unrelated rows, and pushed back along one direction, beside facts that it never knew. The page also has the
    request, the training run, hashes and limitations.

    Example: atwu evidence unlearned --output evidence.html
    """

    run_folder: str = cli_option("Folder of a finished run of atwu unlearn.", flag="run", positional=True)
    output: Path | None = cli_option(
        "HTML page to write; the JSON file goes to the same folder. Default: RUN/request/evidence.html.",
        None,
        alias=("-o",),
    )
    overwrite: bool = cli_option("Replace existing files.", False)
    show_rows: bool = cli_option("Include the forget rows, not only their hashes.", False)
    strict: bool = cli_option(
        "Exit with code 3 unless the verdict is `forgotten` and no earlier request came back.", False
    )
    device: str | None = cli_option(DEVICE, None)

    def run(self) -> None:
        from atwu.request.collect_evidence import gather
        from atwu.request.evidence import is_evidence, summary_text
        from atwu.request.screen import leak_lines, state_lines

        page = self.output or Path(self.run_folder).expanduser() / "request" / "evidence.html"
        if page.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"--output must end in .html, got {page.name!r}; the JSON file gets the same name.")
        data = page.with_suffix(".json")
        for file in (page, data):
            if self.output is not None or file.exists():
                left_by_a_kill = file == data and not page.exists() and is_evidence(data)
                check_writable(file, overwrite=self.overwrite or left_by_a_kill)
        evidence = gather(self.run_folder, show_rows=self.show_rows, device=self.device, say=note)
        evidence.write(data, page)
        say("\n".join(state_lines(evidence.states)))
        if evidence.leaks:
            say("\n".join(leak_lines(evidence.leaks)))
        say(f"\n{summary_text(evidence)}")
        say(f"written: {page}")
        say(f"written: {data} (sha256 {sha256_of(data)})")
        if self.strict and not evidence.good:
            raise SystemExit(3)
