"""Options and helpers shared by commands that read rows with one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from atwu.cli.cli_options import UsageError, cli_option
from atwu.cli.output import warn
from atwu.modeling.open_model import ModelLoadArgs

if TYPE_CHECKING:
    from atwu.benchmarks.sources import LoadedRows
    from atwu.data.schema import Example

READING = "Reading rows"
ROWS_HELP = "file, Hub data set or people:SIZE:SPLIT"
DEVICE = "Device: cpu, cuda, cuda:1, mps. Default: the best available."
SYSTEM = "System prompt for conversations without one; use the one from training."


def rows_option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """Declare a field with a source of rows, for commands derived from `NamesRows`."""
    return cli_option(help, default, rows=True, **more)


def columns_option(**more: Any) -> Any:
    """Declare the field `columns` of `NamesRows`."""
    return cli_option(
        "Columns of the given files with other names, as FIELD=COLUMN,...: question=prompt,answer=completion.",
        None,
        **more,
    )


class NamesRows:
    """Base of commands with sources of rows, to which the column mapping is added."""

    columns: str | None

    def __post_init__(self) -> None:
        if (text := self.columns) is None:
            return
        declared = fields(cast(Any, self))
        given = {each.name: getattr(self, each.name) for each in declared if each.metadata.get("rows")}
        mapped = {name: self.mapped(source) for name, source in given.items()}
        if mapped == given:
            raise UsageError(f"--columns {text} requires a file or a Hub data set without a column mapping of its own.")
        vars(self).update(mapped)

    def mapped(self, source: Any) -> Any:
        """Return a source, or a list of NAME=SOURCE, with the column mapping."""
        from atwu.benchmarks.sources import with_columns
        from atwu.data.column_mapping import parse_columns

        columns = parse_columns(str(self.columns))
        if isinstance(source, list):
            return [f"{name}={with_columns(one, columns)}" for name, _, one in (each.partition("=") for each in source)]
        return None if source is None else with_columns(source, columns)


@dataclass(kw_only=True)
class ReadsRows(NamesRows):
    """Base of commands that read rows with one model."""

    model: str = cli_option("Model: folder or Hub name.", alias=("-m",))
    data: str = rows_option(f"Rows: {ROWS_HELP}.", alias=("-d",))
    columns: str | None = columns_option(group=READING)
    max_length: int = cli_option(
        "Maximum row length in tokens; longer answers are truncated.", 512, least=8, group=READING
    )
    system: str | None = cli_option(SYSTEM, None, group=READING)
    device: str | None = cli_option(DEVICE, None, group=READING)
    loading: ModelLoadArgs = cli_option("", group=READING)

    def check(self) -> None:
        """Check names before anything is loaded; warn if the system prompt differs from training."""
        from atwu.data.render import check_system
        from atwu.modeling.device import pick_device
        from atwu.modeling.load import check_model_name
        from atwu.modeling.open_model import check_system_prompt

        pick_device(self.device)
        check_system(self.system)
        check_model_name(self.model, base=self.loading.base)
        warn(filter(None, [check_system_prompt(self.model, self.system)]))

    def load_rows(self, limit: int | None) -> LoadedRows:
        """Load the rows and print their warnings."""
        from atwu.benchmarks.sources import load_rows

        loaded = load_rows(self.data, limit=limit)
        warn(loaded.warnings)
        return loaded

    def open(self) -> tuple[Any, Any]:
        """Load model and tokenizer."""
        from atwu.modeling.open_model import open_model

        return open_model(self.model, self.loading, device=self.device)


def open_rows(source: str | None, *, limit: int | None = None) -> Sequence[Example]:
    """Load at most `limit` evenly spaced rows of a source and print warnings; an empty tuple without a source."""
    if source is None:
        return ()
    from atwu.benchmarks.sources import load_rows
    from atwu.benchmarks.subsample import evenly_spaced

    loaded = load_rows(source)
    warn(f"{source}: {warning}" for warning in loaded.warnings)
    return evenly_spaced(loaded.rows, limit)
