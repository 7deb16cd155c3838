"""What `tokens` and `probe` share: rows that are read with one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atwu.cli.cli_options import cli_option
from atwu.cli.output import warn
from atwu.modeling.open_model import ModelLoadArgs

if TYPE_CHECKING:
    from atwu.benchmarks.sources import LoadedRows
    from atwu.data.schema import Example

READING = "Reading"
ROWS_HELP = "file, Hub data set or people:SIZE:SPLIT"
DEVICE = "cpu, cuda, cuda:1, mps; default: the best there is."
SYSTEM = "System turn put before conversations that have none, as the model was trained with."


@dataclass(kw_only=True)
class ReadsRows:
    """A command that reads rows with one model."""

    model: str = cli_option("Model: folder or Hub name.", alias=("-m",))
    data: str = cli_option(f"Rows: {ROWS_HELP}.", alias=("-d",))
    max_length: int = cli_option("Longest row in tokens.", 512, least=8, group=READING)
    system: str | None = cli_option(SYSTEM, None, group=READING)
    device: str | None = cli_option(DEVICE, None, group=READING)
    loading: ModelLoadArgs = cli_option("", group=READING)

    def check(self) -> None:
        """Check names before anything is read; warn of a system turn that is another one than in training."""
        from atwu.data.render import check_system
        from atwu.modeling.device import pick_device
        from atwu.modeling.load import check_model_name
        from atwu.modeling.open_model import check_system_prompt

        pick_device(self.device)
        check_system(self.system)
        check_model_name(self.model, base=self.loading.base)
        warn(filter(None, [check_system_prompt(self.model, self.system)]))

    def load_rows(self, limit: int | None) -> LoadedRows:
        """The rows, with their warnings said."""
        from atwu.benchmarks.sources import load_rows

        loaded = load_rows(self.data, limit=limit)
        warn(loaded.warnings)
        return loaded

    def open(self) -> tuple[Any, Any]:
        """Model and tokenizer."""
        from atwu.modeling.open_model import open_model

        return open_model(self.model, self.loading, device=self.device)


def open_rows(source: str | None, *, limit: int | None = None) -> Sequence[Example]:
    """The rows of a source, at most `limit` of them, evenly spaced; nothing without a source. Warnings are printed."""
    if source is None:
        return ()
    from atwu.benchmarks.sources import load_rows
    from atwu.benchmarks.subsample import evenly_spaced

    loaded = load_rows(source)
    warn(f"{source}: {warning}" for warning in loaded.warnings)
    return evenly_spaced(loaded.rows, limit)
