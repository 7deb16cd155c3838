"""Options and helpers shared by commands that read rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, cast

from atwu.cli.cli_options import UsageError, cli_option
from atwu.cli.output import warn

if TYPE_CHECKING:
    from atwu.data.schema import Example

ROWS_HELP = "file, Hub data set or people:SIZE:SPLIT"
DEVICE = "Device: cpu, cuda, cuda:1, mps. Default: the best available."


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
        from atwu.data.row_columns import parse_columns

        columns = parse_columns(str(self.columns))
        if isinstance(source, list):
            return [f"{name}={with_columns(one, columns)}" for name, _, one in (each.partition("=") for each in source)]
        return None if source is None else with_columns(source, columns)


def open_rows(source: str | None, *, limit: int | None = None) -> Sequence[Example]:
    """Load at most `limit` evenly spaced rows of a source and print warnings; an empty tuple without a source."""
    if source is None:
        return ()
    from atwu.benchmarks.base import evenly_spaced
    from atwu.benchmarks.sources import load_rows

    loaded = load_rows(source)
    warn(f"{source}: {warning}" for warning in loaded.warnings)
    return evenly_spaced(loaded.rows, limit)
