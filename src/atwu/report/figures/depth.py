"""Figure of the erasure of key tokens by decoder layer, from the row values of the unlearning depth score."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from atwu.data.arrays import FloatArray, as_floats
from atwu.evaluation.columns import FORGET
from atwu.report.figures.figure import FigureDraft, Series, mark_names, new_figure, report_figure
from atwu.report.report_records import Records, RunRecord


@report_figure("Erasure of key tokens by layer")
def erasure_by_layer(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the mean layer erasure ratio of every label, one point per layer."""
    curves = {label: found for label in records.labels if (found := layer_means(records.of(label))).size}
    if not curves:
        return "no run has an unlearning depth score (metric uds)."
    tips = {}
    sheet = new_figure(max(2.8, 0.6 + 0.165 * len(curves)))
    axes = sheet.subplots()
    lines = {}
    for label, found in curves.items():
        one = styles[label]
        lines[label] = axes.plot(np.arange(len(found)), found, **one.line, clip_on=False, gid=one.gid("erasure"))[0]
        tips[one.gid("erasure")] = f"{label}: mean {np.nanmean(found):.2f} over layers"
    axes.grid(True)
    axes.set(ylim=(0, 1), xlabel="decoder layer", ylabel="erasure (1: as retain-only)")
    axes.locator_params(axis="x", integer=True)
    order = sorted(curves, key=lambda label: -np.nanmean(curves[label]))
    names = [styles[label].name for label in order]
    legend = sheet.legend([lines[label] for label in order], names, loc="outside right upper", alignment="left")
    mark_names(legend.get_texts(), [styles[label] for label in order])
    caption = (
        "How far hidden states of the unlearned model, put into the original model, lower the log-probability of key "
        "tokens, relative to states of the retain-only model (layer erasure ratio, arXiv 2605.24614). Means over "
        "seeds and the rows that the layer encodes."
    )
    return sheet, caption, tips


def layer_means(runs: Sequence[RunRecord]) -> FloatArray:
    """Mean erasure of every layer over runs and the rows that have it, shape (layers,); empty without values."""
    found = list(itertools.takewhile(len, (list(_values(runs, layer)) for layer in itertools.count())))
    return np.array([np.nanmean(each) if np.isfinite(each).any() else np.nan for each in map(np.concatenate, found)])


def _values(runs: Sequence[RunRecord], layer: int) -> Iterator[FloatArray]:
    for run in runs:
        rows = run.result.rows.get(FORGET)
        if rows is not None and f"uds_layer_{layer}" in rows.metrics:
            yield as_floats(rows.metrics[f"uds_layer_{layer}"])
