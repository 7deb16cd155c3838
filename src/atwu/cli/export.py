"""What leaves a finished request: `atwu export` converts its model and checks the result, `atwu evidence` writes a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable, sha256_of
from atwu.cli.cli_options import cli_option, values_of
from atwu.cli.shared import DEVICE, ROWS_HELP, note, say
from atwu.errors import UsageError
from atwu.exporting import EXPORT_FORMATS
from atwu.judge.open_judge import MODEL_KEY
from atwu.modeling.open_model import ModelLoadArgs
from atwu.request.request_defaults import MAX_RETAIN_INCREASE

MEASURED_GROUP = "Verification"


@dataclass(kw_only=True)
class ExportCommand:
    """Export an unlearned model to another format, load the result, and check whether it still has forgotten.

    Quantization can undo unlearning, which changes weights only a little. Therefore the model of the run and the exported model
    are measured on the rows of the run, and a verdict says what the export changed.

    Example: atwu export unlearned --format gguf --gguf-type Q4_0
    """

    run_folder: str = cli_option(
        "Folder of a run (full weights or adapters), or of any model.", positional=True, flag="run"
    )
    form: str = cli_option(
        "Output format: safetensors (adapters merged), adapter, 4bit or 8bit (bitsandbytes), gguf (llama.cpp).",
        flag="format",
        choices=EXPORT_FORMATS,
    )
    output: str | None = cli_option(
        "Folder to create. Default: RUN-FORMAT in the same folder as the run.", None, alias=("-o",)
    )
    overwrite: bool = cli_option("Replace an export at --output.", False)
    gguf_type: str = cli_option(
        "GGUF type of the weight matrices: F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0; any type with --llama-cpp.",
        "Q8_0",
    )
    llama_cpp: Path | None = cli_option(
        "Folder of a llama.cpp checkout, whose converter then writes the GGUF file.", None
    )
    forget: str | None = cli_option(f"Forget rows: {ROWS_HELP}. Default: those of the run.", None, group=MEASURED_GROUP)
    retain: str | None = cli_option(
        "Retain rows: same kinds of source. Default: those of the run.", None, group=MEASURED_GROUP
    )
    max_retain_increase: float = cli_option(
        "Largest accepted increase of the retain loss, in nats/token.",
        MAX_RETAIN_INCREASE,
        least=0,
        group=MEASURED_GROUP,
    )
    strict: bool = cli_option(
        "Exit with code 3 if forgotten rows come back or what is retained is damaged.", False, group=MEASURED_GROUP
    )
    device: str | None = cli_option(DEVICE, None)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        from atwu.exporting.export_run import export

        exported = export(
            self.run_folder,
            self.form,
            **values_of(self, "output", "overwrite", "forget", "retain", "max_retain_increase"),
            **values_of(self, "gguf_type", "llama_cpp", "loading", "device"),
            say=say,
        )
        say(f"exported to {exported.model} ({exported.bytes / 1e6:.1f} MB)")
        say(f"\n{exported.summary()}")
        if self.strict and not exported.good:
            raise SystemExit(3)


@dataclass(kw_only=True)
class EvidenceCommand:
    """Write the evidence of an unlearning request as an HTML page and a JSON file.

    The model is asked for every fact again: as saved, sampled, with rounded weights, after fine-tuning on half of the facts
    and on unrelated rows, and pushed back along one direction, beside facts that it never knew. The page also has the
    request, the training run, hashes and limitations.

    With --model-url, the model of the folder as a server serves it is asked instead, and the verdict on it is printed.

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
    model_url: str | None = cli_option(
        "Base URL of an OpenAI-compatible server, such as http://localhost:8000/v1, that serves the unlearned model.",
        None,
    )
    served_model: str | None = cli_option(
        "Name of the model at --model-url. Default: the run folder as it is given.", None, needs="model_url"
    )
    model_key: str = cli_option(
        "Environment variable with the API key of --model-url.", MODEL_KEY, needs="model_url", common=False
    )
    device: str | None = cli_option(DEVICE, None)

    def run(self) -> None:
        if self.model_url is not None:
            self._ask_server(self.model_url)
            return
        from atwu.request.collect_evidence import gather
        from atwu.request.evidence import is_evidence, summary_text
        from atwu.request.screen import leak_lines, state_lines

        page = self.output or Path(self.run_folder).expanduser() / "request" / "evidence.html"
        # The JSON file has the name of the page, which a suffix must tell apart.
        if page.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"--output must end in .html, got {page.name!r}; the JSON file gets the same name.")
        data = page.with_suffix(".json")
        for file in (page, data):
            if self.output is not None or file.exists():
                # The page is written last, so a kill may leave the JSON file alone.
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

    def _ask_server(self, url: str) -> None:
        """Print the verdict on the served model."""
        if self.output is not None or self.show_rows:
            raise UsageError("--output and --show-rows are for the page; with --model-url the verdict is printed.")
        from atwu.evaluation.backends import EndpointGenerator
        from atwu.judge.client import OpenAIChat
        from atwu.request.screen import verdict_text
        from atwu.request.served_verdict import served_verdict

        chat = OpenAIChat(self.served_model or self.run_folder, base_url=url, api_key_env=self.model_key)
        verdict = served_verdict(self.run_folder, EndpointGenerator(chat), device=self.device, say=note)
        say(verdict_text(verdict))
        if self.strict and not verdict.good:
            raise SystemExit(3)
