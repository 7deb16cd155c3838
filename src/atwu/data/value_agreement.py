"""Whether who says one value says another: a date with the wanted year, 500 µg for 0.5 mg, a telephone without its country."""

from __future__ import annotations

import re
from decimal import Decimal

from atwu.data.value_parts import Value

_NUMBERS = ("number", "year")
COUNTS = ("money", "quantity", "percent")
_BASE_UNITS = {
    "mg": (10**3, "µg"),
    "g": (10**6, "µg"),
    "kg": (10**9, "µg"),
    "t": (10**12, "µg"),
    "cm": (10, "mm"),
    "m": (10**3, "mm"),
    "km": (10**6, "mm"),
    "l": (10**3, "ml"),
}
"""Unit -> how many of the smallest unit of its measure it has, and that unit."""


def covers(said: Value, one: str, wanted: Value, other: str) -> bool:
    """Return whether who says a value in one reading says the wanted one in another reading."""
    if said.kind == wanted.kind == "date":
        return all(part in (None, same) for part, same in zip(date_parts(other), date_parts(one), strict=True))
    if said.kind == wanted.kind == "quantity":
        return _in_base_unit(one) == _in_base_unit(other)
    # With and without the country's code, in whose place a zero stands.
    if said.kind == wanted.kind == "phone":
        return one.lstrip("0").endswith(other.lstrip("0")) or other.lstrip("0").endswith(one.lstrip("0"))
    if said.kind == wanted.kind == "url":
        return one == other or one.startswith(f"{other}/")
    # A time with a full stop ("9.30") is read as a number.
    if wanted.kind == "time" and said.kind == "number" and re.fullmatch(r"\d{1,2}\.\d{1,2}", one):
        return f"{float(one):05.2f}".replace(".", ":") == other
    if said.kind == wanted.kind or {said.kind, wanted.kind} <= {*_NUMBERS, "version"}:
        return one == other
    if wanted.kind in _NUMBERS:
        if said.kind == "date":
            return date_parts(one)[0] == other
        if said.kind in COUNTS:
            return other in one.split()
        if said.kind == "ordinal":
            return one == f"{other}."
        if said.kind == "phone":
            return one == other
    return False


def _in_base_unit(canonical: str) -> tuple[Decimal, str]:
    """Return a quantity in the smallest unit of its measure: 0.5 mg and 500 µg are the same."""
    number, _, unit = canonical.partition(" ")
    factor, base = _BASE_UNITS.get(unit, (1, unit))
    return Decimal(number) * factor, base


def date_parts(canonical: str) -> tuple[str | None, str | None, str | None]:
    match = re.fullmatch(r"(?:(\d{4})|-)-(\d\d)(?:-(\d\d))?", canonical)
    if match is None:
        return None, None, None
    return match[1], match[2], match[3]
