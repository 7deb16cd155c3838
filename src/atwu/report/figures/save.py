"""Figures as files for papers and as SVG inside a page.

Inline SVG takes its foreground colour from the page (`currentColor`), has no background, keeps text as text, and shares a page
with other figures: every id starts with the figure's name and no style rule leaves it. Equal records give equal bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from atwu.report.figures.all import all_figures
from atwu.report.figures.drawn import Drawn
from atwu.report.figures.style import INK, styled
from atwu.report.records import Records
from atwu.report.scored_row import printable

FORMATS = ("pdf", "svg", "png")

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_NUMBERS = ("d", "x", "y", "width", "height", "transform", "style", "points", "viewBox")
"""Attributes whose numbers are rounded."""
_PER_POINT = 4 / 3
"""CSS pixels per point."""
_NO_METADATA = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def save_figures(
    records: Records, folder: str | Path, *, formats: Sequence[str] = ("pdf", "svg"), focus: str | None = "atwu"
) -> list[Path]:
    """Write every figure the records have data for.

    Args:
        records: finished runs.
        folder: created if needed; files are called KEY.FORMAT.
        formats: of `FORMATS`.
        focus: label that is highlighted.

    Returns:
        The files, in the order of the report.

    Raises:
        ValueError: an unknown format.
    """
    unknown = [form for form in formats if form not in FORMATS]
    if unknown:
        raise ValueError(f"unknown figure format {unknown[0]!r}; choose from {', '.join(FORMATS)}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for drawn in all_figures(records, focus=focus):
        for form in formats if drawn.figure is not None else ():
            written.append(folder / f"{drawn.key}.{form}")
            written[-1].write_bytes(_bytes(drawn, form))
    return written


def inline_svg(drawn: Drawn, *, prefix: str = "") -> str:
    """A figure as an `<svg>` element for a page.

    Marks of a label have the classes `series` and `series-SLUG`, and a tooltip where the figure has one.

    Args:
        drawn: with a figure.
        prefix: in front of all ids, for a figure that is on a page twice.

    Raises:
        ValueError: there is no figure.
    """
    if drawn.figure is None:
        raise ValueError(f"{drawn.key} has no figure: {drawn.reason}")
    root = ElementTree.fromstring(_bytes(drawn, "svg"))
    name = f"{prefix}{drawn.key}".replace("_", "-")
    _drop_definitions(root)
    _mark_series(root, drawn, name)
    _rename(root, name)
    _hoist(root)
    _dissolve(root)
    for element in root.iter():
        for key in _NUMBERS:
            if key in element.attrib:
                short = (_short_path if key == "d" else _short)(element.attrib[key])
                element.set(key, short)
                if not short:
                    del element.attrib[key]
        if element.tag != f"{_SVG}text" and element.text and not element.text.strip():
            element.text = None
        element.tail = None
    _open(root, drawn, name)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    root.set("xmlns", _SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _bytes(drawn: Drawn, form: str) -> bytes:
    assert drawn.figure is not None
    out = io.BytesIO()
    with styled():
        drawn.figure.savefig(out, format=form, metadata=_NO_METADATA[form], dpi=200 if form == "png" else "figure")
    return out.getvalue()


def _drop_definitions(root: ElementTree.Element) -> None:
    """Style rules, which would hold for the whole page, and empty groups."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{_SVG}defs":
                for style in child.findall(f"{_SVG}style"):
                    child.remove(style)
            if child.tag in (f"{_SVG}defs", f"{_SVG}g", f"{_SVG}metadata") and not len(child):
                parent.remove(child)


def _mark_series(root: ElementTree.Element, drawn: Drawn, name: str) -> None:
    """Classes and tooltips of the marks of labels, and unique ids for them."""
    seen: dict[str, int] = {}
    for element in root.iter():
        gid = element.get("id", "")
        if gid in drawn.tips:
            title = ElementTree.Element(f"{_SVG}title")
            title.text = printable(drawn.tips[gid])
            element.insert(0, title)
        if gid.startswith("series-"):
            element.set("class", f"series {gid.partition('--')[0]}")
        seen[gid] = seen.get(gid, 0) + 1
        if gid and seen[gid] > 1:
            element.set("id", f"{gid}-{seen[gid]}")


def _rename(root: ElementTree.Element, name: str) -> None:
    """Ids that no other figure has, in every place that names them; ids that nobody needs go."""
    used = {element.attrib[_HREF][1:] for element in root.iter() if _HREF in element.attrib}
    used |= set(re.findall(r"url\(#([^)]+)\)", " ".join(element.get("clip-path", "") for element in root.iter())))
    short = {own: f"{name}-{place}" for place, own in enumerate(sorted(used))}
    for element in root.iter():
        if (own := element.get("id")) is not None:
            if own in used:
                element.set("id", short[own])
            elif own.startswith("series-"):
                element.set("id", f"{name}-{own}")
            else:
                del element.attrib["id"]
        if _HREF in element.attrib:
            element.set("href", f"#{short[element.attrib.pop(_HREF)[1:]]}")
        if "clip-path" in element.attrib:
            element.set("clip-path", f"url(#{short[element.attrib['clip-path'][5:-1]]})")


def _hoist(root: ElementTree.Element) -> None:
    """A style that all marks of a group share is said once, by the group."""
    for group in root.iter(f"{_SVG}g"):
        styles = {child.get("style") for child in group}
        style = styles.pop() if len(styles) == 1 else None
        if style is not None and len(group) > 1 and {child.tag for child in group} == {f"{_SVG}use"}:
            group.set("style", style)
            for child in group:
                del child.attrib["style"]


def _dissolve(parent: ElementTree.Element) -> None:
    """Groups that say nothing give way to what they hold."""
    kept: list[ElementTree.Element] = []
    for child in parent:
        _dissolve(child)
        kept += list(child) if child.tag == f"{_SVG}g" and not child.attrib else [child]
    parent[:] = kept


def _short(text: str) -> str:
    """Numbers with two decimals at most, the page's colour and font instead of ours, no needless characters."""
    text = re.sub(r"-?\d+\.\d+", lambda found: _rounded(found.group()), text)
    text = re.sub(r"(rotate\(-?0 [^)]*\)|font-family: [^;]*;?|stroke-dashoffset: 0;?)", "", text)
    text = " ".join(text.replace(INK, "currentColor").split())
    return re.sub(r"\s*([:;])\s*", r"\1", text)


def _short_path(text: str) -> str:
    """The same for a path; after M and L further points need no letter."""
    pieces, last = [], ""
    for letter, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", _short(text)):
        numbers = numbers.strip()
        pieces.append(f" {numbers}" if letter == "L" and last in ("M", "L") else letter + numbers)
        last = letter
    return "".join(pieces)


def _rounded(number: str) -> str:
    short = f"{float(number):.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def _open(root: ElementTree.Element, drawn: Drawn, name: str) -> None:
    """Size in CSS pixels, words for those who listen, and what the dropped style rule said."""
    width, height = (float(root.attrib[key].removesuffix("pt")) for key in ("width", "height"))
    title = ElementTree.Element(f"{_SVG}title", {"id": f"{name}-title"})
    title.text = drawn.title
    description = ElementTree.Element(f"{_SVG}desc", {"id": f"{name}-desc"})
    description.text = drawn.caption
    root.insert(0, description)
    root.insert(0, title)
    viewbox = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update(
        {
            "class": "figure",
            "id": name,
            "role": "img",
            "aria-labelledby": f"{name}-title",
            "aria-describedby": f"{name}-desc",
            "viewBox": viewbox,
            "width": _rounded(f"{width * _PER_POINT:.2f}"),
            "height": _rounded(f"{height * _PER_POINT:.2f}"),
            "style": "stroke-linejoin: round; stroke-linecap: butt",
        }
    )
    root.attrib.setdefault("fill", "currentColor")
