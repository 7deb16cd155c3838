"""Figures: their data, labels that do not overlap, and their use in a page."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from atwu.methods.recipe import recipe
from atwu.report import figures
from atwu.report.before_after import UQ, Panel, before_value, without_scores
from atwu.report.figure import ACCENT, COLOURS, FIGURE_FORMATS, INK, series_of, styled
from atwu.report.figures import FIGURES, DrawnFigure, all_figures, pareto, save_figures
from atwu.report.report_records import Records
from tests.report.conftest import contrast

pytest.importorskip("matplotlib")

SVG = "{http://www.w3.org/2000/svg}"
SIZES = ("drawn", pytest.param("many", marks=pytest.mark.night))
MANY = ["atwu", "wga", *(f"method {number}, rho=0.{number}" for number in range(22))]


@pytest.fixture(scope="module")
def drawn(records: Records) -> dict[str, DrawnFigure]:
    return {figure.key: figure for figure in all_figures(records)}


@pytest.fixture(scope="module")
def many(build_records: Callable[..., Records]) -> dict[str, DrawnFigure]:
    return {figure.key: figure for figure in all_figures(build_records(labels=MANY, seeds=[0, 1, 2]))}


def texts(found: DrawnFigure) -> list[tuple[str, float, Any]]:
    """Words of a figure that are really drawn: text, size and place in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    seen: list[Text] = []
    draw = Text.draw
    with styled(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", lambda self, renderer: (seen.append(self), draw(self, renderer))[1])
        canvas = FigureCanvasAgg(found.figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        seen = [text for text in dict.fromkeys(seen) if text.get_text() and text.get_visible()]
        return [(text.get_text(), text.get_fontsize(), Text.get_window_extent(text, renderer)) for text in seen]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("size", SIZES)
def test_labels_are_readable_inside_the_figure_and_do_not_overlap(name, size, request) -> None:
    found = request.getfixturevalue(size)[name]
    width, height = found.figure.get_size_inches() * found.figure.dpi
    words = texts(found)
    assert words
    for text, points, box in words:
        assert points >= 8, text
        assert min(box.x0, box.y0) >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for (one, _, a), (other, _, b) in itertools.combinations(words, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across < 1.5 or along < 1.5, (one, other)
    # With many labels some names cannot avoid every mark.
    for axes in found.figure.axes if name.startswith("trade_off") and size != "many" else ():
        lines = [line for line in axes.lines if not line.get_label().startswith("_")]
        marks = {line.get_label(): axes.transData.transform(line.get_xydata()[0]) for line in lines}
        for text, _, box in words:
            covered = [mark for mark, (x, y) in marks.items() if box.x0 < x < box.x1 and box.y0 < y < box.y1]
            assert text not in marks or not covered, text


@pytest.mark.parametrize("size", SIZES)
def test_svg_figures_use_the_colours_of_the_page_and_do_not_interfere(size, request) -> None:
    ids = []
    for name, found in request.getfixturevalue(size).items():
        svg = found.svg
        assert len(svg) < 250_000
        root = ElementTree.fromstring(svg)
        assert (root.get("class"), root.get("aria-label")) == ("figure", found.title)
        assert INK not in svg
        assert "currentColor" in svg
        assert "<style" not in svg
        assert root.findall(f".//{SVG}text")
        own = [element.get("id") for element in root.iter() if element.get("id")]
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= set(own), name
        ids += own
    assert len(ids) == len(set(ids))


def test_figures_do_not_depend_on_the_users_matplotlib_style(records, tmp_path, monkeypatch) -> None:
    import matplotlib

    chosen = ("auroc_progression",)
    monkeypatch.setattr(figures, "FIGURES", {name: FIGURES[name] for name in chosen})
    before = dict(matplotlib.rcParams)
    first = save_figures(records, tmp_path / "one")
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "svg.fonttype": "path"}):
        second = save_figures(records, tmp_path / "two")
    assert [path.name for path in first] == [f"{name}.{form}" for name in chosen for form in FIGURE_FORMATS]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert first[0].read_bytes().startswith(b"%PDF")


def test_figures_without_data_give_a_reason(records) -> None:
    empty = {"sets": {}, "overall": {}, "cost": {}, "rows": {}}
    bare = [
        dataclasses.replace(run, run=None, trace=None, result=dataclasses.replace(run.result, **empty))
        for run in records.runs
    ]
    for figure in all_figures(dataclasses.replace(records, runs=tuple(bare))):
        assert figure.figure is None
        assert figure.reason.endswith(".")
        assert figure.svg is None


def test_colours_read_on_light_and_dark_pages() -> None:
    for colour in (ACCENT, *COLOURS):
        rgb = tuple(int(colour[place : place + 2], 16) for place in (1, 3, 5))
        assert contrast(rgb, (255, 255, 255)) >= 3
        assert contrast(rgb, (24, 22, 27)) >= 3


def test_labels_differ_by_more_than_colour(build_records) -> None:
    styles = series_of(build_records(labels=MANY, seeds=[0]), "wga")
    others = [one for one in styles.values() if not one.reference and not one.focus]
    assert len({(one.colour, one.marker) for one in others}) == len(others) == 23
    assert [one.label for one in styles.values() if one.focus] == ["wga"]
    assert not any(one.focus for one in series_of(build_records(seeds=[0]), "nobody").values())


def test_pareto_front() -> None:
    points = {"a": (0.0, 0.5), "b": (0.2, 0.9), "c": (0.1, 0.4), "d": (0.2, 0.8), "e": (0.9, 0.9)}
    assert pareto(points, x_up=False, y_up=True) == ["a", "b"]
    assert pareto(points, x_up=True, y_up=True) == ["e"]
    assert pareto(points, x_up=True, y_up=False) == ["c", "d", "e"]
    assert pareto({"a": (1.0, 1.0), "b": (1.0, 1.0)}, x_up=True, y_up=True) == ["a", "b"]


def test_points_are_those_of_the_results_and_the_original_forgets_nothing(drawn, records) -> None:
    (axes,) = drawn["trade_off"].figure.axes
    marks = {line.get_label(): line.get_xydata()[0] for line in axes.lines}
    for label, result in records.results.items():
        expected = [result.sets[split]["extraction_strength"].value for split in ("forget", "retain")]
        assert marks[label] == pytest.approx(expected)
    front = next(line for line in axes.lines if line.get_drawstyle() != "default")
    assert len(front.get_xdata()) >= 2
    (axes,) = drawn["trade_off_judged"].figure.axes
    (start,) = (line for line in axes.lines if line.get_label() == "original")
    assert start.get_xydata()[0] == pytest.approx([0, 0])  # by definition


def test_gain_is_the_paired_difference(drawn, records) -> None:
    (axes,) = drawn["uplift"].figure.axes
    ends = {line.get_label(): line.get_xdata()[0] for line in axes.lines if not line.get_label().startswith("_")}
    assert ends.keys() == {"wga", "atwu"}
    gain = records.difference("atwu", "wga", UQ)
    assert ends["atwu"] - ends["wga"] == pytest.approx(gain.value)
    low, high = gain.interval()
    assert {f"{gain.value:+.1f}", f"[{low:+.1f}, {high:+.1f}]", "over wga"} <= {text.get_text() for text in axes.texts}


def test_gains_are_over_the_same_losses_as_published(build_records) -> None:
    """WGA is what ATWU is with every score 1; a line under another configuration is none to compare with."""
    labels = ["atwu", "atwu_dpo", "atwu_npo", "atwu_simnpo", "atwu_ga", "grad_ascent", "grad_diff", "dpo", "npo", "wga"]
    made = build_records(labels=[*labels, "simnpo"], seeds=[0])
    configurations = dict.fromkeys(labels, "ours") | {"simnpo": "paper"}
    recorded = {
        label: {"recipe": recipe(label).as_plain(), "config": {"configuration": name}}
        for label, name in configurations.items()
    }
    runs = [dataclasses.replace(run, run=recorded[run.label]) for run in made.runs]
    found = without_scores(dataclasses.replace(made, runs=tuple(runs)))
    assert found == {"atwu": "wga", "atwu_dpo": "dpo", "atwu_npo": "npo", "atwu_ga": "grad_diff"}


def test_progression_is_the_mean_over_seeds(drawn, records) -> None:
    lines = {line.get_label(): line for line in drawn["auroc_progression"].figure.axes[0].lines}
    first, second = (run.trace.auroc["holdout"] for run in records.of("atwu"))
    assert lines["atwu, holdout"].get_ydata() == pytest.approx((np.array(first) + second) / 2)
    assert "npo, forget" not in lines


def test_values_before_an_attack_use_the_same_rows(records) -> None:
    panel = Panel("extraction_strength", "extraction_strength@relearn_forget")
    expected = fmean(fmean(run.result.rows["forget"].metrics["extraction_strength"][12:]) for run in records.of("npo"))
    assert before_value(records.of("npo"), panel) == pytest.approx(expected)


def test_every_attack_has_a_panel(drawn) -> None:
    shown = [
        axes.get_title(loc="left").replace("\n", " ") for axes in drawn["attacks"].figure.axes if axes.get_visible()
    ]
    again = ["relearned: forget rows", "quantized: 8 bits", "quantized: 4 bits"]
    assert shown == ["probes: worst family", "sampling: best of 8", *again, *again]
