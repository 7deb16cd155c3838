"""`python -m theory`: check the recovery theorem numerically."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from theory.rows import BudgetRow, TheoryResult, TokenRow

SCHEMA_NAME = "atwu.theory/1"
READING = (
    "c: smallest increase of the retain loss at which the token is forgotten. V: the same with the forget loss as a "
    "penalty. lead: certified distance to the next best support of that size. λ: multiples of their thresholds. "
    "Statements and proofs: theory/README.md."
)


def main(arguments: list[str] | None = None) -> int:
    """Check the recovery theorem on a problem small enough to solve exactly (about half a minute).

    A softmax regression forgets eight words: four private words of the people in the forget set and four shared words that
    the retain rows use, too. For each of the 256 subsets of words, the objective is minimized over the model with a
    certificate. The output shows which words the joint problem selects at each budget, which entropy and budget weights make
    soft scores binary and tight, what happens if a shared word is cheap to forget, and where the theorem does not cover
    SatGA+.

    The exit code is 1 if a result contradicts the proofs.
    """
    from rich.console import Console

    from atwu._files import versions, write_json
    from theory.figure import check_figure, write_figure
    from theory.study import study

    parser = argparse.ArgumentParser(
        prog="python -m theory", description=inspect.getdoc(main), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", "-o", type=Path, help="output folder for theory.json, theory.svg and theory.pdf")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random starts; no verdict should depend on it")
    parser.add_argument("--overwrite", action="store_true", help="overwrite existing files in --output")
    options = parser.parse_args(arguments)
    output: Path | None = options.output
    if output is not None:
        check_figure()
        for name in ("theory.json", "theory.svg", "theory.pdf"):
            if (output / name).exists() and not options.overwrite:
                parser.error(f"{output / name} exists; choose another folder or pass --overwrite.")

    start = time.perf_counter()
    result = study(seed=options.seed)
    seconds = time.perf_counter() - start
    written: list[Path] = []
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        record = {
            "schema": SCHEMA_NAME,
            **dataclasses.asdict(result),
            "versions": versions(),
            "seconds": round(seconds, 1),
        }
        write_json(output / "theory.json", record)
        written = [output / "theory.json", *write_figure(result, output)]
    _show(Console(highlight=False), result)
    for path in written:
        print(f"wrote {path}")
    if not result.agrees:
        return 1
    return 0


def _show(console: Console, result: TheoryResult) -> None:
    from rich.text import Text

    n = len(result.tokens)
    console.print(token_table("Forget tokens", result.tokens))
    console.print(budget_table(f"Minimizer over model and support, ρ* = {result.oracle_budget:g}", result.budgets, n))
    last = int(result.oracle_budget * n) + 1
    console.print(
        budget_table("Without separation: “as | works” is rare in the retain set", result.overlapping_budgets[:last], n)
    )
    console.print(_relaxed_table(result))
    console.print(_search_table(result))
    console.print(_needed_table(result))
    print(READING + "\n")
    for claim in result.claims:
        colour = "red" if not claim.agrees else "green" if claim.expected else "yellow"
        head, _, rest = claim.verdict.partition(":")
        console.print(Text.assemble((head, colour), ":", rest), soft_wrap=True)


def token_table(title: str, rows: Iterable[TokenRow]) -> Table:
    """Return a table with one line per forget token."""
    table = _table(title, ("token",), ("p memorized", "p retain-only", "conflict c", "V"))
    for row in rows:
        table.add_row(
            ("private  " if row.private else "shared   ") + row.token,
            *(f"{value:.3f}" for value in (row.memorised, row.retain_only)),
            *(f"{value:.5f}" for value in (row.conflict, row.penalised)),
        )
    return table


def budget_table(title: str, rows: Iterable[BudgetRow], tokens: int) -> Table:
    """Return a table with one line per budget; supports that contradict separation are marked."""
    table = _table(title, ("k", "ρ", "private words", "shared words"), ("increase of L_r", "V", "lead"))
    for row in rows:
        words = [name.split(" |")[0] for name in row.tokens]
        table.add_row(
            str(row.k),
            f"{row.k / tokens:g}",
            ", ".join(words[: row.private]),
            ", ".join(words[row.private :]) + ("" if row.recovered else " (wrong)"),
            f"{row.rise:.5f}",
            f"{row.penalised:.5f}",
            "–" if row.lead is None else f"{row.lead:.1e}",
        )
    return table


def _relaxed_table(result: TheoryResult) -> Table:
    table = _table(
        "Relaxed problem (Kelbury, tanner, works; SatGA+: tanner, works)",
        ("forget loss",),
        ("k", "λ_H", "λ_ρ", "minimizing scores", "result"),
    )
    for row in result.relaxed:
        found = ("binary" if row.binary else "fractional") + (", tight" if row.tight else "")
        table.add_row(
            "SatGA" if row.forget_loss == "satga" else "SatGA+",
            *(str(row.k), f"{row.entropy:g}", f"{row.budget:g}"),
            " ".join(f"{score:g}" for score in row.scores),
            found + (" (guaranteed)" if row.guaranteed else ""),
        )
    return table


def _search_table(result: TheoryResult) -> Table:
    table = _table(
        "Gradient search over model and scores, all tokens",
        ("λ_H",),
        ("starts", "binary", "tight", "global minimum", "from scores ½"),
    )
    for row in result.searches:
        scores = " ".join(f"{score:g}" for score in row.from_half)
        table.add_row(f"{row.entropy:.3f}", *map(str, (row.starts, row.binary, row.tight, row.best)), scores)
    return table


def _needed_table(result: TheoryResult) -> Table:
    table = _table(
        "Largest λ_H at which a fractional score is optimal (two private words, k = 1)",
        ("ridge",),
        ("SatGA", "SatGA+"),
    )
    for row in result.needed:
        table.add_row(f"{row.ridge:g}", f"{row.satga:.3f}", f"{row.satga_plus:.1f}")
    return table


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", min_width=len(title))  # keeps the title on one line
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


if __name__ == "__main__":
    sys.exit(main())
