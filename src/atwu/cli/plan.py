"""`atwu plan`: estimate the memory of an unlearning run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from atwu.cli.cli_options import UsageError, cli_option, settings
from atwu.cli.output import say, terminal
from atwu.cli.shared import ROWS_HELP, NamesRows, columns_option, rows_option
from atwu.cli.train import MODEL_HELP, unlearn_options
from atwu.modeling.open_model import ModelLoadArgs

if TYPE_CHECKING:
    from atwu.request.auto_settings import StrategyEstimate

ITEMS = ("weights", "optimizer", "gradients", "activations")


@dataclass(kw_only=True)
class PlanCommand(NamesRows):
    """Estimate the memory of unlearning per strategy, and show which strategy fits.

    No weights are loaded. `atwu unlearn` uses the first strategy that fits, unless a learning rate and a length are given; then
    only with --auto-memory. Other options are those of `atwu unlearn`.

    Example: atwu plan --model smollm2 --forget mine.jsonl --device-memory 24GB
    """

    model: str = cli_option(f"Original model: {MODEL_HELP}.", alias=("-m",))
    forget: str = rows_option(f"Forget rows: {ROWS_HELP}.")
    retain: str = rows_option("Retain rows, likewise; auto: self-generated answers to general questions.", "auto")
    columns: str | None = columns_option()
    device_memory: str | None = cli_option(
        "Memory of a CUDA device to plan for, such as 24GB. Default: this machine.", None
    )
    settings: dict[str, Any] = settings(unlearn_options)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        from atwu.benchmarks.sources import load_rows
        from atwu.request.auto_settings import DeviceInfo, batch_of, batch_size, first_that_fits, strategy_estimates
        from atwu.request.unlearning_request import flags
        from atwu.training.config import UnlearnConfig
        from atwu.training.load_to_train import ModelSource, load_checked_tokenizer

        rows = load_rows(self.forget).rows
        kept = None if self.retain == "auto" else load_rows(self.retain).rows
        given = self.settings | {"per_device_train_batch_size": batch_size(self.settings, len(rows))}
        config = UnlearnConfig(**given)
        source = ModelSource(model=self.model, weights=False, **asdict(self.loading))
        place = DeviceInfo.of(config.device)
        device, free = place.device.type, float(place.memory)
        if self.device_memory is not None:
            device, free = "cuda", _bytes(self.device_memory)
        lengths = batch_of(rows, kept, config, load_checked_tokenizer(source))
        say(
            f"{self.model} on {device}, {free / 1e9:.1f} GB free, up to {lengths.tokens:,} tokens per batch. Memory in GB:\n"
        )
        estimates = list(strategy_estimates(source, given, lengths, device=device, free=free))
        terminal().print(_table(estimates))
        chosen = first_that_fits(estimates, device=device, free=free)
        words = " ".join(flags(chosen.strategy.options))
        say(
            f"\nfirst strategy that fits with 10 % of the memory unused: {chosen.strategy.description}"
            + (f" ({words})" if words else "")
        )


def _table(estimates: Sequence[StrategyEstimate]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("strategy", no_wrap=True)
    for name in (*ITEMS, "peak"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in estimates:
        sizes = (getattr(each.memory, name) / 1e9 for name in (*ITEMS, "peak"))
        table.add_row(each.strategy.description, *(f"{size:.1f}" for size in sizes), "fits" if each.fits else "")
    return table


def _bytes(size: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|GiB|MB)", size.strip())
    if found is None or not float(found[1]):
        raise UsageError(f"--device-memory must be a size such as 24GB or 80GiB, got {size!r}.")
    return float(found[1]) * {"GB": 1e9, "GiB": 2.0**30, "MB": 1e6}[found[2]]
