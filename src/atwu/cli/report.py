"""`atwu report`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from atwu.report.records import Records

_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}
_ENDINGS = {"html": ".html", "md": ".md", "latex": ".tex", "csv": ".csv", "json": ".json"}


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Study folders, run folders with an eval.json, or results of atwu evaluate.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; its ending says which format.")
    ] = None,
    form: Annotated[
        list[str] | None, typer.Option("--format", help="html, md, latex, csv or json; may be given several times.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the figures as PDF and SVG.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report; the study's by default.")] = None,
    focus: Annotated[str, typer.Option(help="Method that figures and the page highlight.")] = "atwu",
) -> None:
    """Turn finished runs into a page, tables and figures.

    Without --output and --figures the table is printed. The page is one file that needs no network.

    Example: atwu report runs/headline-people-small --output report.html
    """
    from atwu.report.records import read_records

    forms = _forms(form or [], output)
    records = read_records(runs, title=title)
    if not records.runs:
        raise typer.BadParameter("there are references here, but no unlearned model.")
    if focus not in records.labels and focus != "atwu":
        raise typer.BadParameter(f"--focus must be one of {', '.join(records.labels)}; got {focus!r}.")
    command = _command(runs, output, forms if form else [], figures, title, focus)
    if output is None:
        if forms or figures is None:
            _print(records, forms)
    else:
        for chosen in forms:
            path = output if len(forms) == 1 else output.with_suffix(_ENDINGS[chosen])
            _write(records, chosen, path, command=command, focus=focus)
            typer.echo(f"wrote {path}")
    if figures is not None:
        from atwu.report.figures import save_figures

        for path in save_figures(records, figures, focus=focus):
            typer.echo(f"wrote {path}")


def _forms(given: Sequence[str], output: Path | None) -> list[str]:
    """The formats asked for, or the one that the output's ending stands for.

    Raises:
        typer.BadParameter: unknown format or ending, or a page that has no file.
    """
    for form in given:
        if form not in _ENDINGS:
            raise typer.BadParameter(f"--format must be one of {', '.join(_ENDINGS)}; got {form!r}.")
    if output is None:
        if "html" in given:
            raise typer.BadParameter("a page needs a file: --output report.html.")
        return list(dict.fromkeys(given))
    if given:
        return list(dict.fromkeys(given))
    if output.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(
            f"--output must end in one of {', '.join(_SUFFIXES)}, or come with --format; got {output.name!r}."
        )
    return [_SUFFIXES[output.suffix.lower()]]


def _print(records: Records, forms: Sequence[str]) -> None:
    from atwu.report.formats import WRITERS

    for form in forms:
        typer.echo(WRITERS[form](records), nl=False)
    if not forms:
        from rich.console import Console

        from atwu.report.terminal import headline_table

        Console().print(headline_table(records))


def _write(records: Records, form: str, path: Path, *, command: str, focus: str) -> None:
    if form == "html":
        from atwu.report.page.write import write_page

        write_page(records, path, command=command, focus=focus)
        return
    from atwu.report.formats import WRITERS

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(WRITERS[form](records), encoding="utf-8")


def _command(
    runs: Sequence[Path], output: Path | None, forms: Sequence[str], figures: Path | None, title: str | None, focus: str
) -> str:
    """What makes the same report again."""
    words = ["atwu", "report", *map(str, runs)]
    words += ["--output", str(output)] if output is not None else []
    words += [word for form in forms for word in ("--format", form)]
    words += ["--figures", str(figures)] if figures is not None else []
    words += ["--title", title] if title is not None else []
    words += ["--focus", focus] if focus != "atwu" else []
    return shlex.join(words)
