"""`atwu export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu.cli.options import option, values_of
from atwu.cli.output import say
from atwu.cli.shared import DEVICE, ROWS
from atwu.modeling.opening import Loading

FORMATS = ("safetensors", "adapter", "4bit", "8bit", "gguf")
"""As `atwu.shipping.formats` has them, which is slow to import."""
MEASURED = "What is measured"


@dataclass(kw_only=True)
class Export:
    """Write an unlearned model in the format it is shipped in, read it back, and measure that: is all still forgotten?

    Rounding can bring back what a small change of the weights had hidden. So the run's model and the exported one are measured
    on the same rows (those of the run), and the verdict says in words what the export changed.

    Example: atwu export unlearned --format gguf --gguf-type Q4_0
    """

    run_folder: str = option(
        "Folder of a run, with whole weights or adapters (or of any model).", positional=True, flag="run"
    )
    form: str = option(
        "safetensors (adapters merged), adapter, 4bit or 8bit (bitsandbytes), gguf (llama.cpp).",
        flag="format",
        choices=FORMATS,
    )
    output: str | None = option("Folder to create. Default: RUN-FORMAT beside the run.", None, alias=("-o",))
    overwrite: bool = option("Replace the export at --output.", False)
    gguf_type: str = option(
        "Storage of matrices in a GGUF file: F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0; with --llama-cpp, any it has.",
        "Q8_0",
    )
    llama_cpp: Path | None = option("Checkout of llama.cpp whose converter shall write the GGUF file.", None)
    forget: str | None = option(f"Rows that are gone: {ROWS}. Default: the run's.", None, group=MEASURED)
    retain: str | None = option("Rows that should be there, likewise.", None, group=MEASURED)
    unseen: str = option("Rows like those to forget that no model saw.", "people:small:holdout", group=MEASURED)
    retain_limit: float = option(
        "Most that the loss of kept rows may rise, in nats per token.", 0.15, least=0, group=MEASURED
    )
    strict: bool = option("End with an error if what was forgotten comes back, or much is lost.", False, group=MEASURED)
    device: str | None = option(DEVICE, None)
    loading: Loading = option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Export, and say what became of it."""
        from atwu.shipping.run import export

        exported = export(
            self.run_folder,
            self.form,
            **values_of(self, "output", "overwrite", "forget", "retain", "unseen", "retain_limit"),
            **values_of(self, "gguf_type", "llama_cpp", "loading", "device"),
            say=say,
        )
        say(f"exported to {exported.model} ({exported.bytes / 1e6:.1f} MB)")
        say(f"\n{exported.summary()}")
        if self.strict and not exported.good:
            raise SystemExit(3)
