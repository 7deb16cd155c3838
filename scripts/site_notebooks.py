"""Execute notebooks in their own kernels and convert them to pages of the site.

They are stored in docs/learn without outputs. `make site` executes them, so that pages show results computed during
the build; without SITE_NOTEBOOKS=run pages contain only the code.
"""

from __future__ import annotations

import copy
import html
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

SETTINGS = "settings"
"""Tag of the cell whose values can be replaced."""
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}
"""Progress bars of other libraries, and a warning about missing widgets."""
_CODES = re.compile(r"\x1b\[[\d;]*[A-Za-z]")


def executed(notebook: NotebookNode, folder: str | Path, *, settings: Mapping[str, Any] | None = None) -> NotebookNode:
    """Execute a notebook.

    Args:
        folder: working folder.
        settings: names of its settings -> other values.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    from nbclient import NotebookClient

    done = copy.deepcopy(notebook)
    for cell in done.cells:
        if SETTINGS in cell.metadata.get("tags", ()):
            cell.source += "".join(f"\n{name} = {value!r}" for name, value in (settings or {}).items())
    client = NotebookClient(done, timeout=3600, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env=os.environ | QUIET)
    return done


def page(path: Path, *, run: bool) -> str:
    """Convert a notebook to Markdown, with outputs if it is executed."""
    notebook = nbformat.read(path, as_version=4)
    if run:
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(notebook, folder)
    title, *rest = notebook.cells
    note = f'This page is a notebook: <a href="{path.name}" download>{path.name}</a>.'
    note += " Its outputs were computed when the site was built." if run else ""
    parts = [title.source, note]
    for cell in rest:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += _shown(cell.outputs)
    return "\n\n".join(parts) + "\n"


def _shown(outputs: list[NotebookNode]) -> Iterator[str]:
    """Output of a cell: printed text, final progress, and result."""
    for stream in ("stdout", "stderr"):
        text = "".join(each.text for each in outputs if each.output_type == "stream" and each.name == stream)
        lines = (line.rpartition("\r")[2].rstrip() for line in _CODES.sub("", text).split("\n"))
        if printed := "\n".join(line for line in lines if line):
            yield f'<pre class="nb-{stream}">{html.escape(printed)}</pre>'
    for data in (each.data for each in outputs if "data" in each):
        if "text/html" in data:
            yield f'<div class="nb-shown">{_one_block(data["text/html"])}</div>'
        elif "image/png" in data:
            yield f'<p class="nb-shown"><img alt="" src="data:image/png;base64,{data["image/png"].strip()}"></p>'
        else:
            yield f'<pre class="nb-stdout">{html.escape(data["text/plain"])}</pre>'


def _one_block(text: str) -> str:
    """Remove empty lines, which would end the HTML block in Markdown."""
    return re.sub(r"\n\s*(?=\n)", "", text)
