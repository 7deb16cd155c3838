"""Token scores as coloured words: in the terminal, and as one self-contained HTML file.

Takes `ScoredRow`s; knows no model and no tokenizer. The page's style sheet and script are `heatmap.css` and
`heatmap.js` beside this file and are copied into the page, which therefore needs no network and no second file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from atwu.report.colour_scale import LEVELS, background, css, ink, level
from atwu.report.scored_row import Piece, ScoredRow, methods_of, percent, pieces, printable, word_auroc

__all__ = ["ScoredRow", "render_html", "render_terminal", "write_html"]

_MARKED_FROM = 0.5
"""Without colour, words from this score on carry their number."""
_KEEP_TOGETHER = 24
"""Longest run of touching words, in characters, that the page never breaks."""


def render_terminal(rows: Sequence[ScoredRow], console: Console) -> None:
    """Print each row's question and one line of coloured words per method, then a legend.

    Backgrounds run from dark to light with the score and secret words are underlined. Where the console has fewer
    than 256 colours (a pipe, NO_COLOR), words from .5 on print as [word:93] and secret words as _word_.

    Args:
        rows: rows to print; a row without methods prints its question only.
        console: where to print.
    """
    coloured = console.color_system in ("256", "truecolor") and not console.no_color
    for row in rows:
        console.print(Text.assemble((f"{row.index}  ", "dim"), (printable(row.question), "bold")))
        grid = Table.grid(padding=(0, 2), expand=False)
        grid.add_column(no_wrap=True, min_width=max((len(name) for name in methods_of(rows)), default=0))
        grid.add_column(no_wrap=True, justify="right", min_width=3)
        grid.add_column(overflow="fold")
        for method in row.words:
            found = word_auroc(row, method)
            line = Text()
            for piece in pieces(row, method):
                line.append_text(_tile(piece) if coloured else Text(_marked(piece)))
            grid.add_row(Text(printable(method)), Text("" if found is None else str(percent(found)), "dim"), line)
        console.print(grid)
        console.print()
    if rows:
        console.print(_terminal_legend(rows, coloured))


def render_html(rows: Sequence[ScoredRow], *, title: str) -> str:
    """One HTML page with every row, a legend, and controls for methods, threshold and numbers.

    It follows the reader's light or dark setting, prints, and can be read without JavaScript, on a phone and with a
    screen reader, which hears each word followed by its number from 0 to 100.

    Args:
        rows: rows to show; all text in them is escaped.
        title: heading and title of the page.

    Returns:
        A complete HTML document that refers to nothing outside itself.
    """
    methods = methods_of(rows)
    articles = "".join(_article(row, methods, place) for place, row in enumerate(rows, start=1))
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_html(title)}</title>\n<style>\n{_asset('heatmap.css')}{_level_css()}</style>\n</head>\n"
    )
    body = (
        f"<body>\n<header>\n<h1>{_html(title)}</h1>\n{_intro(rows, methods)}{_page_legend(rows)}"
        f"{_summary(rows, methods)}</header>\n{_controls(methods)}<main>\n{articles}</main>\n"
        f"<script>\n{_asset('heatmap.js')}</script>\n</body>\n</html>\n"
    )
    return head + body


def write_html(path: str | Path, rows: Sequence[ScoredRow], *, title: str) -> Path:
    """Write `render_html` to a file, which is either complete or not touched.

    Args:
        path: file to write; its folder is made when missing.
        rows: as for `render_html`.
        title: as for `render_html`.

    Returns:
        The path.
    """
    target = Path(path)
    page = render_html(rows, title=title)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp makes it private; a page is for sharing
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def _tile(piece: Piece) -> Text:
    """A piece with its background, for terminals with colour."""
    if piece.word is None or piece.word.score is None:
        return Text(piece.text, Style(underline=piece.secret))
    paper = background(piece.word.score, dark=True)
    return Text(piece.text, Style(color=css(ink(paper)), bgcolor=css(paper), underline=piece.secret))


def _marked(piece: Piece) -> str:
    """A piece for terminals without colour: [word:93], with _word_ for a secret."""
    text = f"_{piece.text}_" if piece.secret else piece.text
    score = None if piece.word is None else piece.word.score
    return text if score is None or score < _MARKED_FROM else f"[{text}:{percent(score)}]"


def _terminal_legend(rows: Sequence[ScoredRow], coloured: bool) -> Text:
    """One or two lines that say what the marks mean."""
    annotated = any(row.forget_spans is not None for row in rows)
    legend = Text()
    if coloured:
        legend.append("score ", "dim")
        for tenth in range(0, 11, 2):
            paper = background(tenth / 10, dark=True)
            legend.append(f" {10 * tenth} ", Style(color=css(ink(paper)), bgcolor=css(paper)))
        if annotated:
            legend.append("   ").append("secret", "underline").append(" word", "dim")
    else:
        legend.append(f"[word:93] = 93 of 100, shown from {percent(_MARKED_FROM)} on")
        if annotated:
            legend.append("; _word_ = secret word")
    if annotated:
        legend.append("\nnumber after the method: AUROC x 100 of its words in this row", "dim")
    return legend


def _html(text: str) -> str:
    return escape(printable(text), quote=True)


def _asset(name: str) -> str:
    return files("atwu.report").joinpath(name).read_text(encoding="utf-8")


def _level_css() -> str:
    """Background and text colour of every step, for both themes."""
    themes = []
    for dark in (False, True):
        rules = []
        for step in range(LEVELS):
            paper = background(step / (LEVELS - 1), dark=dark)
            rules.append(f".s{step}{{background:{css(paper)};color:{css(ink(paper))}}}")
        themes.append("".join(rules))
    return f"{themes[0]}\n@media screen and (prefers-color-scheme:dark){{{themes[1]}}}\n"


def _intro(rows: Sequence[ScoredRow], methods: Sequence[str]) -> str:
    count = f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}, {len(methods)} "
    count += "method" if len(methods) == 1 else "methods"
    return (
        f'<p class="lead">Which words does each method pick out as the ones to forget? {count}. '
        "The stronger a word stands out from the page, the higher its score.</p>\n"
    )


def _page_legend(rows: Sequence[ScoredRow]) -> str:
    swatches = "".join(f'<span class="s{step}"></span>' for step in range(LEVELS))
    secret = ""
    if any(row.forget_spans is not None for row in rows):
        secret = '<span class="key"><span class="secret">underlined</span> words carry the secret</span>'
    return (
        '<div class="legend"><span class="key"><span>0</span>'
        f'<span class="ramp" role="img" aria-label="Colour scale from 0 to 100">{swatches}</span>'
        "<span>100</span></span>"
        f'{secret}<span class="key"><span class="blank">plain</span> words have no score</span></div>\n'
    )


def _summary(rows: Sequence[ScoredRow], methods: Sequence[str]) -> str:
    """Mean word-level AUROC per method, where rows are annotated."""
    lines = []
    for method in methods:
        found = [value for row in rows if method in row.words and (value := word_auroc(row, method)) is not None]
        if found:
            mean = sum(found) / len(found)
            lines.append(
                f'<tr><th scope="row">{_html(method)}</th><td class="num">{percent(mean)}</td><td class="bar" '
                f'aria-hidden="true"><span style="width:{100 * mean:.1f}%"></span></td>'
                f'<td class="num">{len(found)}</td></tr>\n'
            )
    if not lines:
        return ""
    return (
        '<table class="summary"><caption>How well the scores find the secret words: AUROC × 100 within each answer, '
        "mean over the rows on this page. 50 is chance, 100 ranks every secret word first.</caption>\n"
        '<thead><tr><th scope="col">Method</th><th scope="col" class="num">AUROC</th><td></td>'
        f'<th scope="col" class="num">Rows</th></tr></thead>\n<tbody>\n{"".join(lines)}</tbody></table>\n'
    )


def _controls(methods: Sequence[str]) -> str:
    """Controls the script switches on; hidden where scripts do not run."""
    chips = "".join(
        f'<label class="chip"><input type="checkbox" value="m{number}" checked> {_html(method)}</label>'
        for number, method in enumerate(methods)
    )
    return (
        '<form class="controls" aria-label="Display" hidden>'
        f'<fieldset class="chips"><legend class="sr">Methods shown</legend>{chips}</fieldset>'
        '<label class="threshold">Only words from <input type="range" id="threshold" min="0" max="100" value="0"> '
        '<output for="threshold">0</output></label>'
        '<label class="chip"><input type="checkbox" id="numbers"> Numbers</label></form>\n'
    )


def _article(row: ScoredRow, methods: Sequence[str], place: int) -> str:
    lines = "".join(_line(row, method, methods.index(method)) for method in row.words)
    if not lines:
        lines = f'<p class="answer" dir="auto">{_html(row.answer)}</p>'
    return (
        f'<article id="r{place}"><h2><a class="index" href="#r{place}" aria-label="Row {row.index}">'
        f'{row.index}</a> <span dir="auto">{_html(row.question) or "(no question)"}</span></h2>\n'
        f"{lines}</article>\n"
    )


def _line(row: ScoredRow, method: str, number: int) -> str:
    found = word_auroc(row, method)
    note = "" if found is None else f'<span class="auroc">AUROC {percent(found)}</span>'
    tiles: list[str] = []
    gaps_and_runs: list[str] = []
    length, scored = 0, 0

    def end_run() -> None:
        # Words that touch (a name and its comma) stay on one line, unless that could overflow a phone.
        text = "".join(tiles)
        gaps_and_runs.append(f'<span class="run">{text}</span>' if 0 < length <= _KEEP_TOGETHER else text)
        tiles.clear()

    for piece in pieces(row, method):
        if piece.word is None:
            end_run()
            gaps_and_runs.append(_html(piece.text))
            length = 0
            continue
        tiles.append(_page_tile(piece, reachable=scored == 0))
        length += len(piece.text)
        scored += piece.word.score is not None
    end_run()
    return (
        f'<div class="line m{number}"><h3>{_html(method)}{note}</h3>'
        f'<p class="answer" dir="auto">{"".join(gaps_and_runs)}</p></div>\n'
    )


def _page_tile(piece: Piece, *, reachable: bool) -> str:
    """One word; `reachable` makes it the line's tab stop, from which arrow keys go on."""
    text = _html(piece.text)
    score = None if piece.word is None else piece.word.score
    if score is None:
        return f'<span class="secret">{text}</span>' if piece.secret else text
    shown = percent(score)
    return (
        f'<span class="w s{level(score)}{" secret" if piece.secret else ""}" tabindex="{0 if reachable else -1}" '
        f'data-v="{shown}">{text}<span class="sr"> ({shown}{", secret" if piece.secret else ""}) </span></span>'
    )
