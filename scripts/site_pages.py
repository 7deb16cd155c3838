"""Generated pages of the site.

The home page comes from README.md, the pages of results from benchmarks/results, the board from recorded studies, command
pages from their help, API pages from the exports, notebook pages from their cells; and every repository file that a page
links to gets a page.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import posixpath
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from scripts import site_notebooks  # noqa: E402

PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
RESULTS = "benchmarks/results"
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)]*)?\)")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
CELL = re.compile(r"<td(.*?)>(.*?)</td>", re.DOTALL)
NUMBERS = re.compile(r"[-+−±–/.,:%()\[\]\d\seGBM]{,26}")
CODE = re.compile(r"<code>([^<\n]+)</code>")
PICTURE = re.compile(r'(src|srcset)="docs/([^"]+)"')


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    made = {"index.md": ("README.md", (ROOT / "README.md").read_text(encoding="utf-8"))}
    made |= {name: (name, (ROOT / name).read_text(encoding="utf-8")) for name in PROJECT}
    made |= {"commands.md": ("", commands()), "python.md": ("", python()), "licences.md": ("", licences())}
    for path in sorted((ROOT / RESULTS).glob("*.md")):  # they link to one another
        origin = f"{RESULTS}/{path.name}"
        made[page_of(origin)] = (origin, path.read_text(encoding="utf-8"))
    run = os.environ.get("SITE_NOTEBOOKS") == "run"
    for notebook in sorted((ROOT / "docs").rglob("*.ipynb")):
        origin = str(notebook.relative_to(ROOT))
        made[page_of(origin)] = (origin, site_notebooks.page(notebook, run=run))
    written = [(file.src_uri, f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    for place, (origin, text) in made.items():
        files.append(File.generated(config, place, content=resolved(text, origin)))
        written.append((place, origin, text))
    for name, content in board().items():
        files.append(File.generated(config, f"board/{name}", content=content))
    for source in sorted({source for _, origin, text in written for source in outside(text, origin)}):
        files.append(File.generated(config, page_of(source), content=shown(source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Redirect links from `docs/` to other repository files to their generated pages."""
    return markdown if page.file.generated_by else resolved(markdown, f"docs/{page.file.src_uri}")


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Add classes for `assets/site.css`: text without line breaks (numbers, short code, options), and wide columns."""
    return CODE.sub(code, TABLE.sub(lambda table: cells(table[0]), html))


def code(match: re.Match[str]) -> str:
    """Give short inline code, and the options in longer one, a class."""
    if len(match[1]) <= 30:
        return f'<code class="short">{match[1]}</code>'
    options = re.sub(r"--[\w-]+", r'<span class="short">\g<0></span>', match[1])
    return f"<code>{options}</code>"


def cells(table: str) -> str:
    """Give cells of numbers and, in tables of more than two columns, of long text a class."""
    wide = table.count("<th") > 3  # <thead> and three columns

    def cell(match: re.Match[str]) -> str:
        text = re.sub("<.*?>", "", match[2])
        kind = "numbers" if NUMBERS.fullmatch(text) else "prose" if wide and len(text) > 40 else ""
        return f'<td{match[1]} class="{kind}">{match[2]}</td>' if kind else match[0]

    return CELL.sub(cell, table)


def target(link: str, origin: str) -> str:
    """Resolve a link relative to the repository's root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def outside(text: str, origin: str) -> list[str]:
    """List linked repository files that have no page of their own."""
    links = (link for link, _ in LINK.findall(text) if "://" not in link)
    found = (target(link, origin) for link in links)
    return [each for each in found if page_of(each).startswith("files/") and (ROOT / each).is_file()]


def page_of(source: str) -> str:
    """Return the page of a file."""
    if source == "README.md":
        return "index.md"
    if source in PROJECT:
        return source
    if source.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", source.removeprefix("docs/"))
    if posixpath.dirname(source) == RESULTS and source.endswith(".md"):
        return source.removeprefix("benchmarks/")
    return f"files/{source}.md".replace(".md.md", ".md")


def resolved(text: str, origin: str) -> str:
    """Rewrite the links of a text for the site."""
    here = posixpath.dirname(page_of(origin) if origin else "")

    def link(match: re.Match[str]) -> str:
        if "://" in match[1] or not (ROOT / target(match[1], origin)).is_file():
            return match[0]
        return f"]({posixpath.relpath(page_of(target(match[1], origin)), here or '.')}{match[2] or ''})"

    return PICTURE.sub(r'\1="\2"', LINK.sub(link, text))


def shown(source: str) -> str:
    """Show a file as a page: Markdown unchanged, others as code."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".md"):
        return resolved(text, source)
    return f"# {source}\n\n```{Path(source).suffix[1:]}\n{text}\n```\n"


def commands() -> str:
    """List every command with its full help."""
    from atwu.cli.app import COMMANDS, run_cli

    lines = [
        "# Commands",
        "",
        "Output of `atwu COMMAND --help-all`; `--help` shows the most common options.",
        "",
    ]
    os.environ["COLUMNS"] = "100"
    for name in sorted(COMMANDS):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            run_cli([*name.split(), "--help-all"])
        lines += [f"## atwu {name}", "", "```text", re.sub(r"\x1b\[[\d;]*m", "", printed.getvalue()).strip(), "```", ""]
    return "\n".join(lines)


def board() -> dict[str, str]:
    """Build the board of the recorded studies."""
    from atwu.report.board import FACTS_NAME, read_board, render_board

    studies = [path.parent for path in sorted((ROOT / RESULTS).glob(f"*/{FACTS_NAME}"))]
    return {"index.html": render_board(read_board(studies))}


def licences() -> str:
    """List the licence of every direct dependency, as its package states it."""
    lines = ["# Licences", "", "atwu: Apache-2.0. Its direct dependencies, as their packages state it:", ""]
    lines += ["| package | licence | extra |", "|---|---|---|"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, required in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        names = [re.split(r"[\[<>=]", each)[0] for each in required if extra != "dev"]
        lines += [f"| {name} | {licence(name)} | {extra} |" for name in names]
    return "\n".join(lines)


def licence(package: str) -> str:
    """Return the licence of an installed package: its expression, classifier or first line of text."""
    try:
        about = importlib.metadata.metadata(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed where this page was made"
    classified = [
        each.rpartition(" :: ")[2] for each in about.get_all("Classifier", []) if each.startswith("License ::")
    ]
    stated = about.get("License-Expression") or ", ".join(classified) or (about.get("License") or "").partition("\n")[0]
    return stated or "not stated"


def python() -> str:
    """List everything that `import atwu` offers, by module."""
    from atwu import _EXPORTS

    lines = ["# Python", "", "All names are available as `atwu.NAME`.", ""]
    for name, module in _EXPORTS.items():
        lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)
