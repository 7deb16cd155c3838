"""Render pages from templates, and the words of answers in the colours of their scores.

Pages are self-contained: one style sheet, one script, all text escaped. There is one sequential colour scale per theme.
Lightness changes monotonically along both (paper, amber, vermilion, plum), so the order is also visible to colour-blind readers
and in greyscale print.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.color_triplet import ColorTriplet

from atwu._file_reading import printable
from atwu.evaluation.metrics.score_auroc import auroc
from atwu.evaluation.word_scores import WordScore, word_labels
from atwu.report.metric_table import SUBSCRIPT


def render_template(template: str, *, title: str, **values: Any) -> str:
    """Render a page; equal values give equal pages, and all values but `Markup` are escaped."""
    folder = files("atwu.report").joinpath("page")
    style = Markup(folder.joinpath("page.css").read_text(encoding="utf-8"))
    script = Markup(folder.joinpath("page.js").read_text(encoding="utf-8"))
    # The script is allowed by its hash; styles are allowed anywhere because figures contain some, and cannot load
    # anything.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fragment(template, title=title, style=style, script=script, script_hash=f"sha256-{digest}", **values)


def fragment(template: str, **values: Any) -> str:
    """Render part of a page, without style sheet and script."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("atwu.report", "page"),
        autoescape=True,
        # A value that a page lacks is an error, and not an empty place.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Answers may have control characters, which no browser shows and some refuse.
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    # Subscripts of metrics: J_W, ES Δ.
    environment.filters["subscripts"] = lambda text: Markup(
        SUBSCRIPT.sub(r"\1<sub>\2</sub>", str(escape(printable(text))))
    )
    environment.globals.update(
        level=level,
        percent=percent_of_score,
        pieces=pieces,
        auroc=word_auroc,
        colour_levels=[
            [{"paper": paper.hex, "ink": ink(paper).hex} for paper in papers]
            for papers in (
                [background(step / (LEVELS - 1), dark=dark) for dark in (False, True)] for step in range(LEVELS)
            )
        ],
    )
    return environment


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A question, its answer, and each method's scores of the answer's words."""

    question: str
    answer: str
    words: Mapping[str, tuple[WordScore, ...]]
    """Method name -> words of `answer` in order, scores in [0, 1] (higher: more likely a key token)."""
    forget_spans: tuple[tuple[int, int], ...] | None
    """Half-open character ranges of the labelled words in `answer`; None without labels."""
    index: int
    """Index of the row in its file, from 0."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of the answer: a word, or (with `word` None) the text between two words."""

    text: str
    word: WordScore | None
    secret: bool


def pieces(row: ScoredRow, method: str) -> Iterator[Piece]:
    """Split the answer at the words of one method; the joined texts give the answer, made printable."""
    words = row.words[method]
    end = 0
    for word, secret in zip(words, word_labels(words, row.forget_spans or ()), strict=True):
        if word.start > end:
            yield Piece(printable(row.answer[end : word.start]), None, False)
        yield Piece(printable(word.text), word, bool(secret))
        end = word.end
    if end < len(row.answer):
        yield Piece(printable(row.answer[end:]), None, False)


def word_auroc(row: ScoredRow, method: str) -> float | None:
    """AUROC of the word scores against the labels, in [0, 1]; None without both kinds of word."""
    if row.forget_spans is None:
        return None
    words = row.words[method]
    labels = word_labels(words, row.forget_spans)
    known = [(word.score, label) for word, label in zip(words, labels, strict=True) if word.score is not None]
    return auroc([score for score, _ in known], [label for _, label in known])


def methods_of(rows: Sequence[ScoredRow]) -> list[str]:
    return list(dict.fromkeys(method for row in rows for method in row.words))


def percent_of_score(score: float) -> int:
    """Round a score in [0, 1] to an integer from 0 to 100, halves up; Python's `round` takes the even one."""
    return int(100 * score + 0.5)


LEVELS = 21
"""Steps of the scale: one per 5 points of a score shown as 0 to 100."""

_LIGHT = ((250, 244, 232), (253, 218, 156), (246, 164, 84), (220, 91, 48), (150, 32, 58), (84, 14, 66))
_DARK = ((43, 36, 48), (84, 30, 84), (147, 37, 84), (213, 74, 54), (246, 148, 60), (253, 226, 150))


def background(score: float, *, dark: bool) -> ColorTriplet:
    """Return the colour of a score; on dark pages and terminals high scores are light."""
    stops = _LIGHT
    if dark:
        stops = _DARK
    places = np.linspace(0, LEVELS - 1, len(stops))
    return ColorTriplet(*(round(np.interp(level(score), places, channel)) for channel in zip(*stops, strict=True)))


def ink(paper: ColorTriplet) -> ColorTriplet:
    """Return black or white, whichever has more contrast with a background: both have the same at a luminance of 0.179."""
    if luminance(paper) > 0.179:
        return ColorTriplet(0, 0, 0)
    return ColorTriplet(255, 255, 255)


def level(score: float) -> int:
    """Return the step of a score in [0, 1], from 0 to LEVELS - 1."""
    return int(score * (LEVELS - 1) + 0.5)


def luminance(colour: tuple[int, int, int]) -> float:
    """Return the relative luminance in [0, 1] (WCAG 2.2)."""
    parts = [channel / 255 for channel in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
