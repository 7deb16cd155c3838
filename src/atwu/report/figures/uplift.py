"""Figure of the gain from learned token weights: UQ of a forget loss with them and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.result import MetricValue, format_number
from atwu.report.figures.figure import MUTED, FigureDraft, Series, name_rows, new_figure, report_figure
from atwu.report.report_records import Records
from atwu.report.table_values import MetricKey, cell_of

UQ: MetricKey = (OVERALL, "UQ")

_WGA = ("saturation", "ga")
_WITHOUT = {"satga": (_WGA, ("uniform", "satga")), "satga_plus": (_WGA, ("uniform", "satga"))}
"""Forget loss -> weighting and forget loss of the equivalent without scores; `uniform` and the same loss for all
others.

With all scores equal to 1 both are p^beta log p, which is WGA.
"""


def without_scores(records: Records) -> dict[str, str]:
    """Label with learned scores -> label without, with the same forget loss, retain loss and configuration."""
    parts = {label: _parts(records, label) for label in records.labels}
    found = {}
    for label, (weighting, loss, *others) in parts.items():
        wanted = [(*alone, *others) for alone in _WITHOUT.get(loss, (("uniform", loss),))]
        same = [other for each in wanted for other in records.labels if parts[other] == each]
        if weighting == "scorer" and same:
            found[label] = same[0]
    return found


@report_figure("Gain from learned token weights per forget loss")
def uplift(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw UQ without and with learned scores, one row per forget loss, the largest gain first."""
    pairs = {
        label: (other, before, after)
        for label, other in without_scores(records).items()
        if (before := cell_of(records.results[other], UQ)) and (after := cell_of(records.results[label], UQ))
    }
    if not pairs:
        return (
            "no forget loss has runs both with and without learned scores that were judged against the original "
            "model (UQ)."
        )
    order = sorted(pairs, key=lambda label: -_gain(*pairs[label][1:]))
    tips = {}
    sheet = new_figure(0.75 + 0.34 * len(order))
    axes = sheet.subplots()
    for row, label in enumerate(order):
        one, (other, before, after) = styles[label], pairs[label]
        ends = [_value(before), _value(after)]
        axes.plot(ends, [row, row], color=one.colour, linewidth=one.width, zorder=one.order)
        look: dict[str, Any] = {
            "color": one.colour,
            "marker": one.marker,
            "clip_on": False,
            "zorder": one.order + 1,
        }
        axes.plot(ends[0], row, **look, markerfacecolor="none", markeredgewidth=1.3, gid=one.gid("without"))
        axes.plot(ends[1], row, **look, gid=one.gid("with"))
        gain, interval = f"{_gain(before, after):+.{after.digits}f}", _interval(records, label, other, after.digits)
        for word, at, muted in ((gain, 8, False), (interval, 38, True), (f"over {styles[other].name}", 102, True)):
            axes.annotate(
                word,
                (1, row),
                (at, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
                **({"alpha": MUTED} if muted else {"fontweight": one.weight}),
            )
        tips[one.gid("without")] = f"{other}: UQ {format_number(before.value, before.digits)}"
        tips[one.gid("with")] = f"{label}: UQ {format_number(after.value, after.digits)}, {gain} {interval}".rstrip()
    name_rows(axes, [styles[label] for label in order])
    axes.grid(True, axis="x")
    axes.set(xlim=(0, max(1.0, axes.get_xlim()[1])), xlabel="UQ in % (higher: more forgotten with less degradation)")
    caption = (
        "Open marks: the forget loss alone; filled: with learned scores; each has the values of its runs. On the "
        "right: the gain, its paired 95 % bootstrap interval over rows and shared seeds, and the method it is "
        "relative to."
    )
    return sheet, caption, tips


def _parts(records: Records, label: str) -> tuple[str, ...]:
    """Weighting, forget loss, retain loss and configuration of a label's runs; empty if not recorded."""
    run = records.of(label)[0].run or {}
    recipe, config = run.get("recipe") or {}, run.get("config") or {}
    named = [recipe.get(name, "") for name in ("weighting", "forget_loss", "retain_loss")]
    return (*map(str, named), str(config.get("configuration", "")))


def _value(cell: MetricValue) -> float:
    assert cell.value is not None
    return cell.value


def _gain(before: MetricValue, after: MetricValue) -> float:
    return _value(after) - _value(before)


def _interval(records: Records, label: str, other: str, digits: int) -> str:
    """Interval of the gain, or an empty text if there is none."""
    found = records.difference(label, other, UQ)
    ends = None if found is None else found.interval()
    return "" if ends is None else f"[{', '.join(f'{end:+.{digits}f}' for end in ends)}]"
