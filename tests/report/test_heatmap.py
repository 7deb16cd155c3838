"""Heat maps: in the terminal with and without colour, and as a valid, safe and self-contained page."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest
from rich.console import Console

from atwu.evaluation.word_scores import WordScore, word_scores
from atwu.report.heatmap import render_html, render_terminal
from atwu.report.page_templates import (
    LEVELS,
    ScoredRow,
    background,
    ink,
    level,
    luminance,
    pieces,
    word_auroc,
)
from tests.report.conftest import Page, contrast


def _words(answer: str, scores: list[float]) -> tuple[WordScore, ...]:
    spans = [(word.start, word.end) for word in word_scores(answer, [], [])]
    return tuple(word_scores(answer, spans[: len(scores)], scores))


ANSWER = "It is Bel Torvay."
ROW = ScoredRow(
    question="Who paints the boats?",
    answer=ANSWER,
    words={"atwu": _words(ANSWER, [0.0, 0.1, 0.93, 0.5, 0.04]), "wga": _words(ANSWER, [1.0, 0.6, 0.2, 0.3, 0.1])},
    forget_spans=((6, 16),),
    index=3,
)


def _terminal(rows: list[ScoredRow], **settings: object) -> str:
    out = io.StringIO()
    render_terminal(rows, Console(file=out, width=100, legacy_windows=False, _environ={}, **settings))
    return out.getvalue()


def test_terminal_without_colour_marks_scores_and_secrets() -> None:
    lines = [line.rstrip() for line in _terminal([ROW], color_system=None).splitlines()]
    assert lines[0].split(maxsplit=1) == ["3", "Who paints the boats?"]
    assert lines[1].split(maxsplit=2) == ["atwu", "100", "It is [_Bel_:93] [_Torvay_:50]."]
    assert lines[2].split(maxsplit=2) == ["wga", "33", "[It:100] [is:60] _Bel_ _Torvay_."]
    assert "_word_ = labelled word" in lines[-2]
    assert lines[-1].startswith("number after the method: AUROC")


@pytest.mark.parametrize("settings", [{"no_color": True}, {"color_system": "standard"}])
def test_terminals_with_few_colours_use_marks(settings: dict[str, object]) -> None:
    assert "[_Bel_:93]" in _terminal([ROW], force_terminal=True, **settings)


def test_terminal_with_colour_uses_background_and_underline() -> None:
    shown = _terminal([ROW], force_terminal=True, color_system="truecolor")
    assert "[_Bel_" not in shown
    styles = dict(re.findall(r"\x1b\[([0-9;]+)m([^\x1b]+)\x1b\[0m", shown)[i][::-1] for i in range(8))
    red, green, blue = background(0.93, dark=True)
    assert f"48;2;{red};{green};{blue}" in styles["Bel"]
    assert styles["Bel"].startswith("4;")
    assert not styles["It"].startswith("4;")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "It is Bel Torvay." in plain
    assert " 0  20  40  60  80  100 " in plain
    assert "labelled word" in plain


def test_control_characters_in_data_do_not_reach_the_terminal() -> None:
    answer = "bad \x1b[31mred\x07 [bold]x[/bold]"
    row = ScoredRow("q \x1b]0;title\x07", answer, {"m": _words(answer, [])}, None, 0)
    shown = _terminal([row], color_system=None)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold]x[/bold]" in shown


def test_rows_without_labels_have_no_legend_for_labels() -> None:
    row = ScoredRow("q", ANSWER, ROW.words, None, 0)
    everything = ScoredRow("q", ANSWER, ROW.words, ((0, len(ANSWER)),), 0)
    aurocs = [word_auroc(each, "atwu") for each in (row, everything, ROW)]
    assert [*aurocs, word_auroc(ROW, "wga")] == [None, None, 1.0, pytest.approx(2 / 6)]
    assert "labelled" not in _terminal([row], color_system=None)
    page = Page(render_html([row], title="t"))
    assert not page.classed("secret")
    assert not page.classed("summary")


def test_the_pieces_concatenate_to_the_answer() -> None:
    answer = "  «Ana-Mae», she said:\n  3.5 boats…  "
    row = ScoredRow("q", answer, {"m": _words(answer, [0.1, 0.2])}, ((3, 10),), 0)
    cut = list(pieces(row, "m"))
    assert "".join(piece.text for piece in cut) == answer
    assert [piece.text for piece in cut if piece.secret] == ["Ana-Mae"]


def test_page_has_every_word_with_its_number() -> None:
    page = Page(render_html([ROW], title="Scores"))
    words = page.classed("w")
    assert [word["data-v"] for word in words] == ["0", "10", "93", "50", "4", "100", "60", "20", "30", "10"]
    assert [word["tabindex"] for word in words] == ["0", "-1", "-1", "-1", "-1"] * 2
    assert ["secret" in (word["class"] or "") for word in words] == [False, False, True, True, False] * 2
    assert f"s{level(0.93)}" in (words[2]["class"] or "").split()
    assert "It (0)  is (10)  Bel (93, labelled)  Torvay (50, labelled) . (4)" in page.visible
    assert "Who paints the boats?" in page.visible
    assert "AUROC 100" in page.visible
    assert "AUROC 33" in page.visible


def test_page_is_a_complete_self_contained_document() -> None:
    html = render_html([ROW, ROW], title="Scores")
    page = Page(html)
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids)), "the same row twice must not repeat an id"
    assert all("src" not in attrs and (attrs.get("href") or "#").startswith("#") for _, attrs in page.elements)
    assert not [word for word in ("http:", "https:", "@import", "url(") if word in html]
    boxes = [attrs["value"] for tag, attrs in page.elements if tag == "input" and "value" in attrs]
    assert boxes[:2] == ["0", "1"]
    assert [attrs["data-method"] for _, attrs in page.elements if "data-method" in attrs] == ["0", "1"] * 2


def test_page_escapes_everything() -> None:
    evil = "</script><script>alert('x')</script>&amp;\x00\x1b\ud800"
    answer = f"a {evil} b"
    row = ScoredRow(evil, answer, {evil: _words(answer, [0.5] * 25)}, ((2, 9),), 0)
    html = render_html([row], title=evil)
    page = Page(html)
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert "alert('x')" not in html
    assert "&lt;/script&gt;" in html
    assert "&amp;amp;" in html
    assert not re.search(r"[\x00\x1b\ud800]", html)
    html.encode("utf-8")


def test_words_without_score_and_rows_without_methods_are_plain() -> None:
    cut = ScoredRow("q", ANSWER, {"m": _words(ANSWER, [0.5])}, ((6, 16),), 0)
    bare = ScoredRow("", "Nothing scored.", {}, None, 1)
    page = Page(render_html([cut, bare], title="t"))
    assert [word["data-v"] for word in page.classed("w")] == ["50", "", "", "", ""]
    assert "Nothing scored." in page.visible
    assert "(no question)" in page.visible
    assert "It is Bel Torvay." in " ".join(_terminal([cut, bare], color_system=None).replace("_", "").split()).replace(
        "[It:50]", "It"
    )
    Page(render_html([], title="empty"))


@pytest.mark.parametrize("dark", [False, True])
def test_colour_scale_is_ordered_by_lightness_and_readable(dark: bool) -> None:
    papers = [background(step / (LEVELS - 1), dark=dark) for step in range(LEVELS)]
    shades = [luminance(paper) for paper in papers]
    assert all((a < b) == dark and a != b for a, b in pairwise(shades))
    assert min(contrast(ink(paper), paper) for paper in papers) >= 4.5
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert background(0, dark=False).hex == "#faf4e8"
