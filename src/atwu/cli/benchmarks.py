"""`atwu benchmarks`: list the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from atwu.cli.output import terminal


@dataclass(kw_only=True)
class BenchmarksCommand:
    """List the benchmarks: names, size, licence, what each measures, and whether its data are at hand.

    Data are looked for in the folder ATWU_DATA, else on the Hub; see docs/benchmarks.md.

    Example: atwu benchmarks
    """

    def run(self) -> None:
        from rich.table import Table

        from atwu.benchmarks.load_benchmark import CATALOG

        table = Table("benchmark", "size", "licence", "measures", "data", box=None, pad_edge=False)
        for entry in CATALOG:
            table.add_row("\n".join(entry.names), entry.size, entry.licence, entry.measures, entry.data())
        terminal().print(table)
