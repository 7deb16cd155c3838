"""A verdict as data and as a table in a notebook; its text for a terminal is `RequestVerdict.text`."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from atwu.request.verdict import RequestVerdict

if TYPE_CHECKING:
    import pandas as pd


def verdict_frame(verdict: RequestVerdict) -> pd.DataFrame:
    """One row per measure and set: rows, measure, before, after, low, high (95 % interval of `after`)."""
    import pandas as pd

    names = ("rows", "measure", "before", "after", "low", "high")
    return pd.DataFrame([[getattr(line, name) for name in names] for line in verdict.lines], columns=names)


def verdict_html(verdict: RequestVerdict) -> str:
    """The word, why, every measure, and the answers of before and after."""
    numbers: str = verdict_frame(verdict).to_html(index=False, float_format="{:.3g}".format, na_rep="")
    answers = "".join(
        f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in (each.question, each.before, each.after))}</tr>"
        for each in verdict.answers
    )
    head = "<tr><th>question</th><th>before</th><th>after</th></tr>"
    told = f"<p><b>{html.escape(verdict.word)}</b>. {html.escape(verdict.why)}</p>"
    return told + numbers + (f"<table>{head}{answers}</table>" if answers else "")
