"""Options of dataclasses: types, bounds, and what Python may give where a command line gives text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest

from atwu._options import Option, options_of


@dataclass
class Hive:
    boxes: Annotated[int, ("least", 1), ("most", 9)] = field(default=2, metadata={"help": "Boxes."})
    weight: Annotated[float, ("above", 0)] | None = field(default=3.5, metadata={"help": "Weight.", "colour": "red"})
    wood: str = field(default="oak", metadata={"help": "Wood.", "choices": ("oak", "pine")})
    flowers: list[str] | None = field(default=None, metadata={"help": "Flowers."})
    sizes: tuple[int, ...] = field(default=(), metadata={"help": "Sizes."})
    painted: bool = field(default=False, metadata={"help": "Painted."})
    keeper: dict[str, str] | str | None = field(default=None, metadata={"help": "Keeper."})
    queen: Any = field(default=None, metadata={"help": "Only in Python."})
    note: str = ""


OPTIONS = {option.name: option for option in options_of(Hive, Option)}


def test_fields_of_plain_type_with_metadata_are_options():
    assert OPTIONS["boxes"] == Option("boxes", int, 2, "Boxes.", least=1, most=9)
    assert OPTIONS["weight"] == Option("weight", float, 3.5, "Weight.", optional=True, above=0)
    assert [name for name, option in OPTIONS.items() if option.many] == ["flowers", "sizes"]
    assert [*OPTIONS] == ["boxes", "weight", "wood", "flowers", "sizes", "painted", "keeper"]
    assert "keeper" not in {option.name for option in options_of(Hive, Option, mixed=False)}


@pytest.mark.parametrize(
    ("name", "given", "lenient", "strict"),
    [
        ("boxes", 3, 3, 3),
        ("boxes", "3", 3, "boxes must be a whole number >= 1 and <= 9, got '3'."),
        ("boxes", 3.0, 3, "got 3.0"),
        ("boxes", 3.5, "got 3.5", "got 3.5"),
        ("boxes", "0", "got 0", "got '0'"),
        ("boxes", 10, "got 10", "got 10"),
        ("boxes", True, "got True", "got True"),
        ("boxes", 10**400, "64 bits", "64 bits"),
        ("boxes", None, "got None", "got None"),
        ("weight", 1, 1.0, 1.0),
        ("weight", "1e-4", 1e-4, "got '1e-4'"),
        ("weight", None, None, None),
        ("weight", 0, "weight must be a finite number > 0, got 0.0", "got 0.0"),
        ("weight", float("nan"), "got nan", "got nan"),
        ("weight", 10**400, "finite", "finite"),
        ("wood", "ivy", "wood must be one of oak, pine, got 'ivy'.", "oak, pine.*'ivy'"),
        ("wood", ["oak"], r"\['oak'\]", r"\['oak'\]"),
        ("keeper", Path("Orla"), "Orla", "Orla"),
        ("keeper", 3, "3", "keeper must be text, got 3"),
        ("flowers", ["thyme"], ["thyme"], ["thyme"]),
        ("flowers", "thyme", ["thyme"], "flowers must be a list of values, got 'thyme'."),
        ("sizes", [1, 2], (1, 2), (1, 2)),
        ("painted", True, True, True),
        ("painted", "yes", "painted must be true or false, got 'yes'.", "'yes'"),
    ],
)
def test_values_are_converted_or_refused(name, given, lenient, strict):
    for wanted, strictly in ((lenient, False), (strict, True)):
        try:
            assert OPTIONS[name].value(given, strict=strictly) == wanted
        except ValueError as error:
            with pytest.raises(ValueError, match=wanted):
                raise error
