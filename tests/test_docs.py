"""The Python examples of the documentation run as written, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atwu.methods.parts import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS
from atwu.methods.table import METHODS
from atwu.modeling.scratch import scratch_model, train_tokenizer

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def tables():
    """Forgets what a page registers."""
    before = [(table, dict(table)) for table in (METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES)]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text()], ids=lambda page: page.name
)
def test_python_examples_run(page, tmp_path, monkeypatch, tables, capsys):
    monkeypatch.chdir(tmp_path)
    scratch_model("micro").save_pretrained("target")
    train_tokenizer(["Where does Orla Venn live?"], vocab_size=300).save_pretrained("target")
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(code, page.name, "exec"), {})
    if page.name == "README.md":
        assert (tmp_path / "unlearned" / "scorer.safetensors").is_file()
    if page.name == "adding-a-method.md":
        assert "example_hinge" in METHODS
        first, second, third = map(float, capsys.readouterr().out.split())
        assert first == pytest.approx(second, abs=1e-5)
        assert third == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).is_file(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_written(page):
    text = page.read_text()
    assert len(text) > 500
    assert not re.search(r"\b[A-Z]+_(TABLE|LINE|TIME)\b|TODO", text)


def test_every_module_imports():
    import importlib
    import pkgutil

    import atwu

    for module in pkgutil.walk_packages(atwu.__path__, "atwu."):
        if module.name != "atwu.__main__":  # importing it is running it
            importlib.import_module(module.name)
    for name in atwu.__all__:
        assert getattr(atwu, name) is not None
