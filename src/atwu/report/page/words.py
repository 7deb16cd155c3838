"""Word scores over a run: every method's words of a row, one line under the other, with the numbers the slider moves through.

Shown as the runs ended; the page's script reads the other looks from a block of JSON. Each run was looked at on steps of its
own, so the slider counts shares of the training and every line shows the look nearest to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atwu.evaluation.token_scores import WordScore
from atwu.evaluation.trace import Trace, TracedRow
from atwu.report.colour_scale import LEVELS, level
from atwu.report.figures.auroc_progression import masks_told
from atwu.report.page.chooser import kind
from atwu.report.page.html import Html, data_block, join, tag
from atwu.report.records import Records
from atwu.report.scored_row import Piece, ScoredRow, percent, pieces

SETS = {
    "forget": ("Forget rows", "Rows the methods were told to forget."),
    "unseen": ("Unseen rows", "Rows about others that no model was trained on: do the scores carry over?"),
}
_KEEP_TOGETHER = 24
"""Longest run of touching words, in characters, that is never broken."""

RowKey = tuple[str, str, str]
"""Set, question, answer."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One line in the heat maps of every row."""

    label: str
    seed: int | None
    trace: Trace
    rows: Mapping[RowKey, TracedRow]


def traced(records: Records) -> list[Traced]:
    """The trace of every label that has one; of several seeds the first."""
    found = []
    for label in records.labels:
        run = next((run for run in records.of(label) if run.trace is not None and run.trace.steps), None)
        if run is not None and run.trace is not None:
            rows = {(row.set, row.question, row.answer): row for row in run.trace.rows}
            found.append(Traced(label, run.seed, run.trace, rows))
    return found


def words_section(records: Records) -> Html | None:
    """Heat maps of the traced rows; None when nothing was traced."""
    lines = traced(records)
    keys = list(dict.fromkeys(key for line in lines for key in line.rows))
    if not keys:
        return None
    sets = list(dict.fromkeys(split for split, _, _ in keys))
    number = {key: place for place, key in enumerate(keys)}
    without = [label for label in records.labels if label not in {line.label for line in lines}]
    note = ""
    if without:
        each = "gives" if len(without) == 1 else "give"
        note = f" Not shown: {', '.join(without)}, which {each} every word the same weight, or left no trace."
    intro = tag(
        "p",
        None,
        "The score of the kind each method uses, from 0 to 100, recomputed on the current model while it trains (without "
        f"the run's own exponents){_seeds(lines)}. AUROC tells how well the scores find the tokens that carry the secret, "
        f"over up to 40 rows of the kind, of which some are shown: 0.5 is chance, 1 is perfect.{masks_told(records)}{note}",
    )
    kinds = [_kind(split, [key for key in keys if key[0] == split], lines, number) for split in sets]
    looks = max(len(line.trace.steps) for line in lines)
    return join((intro, _scale(), _player(looks), *kinds, data_block("traces", _data(lines, keys, looks))))


def _seeds(lines: Sequence[Traced]) -> str:
    """Whose scores these are, where runs have seeds."""
    seeds = {line.label: line.seed for line in lines if line.seed is not None}
    if len(set(seeds.values())) == 1:
        return f", in the run of seed {next(iter(seeds.values()))}"
    each = ", ".join(f"{label}: {seed}" for label, seed in seeds.items())
    return f", in the first run that was looked at (seed of {each})" if seeds else ""


def level_css() -> str:
    """Rules for the colours of all levels, in both themes."""
    from atwu.report.colour_scale import background, css, ink

    rules = []
    for step in range(LEVELS):
        light, dark = (background(step / (LEVELS - 1), dark=theme) for theme in (False, True))
        paper = f"light-dark({css(light)},{css(dark)})"
        rules.append(f".s{step}{{background:{paper};color:light-dark({css(ink(light))},{css(ink(dark))})}}")
    return "\n".join(rules) + "\n"


def _data(lines: Sequence[Traced], keys: Sequence[RowKey], looks: int) -> dict[str, Any]:
    """What the slider shows: per method its steps and AUROC, per row and method a list of numbers per look."""
    return {
        "looks": looks,
        "methods": [
            {"label": line.label, "steps": list(line.trace.steps), "auroc": {k: list(v) for k, v in line.trace.auroc.items()}}
            for line in lines
        ],
        "rows": [
            [
                None if key not in line.rows else [[_shown(score) for score in look] for look in line.rows[key].scores]
                for line in lines
            ]
            for key in keys
        ],
    }  # fmt: skip


def _shown(score: float | None) -> int | None:
    return None if score is None else percent(score)


def _scale() -> Html:
    swatches = join(tag("span", {"class": f"s{step}"}) for step in range(LEVELS))
    ramp = tag("span", {"class": "ramp", "role": "img", "aria-label": "Colour scale from 0 to 100"}, swatches)
    return tag(
        "div",
        {"class": "legend"},
        tag("span", {"class": "key"}, tag("span", None, "0"), ramp, tag("span", None, "100")),
        tag("span", {"class": "key"}, join((tag("span", {"class": "secret"}, "underlined"), " carries the secret"))),
    )


def _player(looks: int) -> Html:
    last = looks - 1
    slider = Html(
        f'<input type="range" id="progress" min="0" max="{last}" step="1" value="{last}" aria-valuetext="end of training">'
    )
    return tag(
        "div",
        {"class": "player", "role": "group", "aria-label": "Progress of training", "hidden": True},
        tag("button", {"type": "button", "id": "play", "class": "plain"}, "Play"),
        tag("label", {"for": "progress"}, "Training"),
        slider,
        tag("output", {"for": "progress", "id": "progress-now"}, "100 %"),
        tag("label", {"class": "check"}, Html('<input type="checkbox" id="numbers">'), " Numbers"),
    )


def _kind(split: str, keys: Sequence[RowKey], lines: Sequence[Traced], number: Mapping[RowKey, int]) -> Html:
    title, about = SETS.get(split, (split, ""))
    return kind(split, title, about, [(key[1] or key[2], _article(key, lines, number[key])) for key in keys])


def _article(key: RowKey, lines: Sequence[Traced], place: int) -> Html:
    split, question, _ = key
    there = [(index, line) for index, line in enumerate(lines) if key in line.rows]
    return tag(
        "article",
        {"class": "card traced", "data-row": place},
        tag("h4", {"dir": "auto"}, question or "(no question)"),
        *(_line(line, index, line.rows[key], split) for index, line in there),
    )


def _line(line: Traced, index: int, row: TracedRow, split: str) -> Html:
    final = row.scores[-1]
    words = tuple(
        WordScore(row.answer[start:end], start, end, None if score is None else percent(score) / 100)
        for (start, end), score in zip(row.words, final, strict=True)
    )
    scored = ScoredRow(row.question, row.answer, {line.label: words}, row.forget_spans, 0)
    auroc = line.trace.auroc.get(split, ())
    last = None if not auroc else auroc[-1]
    told = f"step {line.trace.steps[-1]}" + ("" if last is None else f" · AUROC {last:.2f}")
    return tag(
        "div",
        {"class": "line", "data-method": index},
        tag(
            "div", {"class": "who"}, tag("span", {"class": "method"}, line.label), tag("span", {"class": "told"}, told)
        ),
        tag("p", {"class": "answer", "dir": "auto"}, _answer(scored, line.label)),
    )


def _answer(row: ScoredRow, label: str) -> Html:
    """Words as tiles; those that touch (a name and its comma) stay on one line."""
    parts: list[Html] = []
    run: list[Html] = []
    length = 0
    place = 0

    def end_run() -> None:
        joined = join(run)
        parts.append(tag("span", {"class": "run"}, joined) if 0 < length <= _KEEP_TOGETHER else joined)
        run.clear()

    for piece in pieces(row, label):
        if piece.word is None:
            end_run()
            parts.append(tag("span", None, piece.text) if piece.text.strip() else Html(piece.text))
            length = 0
            continue
        run.append(_tile(piece, first=place == 0))
        length += len(piece.text)
        place += 1
    end_run()
    return join(parts)


def _tile(piece: Piece, *, first: bool) -> Html:
    score = None if piece.word is None else piece.word.score
    secret = " secret" if piece.secret else ""
    shown = None if score is None else percent(score)
    told = f" ({'no score' if shown is None else shown}{', secret' if piece.secret else ''}) "
    return tag(
        "span",
        {
            "class": f"w {'blank' if score is None else f's{level(score)}'}{secret}",
            "tabindex": 0 if first else -1,
            "data-v": "" if shown is None else shown,
        },
        piece.text,
        tag("span", {"class": "sr"}, told),
    )
