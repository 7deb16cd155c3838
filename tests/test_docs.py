"""The documentation is right: Python examples and commands run, and links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
import shlex

import nbformat
import pytest

from atwu.benchmarks import catalog
from atwu.cli import app
from atwu.cli.cli_options import _read, cli_options_of
from atwu.evaluation import registry as panel
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.registry import all_metrics, find_metric
from atwu.methods.component_registry import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS
from atwu.methods.method_table import METHODS
from tests.commands import run_command
from tests.micro_models import write_micro
from tests.snippets import ELSEWHERE, PAGES, RECORDED, ROOT, elsewhere, furnish, snippets, substituted

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
SCRIPTS = [path for folder in ("examples", "benchmarks", "scripts") for path in sorted((ROOT / folder).glob("*.py"))]
BLOCKS = [block for page in (*PAGES, *RECORDED) for block in snippets(page)]
COMMANDS = [block for block in BLOCKS if block.kind == "shell"]
FOLLOWED = [block for block in COMMANDS if block.page in PAGES]
RUN = {
    tuple(substituted(command) for command in block.commands() if elsewhere(command) is None): block.name
    for block in reversed(FOLLOWED)
}
"""What is run for every block, and the first block of those that come to the same commands."""


@pytest.fixture
def tables(monkeypatch):
    """Remove components that a page registers."""
    before = [(table, dict(table)) for table in (METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES, panel._METRICS)]
    monkeypatch.setattr(catalog.BENCHMARKS, "data", dict(catalog.BENCHMARKS.data))
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text()], ids=lambda page: page.name
)
def test_python_examples_run(page, tmp_path, monkeypatch, tables, capsys):
    monkeypatch.chdir(tmp_path)
    write_micro(tmp_path / "target")
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
    if page.name == "README.md":
        assert (tmp_path / "unlearned" / "scorer.safetensors").is_file()
    if page.name == "adding-a-method.md":
        assert "example_hinge" in METHODS
        first, second = map(float, capsys.readouterr().out.split())
        assert first == pytest.approx(second, abs=1e-5)


def test_every_code_block_is_run_or_checked():
    assert not [block.name for block in BLOCKS if not block.kind], "nobody knows how to run them (tests/snippets.py)"


def by_day_those_of_the_readme():
    """By day the options of all commands are checked, and those of README.md run; at night all run."""
    for run, block in RUN.items():
        if run:
            yield pytest.param(run, id=block, marks=[] if block.startswith("README.md") else [pytest.mark.night])


@pytest.mark.slow
@pytest.mark.parametrize("run", by_day_those_of_the_readme())
def test_commands_run(run, tmp_path, monkeypatch):
    for command in run:
        assert command.startswith("atwu "), f"not run, and not in ELSEWHERE (tests/snippets.py): {command}"
    furnish(tmp_path, list(run))
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    for command in run:
        done = run_command(shlex.split(command)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout[-600:]}{done.stderr[-600:]}"


def test_options_of_commands_exist():
    for command in (command for block in COMMANDS for command in block.commands()):
        if not command.startswith("atwu ") or "atwu evaluate ..." in command:
            continue
        name, words = app._split(shlex.split(command)[1:])
        _, unknown = _read(cli_options_of(app.COMMANDS[name]), words)
        assert not unknown, command


def test_targets_of_make_exist():
    for command in (command for block in COMMANDS for command in block.commands()):
        if command.startswith("make "):
            assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text(), command


def test_blocks_tested_elsewhere_exist():
    for command in (command for block in FOLLOWED for command in block.commands()):
        file = elsewhere(command)
        assert file is None or (ROOT / file).is_file(), command
    used = [
        pattern for pattern in ELSEWHERE for block in FOLLOWED for each in block.commands() if re.match(pattern, each)
    ]
    assert set(used) == set(ELSEWHERE), "a line of ELSEWHERE covers nothing"


def columns_markdown(*metrics: str) -> list[str]:
    """The columns of metrics as docs/metrics.md shows them: those of one meaning, but for the probe or attack, in one line."""
    arrows = {"up": "↑", "down": "↓", "none": ""}
    told: dict[tuple[str, ...], list[str]] = {}
    for column in (column for name in metrics for column in find_metric(name).columns):
        if column.shown:
            low, high = column.range
            to = " to " if low else "–"
            between = "" if low is None else f"{low:g} or more" if high is None else f"{low:g}{to}{high:g}"
            both = column.direction is None and column.sets in ((FORGET_OR_RETAIN,), (FORGET, NEIGHBOURS))
            better = "↕" if both else arrows[column.direction_on(column.sets[0])]
            meaning = re.sub(r"the [a-z ]+ probe(?= \()", "this probe", column.meaning)
            meaning = re.sub(r"relearning on \w+ rows|\d-bit quantization", "this attack", meaning)
            meaning = re.sub(r"the form [a-z ]+", "this form", meaning)
            told.setdefault((meaning, between, better), []).append(f"`{column.name}`")
    return [f"| {', '.join(names)} | {' | '.join(facts)} |" for facts, names in told.items()]


WEIGHT_ATTACKS = ("relearning", "quantization")
OF_BENCHMARKS = ("rwku", "lume", "muse", "knowundo")


@pytest.mark.parametrize(
    "metrics",
    [
        WEIGHT_ATTACKS,
        *((name,) for name in all_metrics() if name not in (*WEIGHT_ATTACKS, *OF_BENCHMARKS, "gradient_norm")),
    ],
)
def test_documented_columns_equal_those_of_the_metrics(metrics):
    lines = "\n".join(columns_markdown(*metrics))
    assert f"\n{lines}\n" in (ROOT / "docs" / "metrics.md").read_text(), f"in docs/metrics.md belongs:\n{lines}"


def test_the_columns_of_benchmarks_are_named():
    page = (ROOT / "docs" / "metrics.md").read_text()
    for column in (column for name in OF_BENCHMARKS for column in find_metric(name).columns if column.shown):
        name = re.sub(r"_(official|port)$", "_FLAVOUR", column.name)
        name = re.sub(r"^lume_(forget|retain)_(\w+)_(stories|people|biographies)$", r"lume_SET_\2_KIND", name)
        assert f"`{name}`" in page, column.name


def test_links_lead_to_files():
    for page in [*PAGES, *RECORDED, *NOTEBOOKS]:
        text = page.read_text()
        if page in NOTEBOOKS:
            cells = nbformat.read(page, as_version=4).cells
            text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        for target in re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
            assert target.startswith("http") or (page.parent / target).is_file(), f"{page.name}: {target}"


def test_pages_are_written():
    for page in PAGES:
        text = page.read_text()
        assert len(text) > 500, page.name
        assert not re.search(r"\b[A-Z]+_(TABLE|LINE|TIME)\b|TODO", text), page.name


def test_imports_of_scripts_exist():
    for script in SCRIPTS:
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "atwu":
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name), f"{script.name}: {node.module} has no {name.name}"


def test_every_module_imports():
    import pkgutil

    import atwu

    for module in pkgutil.walk_packages(atwu.__path__, "atwu."):
        if module.name != "atwu.__main__":  # importing it is running it
            importlib.import_module(module.name)
    for name in atwu.__all__:
        assert getattr(atwu, name) is not None


def test_the_licence_page_lists_the_dependencies_of_users():
    from scripts.site_pages import licences

    page = licences()
    assert re.search(r"^\| pydantic \| MIT \|  \|$", page, re.M)
    assert re.search(r"^\| optuna \| MIT License \| tune \|$", page, re.M)
    assert "pytest" not in page
