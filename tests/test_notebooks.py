"""The notebooks of the tutorials: stored without outputs, run in a real kernel, and shown as pages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from scripts import site_notebooks
from tests.snippets import ROOT

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
SMALL = {"METHODS": ("wga", "atwu"), "STEPS": 4}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, trained_models: Callable[[Path], Path]) -> dict[str, NotebookNode]:
    """All of them, run one after the other in one kernel, which imports everything once."""
    folder = tmp_path_factory.mktemp("notebooks")
    together, first = nbformat.v4.new_notebook(), {}
    for path in NOTEBOOKS:
        first[path.stem] = len(together.cells)
        together.cells += nbformat.read(path, as_version=4).cells
        together.cells.append(nbformat.v4.new_code_cell("%reset -f"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", str(trained_models(folder / "cache")))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        cells = site_notebooks.executed(together, folder, settings=SMALL).cells
    ends = [*list(first.values())[1:], len(cells)]
    return {
        name: nbformat.v4.new_notebook(cells=cells[at:end]) for (name, at), end in zip(first.items(), ends, strict=True)
    }


def said(notebook: NotebookNode, stream: str) -> str:
    """Everything that its cells printed."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return "".join(each.text for each in outputs if each.output_type == "stream" and each.name == stream)


def shown(notebook: NotebookNode, kind: str) -> str:
    """Everything of a kind that its cells showed."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output)
    return "\n".join(output.data[kind] for output in outputs if kind in output.data)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert "%pip install" in first.source
    assert sum(site_notebooks.SETTINGS in cell.metadata.get("tags", ()) for cell in notebook.cells) == 1


@pytest.mark.night  # each publication of the site runs the notebooks, too
def test_the_notebook_on_own_rows_ends_with_a_verdict_tables_and_figures(done):
    found = done["own-rows-in-python"]
    page = shown(found, "text/html")
    assert re.search(r"<p><b>[^<]*forgotten[^<]*</b>", page)
    assert "answers that state a fact" in page
    assert 'class="heat-map"' in page
    assert len(shown(found, "image/png")) > 1000
    assert "training" in said(found, "stderr")


@pytest.mark.night  # each publication of the site runs the notebooks, too
def test_the_notebook_on_a_study_ends_with_a_table_figures_and_a_difference(done):
    found = done["study-in-python"]
    page = shown(found, "text/html")
    assert page.count('<svg class="figure"') == 2
    for name in ("retain-only", *SMALL["METHODS"]):
        assert f"<th>{name}</th>" in page
    assert "atwu minus wga: " in said(found, "stdout")


@pytest.mark.night  # each publication of the site runs the notebooks, too
def test_notebook_pages_have_code_and_output(done, tmp_path):
    path = tmp_path / "own-rows-in-python.ipynb"
    nbformat.write(done["own-rows-in-python"], path)
    page = site_notebooks.page(path, run=False)
    assert page.startswith("# Own rows, in Python\n")
    assert "```python\nresult\n```" in page
    assert 'src="data:image/png;base64,' in page
    assert "\r" not in page
