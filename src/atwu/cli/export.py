"""`atwu export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu.cli.cli_options import cli_option, values_of
from atwu.cli.output import say
from atwu.cli.shared import DEVICE, ROWS_HELP
from atwu.modeling.open_model import ModelLoadArgs

FORMAT_NAMES = ("safetensors", "adapter", "4bit", "8bit", "gguf")
"""As `atwu.exporting.model_formats` has them, which is slow to import."""
MEASURED_GROUP = "What is measured"


@dataclass(kw_only=True)
class ExportCommand:
    """Write an unlearned model in the format it is shipped in, read it back, and measure that: is all still forgotten?

    Rounding can bring back what a small change of the weights had hidden. So the run's model and the exported one are measured
    on the same rows (those of the run), and the verdict says in words what the export changed.

    Example: atwu export unlearned --format gguf --gguf-type Q4_0
    """

    run_folder: str = cli_option(
        "Folder of a run, with whole weights or adapters (or of any model).", positional=True, flag="run"
    )
    form: str = cli_option(
        "safetensors (adapters merged), adapter, 4bit or 8bit (bitsandbytes), gguf (llama.cpp).",
        flag="format",
        choices=FORMAT_NAMES,
    )
    output: str | None = cli_option("Folder to create. Default: RUN-FORMAT beside the run.", None, alias=("-o",))
    overwrite: bool = cli_option("Replace the export at --output.", False)
    gguf_type: str = cli_option(
        "Storage of matrices in a GGUF file: F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0; with --llama-cpp, any it has.",
        "Q8_0",
    )
    llama_cpp: Path | None = cli_option("Checkout of llama.cpp whose converter shall write the GGUF file.", None)
    forget: str | None = cli_option(f"Rows that are gone: {ROWS_HELP}. Default: the run's.", None, group=MEASURED_GROUP)
    retain: str | None = cli_option("Rows that should be there, likewise.", None, group=MEASURED_GROUP)
    holdout: str = cli_option(
        "Rows like those to forget that no model saw.", "people:small:holdout", group=MEASURED_GROUP
    )
    max_retain_increase: float = cli_option(
        "Most that the loss of kept rows may rise, in nats per token.", 0.15, least=0, group=MEASURED_GROUP
    )
    strict: bool = cli_option(
        "End with an error if what was forgotten comes back, or much is lost.", False, group=MEASURED_GROUP
    )
    device: str | None = cli_option(DEVICE, None)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Export, and say what became of it."""
        from atwu.exporting.export_run import export

        exported = export(
            self.run_folder,
            self.form,
            **values_of(self, "output", "overwrite", "forget", "retain", "holdout", "max_retain_increase"),
            **values_of(self, "gguf_type", "llama_cpp", "loading", "device"),
            say=say,
        )
        say(f"exported to {exported.model} ({exported.bytes / 1e6:.1f} MB)")
        say(f"\n{exported.summary()}")
        if self.strict and not exported.good:
            raise SystemExit(3)
