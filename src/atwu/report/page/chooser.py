"""Rows of one kind, one of them shown at a time; all of them on paper and without scripts."""

from __future__ import annotations

from collections.abc import Sequence

from atwu.report.page.html import Html, join, tag

_LONGEST = 90
"""Characters of a row's name in the list."""


def kind(split: str, title: str, about: str, rows: Sequence[tuple[str, Html]]) -> Html:
    """A heading, a way to choose, and the rows.

    Args:
        split: set of the rows, for the page's script.
        title: heading.
        about: a sentence below it.
        rows: name and article of every row.
    """
    lower = title.lower()
    options = join(tag("option", None, _clipped(name)) for name, _ in rows)
    chooser = tag(
        "div",
        {"class": "chooser", "hidden": True},
        tag("button", {"type": "button", "class": "plain previous", "aria-label": f"Previous of the {lower}"}, "←"),
        tag("select", {"aria-label": f"Choose one of the {lower}", "autocomplete": "off"}, options),
        tag("button", {"type": "button", "class": "plain next", "aria-label": f"Next of the {lower}"}, "→"),
        tag("span", {"class": "count", "role": "status"}, f"1 of {len(rows)}"),
    )
    return tag(
        "section",
        {"class": "kind", "data-set": split, "aria-label": title},
        tag("h3", None, title),
        tag("p", {"class": "note"}, about) if about else None,
        chooser,
        *(article for _, article in rows),
    )


def _clipped(words: str) -> str:
    plain = " ".join(words.split())
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1].rstrip()}…"
