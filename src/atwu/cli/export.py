"""`atwu export`: convert an unlearned model to another format and check the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu.cli.cli_options import cli_option, values_of
from atwu.cli.shared import DEVICE, ROWS_HELP, NamesRows, columns_option, rows_option, say
from atwu.exporting import EXPORT_FORMATS
from atwu.modeling.open_model import ModelLoadArgs

MEASURED_GROUP = "Verification"


@dataclass(kw_only=True)
class ExportCommand(NamesRows):
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
    forget: str | None = rows_option(
        f"Forget rows: {ROWS_HELP}. Default: those of the run.", None, group=MEASURED_GROUP
    )
    retain: str | None = rows_option(
        "Retain rows: same kinds of source. Default: those of the run.", None, group=MEASURED_GROUP
    )
    columns: str | None = columns_option(group=MEASURED_GROUP)
    max_retain_increase: float = cli_option(
        "Largest accepted increase of the loss on retained data, in nats/token.", 0.15, least=0, group=MEASURED_GROUP
    )
    strict: bool = cli_option(
        "Exit with code 3 if forgotten rows come back or retained data is damaged.", False, group=MEASURED_GROUP
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
