"""Years, units and named days of an answer, written as the reference writes them where they mean the same."""

from __future__ import annotations

import re

from atwu.judge.rules.numerals import MONTHS, listed, with_digits

_SHORT_YEAR = re.compile(r"'(\d\d)\b")
_AMOUNT = re.compile(r"\b(\d+(?:\.\d+)?)[ -]([a-z]+)\b", re.I)
_ABBREVIATED = re.compile(r"\b(\d+(?:\.\d+)?) ?([a-z]{1,3})\b\.?", re.I)
_SIZES = (
    {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800},
    {"month": 1, "year": 12, "decade": 120, "century": 1200},
    {"millimetre": 1, "centimetre": 10, "metre": 1000, "kilometre": 10**6},
    {"inch": 1, "foot": 12, "yard": 36},
    {"gram": 1, "kilogram": 1000, "tonne": 10**6},
    {"millilitre": 1, "litre": 1000},
)
_PLURALS = {"centuries": "century", "feet": "foot", "inches": "inch", "meter": "metre", "meters": "metre"}
_DAYS = (
    (r"christmas day|christmas(?! eve)", "25 december"),
    (r"christmas eve", "24 december"),
    (r"new year'?s day", "1 january"),
    (r"new year'?s eve", "31 december"),
    (r"halloween", "31 october"),
    (r"(?:st\.? |saint )?valentine'?s day", "14 february"),
    (r"may day", "1 may"),
)
_LAST = dict(zip(MONTHS, listed("31 28 31 30 31 30 31 31 30 31 30 31"), strict=True))
_EDGE = re.compile(rf"\b(1|last) day of ({'|'.join(MONTHS)})\b", re.I)


def written_alike(text: str, reference: str) -> str:
    """Rewrite an answer: "'87" as the reference's 1987, "1.5 hours" as its "90 minutes", "3 s." as its "three shillings"."""
    text = text.replace("’", "'")
    if _SHORT_YEAR.search(text):
        years = {year[2:]: year for year in re.findall(r"\b[12]\d{3}\b", reference)}
        text = _SHORT_YEAR.sub(lambda found: years.get(found[1], found[0]), text)
    told = with_digits(reference).lower()
    if not any(char.isdigit() for char in told):
        return text
    for name, date in _DAYS:
        if date in told:
            text = re.sub(rf"\b(?:{name})\b", date.title(), text, flags=re.I)
        elif named := re.search(rf"\b(?:{name})\b", told):
            text = re.sub(rf"\b{date}\b", named[0].title(), with_digits(text), flags=re.I)
    amounts = [(found[1], found[2]) for found in _AMOUNT.finditer(told)]
    if not amounts:
        return text
    told_text = with_digits(text)
    changed = _EDGE.sub(lambda found: f"{found[1].replace('last', _LAST[found[2].lower()])} {found[2]}", told_text)
    changed = _AMOUNT.sub(lambda found: _in_units(found, amounts), changed)
    changed = _ABBREVIATED.sub(lambda found: _in_full(found, amounts), changed)
    return text if changed == told_text else changed


def _in_units(found: re.Match[str], amounts: list[tuple[str, str]]) -> str:
    value, unit = float(found[1]), _singular(found[2].lower())
    for number, other in amounts:
        for sizes in _SIZES:
            if unit != _singular(other) and unit in sizes and _singular(other) in sizes:
                same = value * sizes[unit] == float(number) * sizes[_singular(other)]
                if same:
                    return f"{number} {other}"
    return found[0]


def _singular(unit: str) -> str:
    return _PLURALS.get(unit, unit.removesuffix("s"))


def _in_full(found: re.Match[str], amounts: list[tuple[str, str]]) -> str:
    short = found[2].lower()
    full = [unit for number, unit in amounts if number == found[1] and unit.startswith(short) and len(unit) > 4]
    written = bool(full) and short not in ("a", "an", "in", "at", "on", "of", "or", "to", "by", "the")
    return f"{found[1]} {full[0]}" if written else found[0]
