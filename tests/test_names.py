"""Registries; names are unique: no public name and no file name is used twice; the map of the code names existing files."""

from __future__ import annotations

import ast
import colorsys
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import atwu
from atwu._names import Registry

PACKAGE = Path(atwu.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MAP = Path(__file__).parents[1] / "docs/architecture.md"
EVERYWHERE = {"logger"}
"""Names that every module may define for itself."""


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Public classes, functions and constants that a module defines at its top level."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def test_no_public_name_is_defined_in_two_modules() -> None:
    places = defaultdict(set)
    for path in MODULES:
        for name in defined_names(ast.parse(path.read_text(encoding="utf-8"))):
            if not name.startswith("_") and name not in EVERYWHERE:
                places[name].add(path.relative_to(PACKAGE).as_posix())
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == {}


def test_no_two_modules_share_a_file_name() -> None:
    """Command files are named like their command, which may be the name of a module as well."""
    places = defaultdict(list)
    for path in MODULES:
        if path.name != "__init__.py" and path.parent.name != "cli":
            places[path.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert [path.relative_to(PACKAGE).as_posix() for path in silent] == []


def test_the_map_of_the_code_names_existing_files() -> None:
    paths = [f"/{path.relative_to(PACKAGE).as_posix()}" for path in MODULES]
    named = re.findall(r"[\w/]+\.py\b", MAP.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []


def test_the_pictures_of_the_map_name_what_exists() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert set(pictured("rooms.svg")) == folders
    defined = {name for path in MODULES for name in defined_names(ast.parse(path.read_text(encoding="utf-8")))}
    assert set(pictured("forms-of-a-row.svg")) - {"record"} <= defined


def pictured(picture: str) -> list[str]:
    """Names in the boxes of a picture."""
    return re.findall(r'class="name"[^>]*>([^<]+)<', (MAP.parent / "assets" / picture).read_text(encoding="utf-8"))


def test_a_registry_imports_a_value_when_it_is_first_used() -> None:
    table = Registry[object]("thing", {"there": "colorsys:rgb_to_hls", "missing": "no_such_module:thing"})
    assert "missing" in table
    assert list(table) == ["there", "missing"]
    assert table.find("there") is table["there"] is colorsys.rgb_to_hls
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        table["missing"]


def test_an_unknown_name_of_a_registry_names_the_choices_and_the_closest_one() -> None:
    with pytest.raises(ValueError, match=r"unknown thing 'frist'; choose from first, second\. Did you mean 'first'"):
        Registry("thing", {"first": 1, "second": 2}).find("frist")


@pytest.mark.parametrize(("name", "message"), [("first", "'first' is registered"), ("a b", "letters"), (3, "got 3")])
def test_a_registry_rejects_a_taken_or_unusable_name(name: str, message: str) -> None:
    table = Registry("thing", {"first": 1})
    with pytest.raises(ValueError, match=message):
        table.add(name, 2)
    assert table == {"first": 1}


def test_added_values_come_last() -> None:
    table = Registry("thing", {"second": 2})
    table.add("first", 1)
    assert list(table.items()) == [("second", 2), ("first", 1)]
