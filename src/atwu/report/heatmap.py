"""Token scores as coloured words: computed for a model and rows; in the terminal, in a notebook, and as an HTML file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from atwu._file_reading import printable
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation import weighting_scores
from atwu.evaluation.teacher_forced import read_tokens
from atwu.evaluation.weighting_scores import AuxiliaryModels, ScoreContext, find_auxiliary_models
from atwu.evaluation.word_scores import word_scores
from atwu.methods.weightings.token_scorer import TokenScorer, find_scorer
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.page_templates import (
    Piece,
    ScoredRow,
    background,
    fragment,
    ink,
    methods_of,
    percent_of_score,
    pieces,
    render_template,
    word_auroc,
)
from atwu.training.row_sets import RowsInput, text_rows

logger = logging.getLogger(__name__)

_MARKED_FROM = 0.5
"""Without colour, words with at least this score are followed by a number."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Scored rows, shown as a heat map in notebooks."""

    rows: Sequence[ScoredRow]

    def _repr_html_(self) -> str:
        return fragment("notebook.html", rows=self.rows)


def heat_map(
    model: str,
    rows: RowsInput,
    *,
    scores: Sequence[str] | None = None,
    retain: RowsInput | None = None,
    system: str | None = None,
    device: Any = None,
) -> HeatMap:
    """Show in colour which words of the answers a method weights; the same as `atwu tokens`.

    Args:
        model: the folder of a run (with its scorer), any other model, or a Hub name.
        rows: rows of any kind that `UnlearnTrainer` takes.
        scores: as for `atwu tokens --score`; by default all that the model allows, except labels.
        retain: retain rows, needed by `rarity` and similar weightings.
        system: system prompt for conversations without one.
        device: device of the model; by default the best available.

    Raises:
        ValueError: an unknown score, or one that needs a missing scorer, labels or retain rows.
    """
    examples = text_rows(rows, what="forget").rows
    kept = shown = None
    if retain is not None:
        kept = text_rows(retain, what="retain").rows
    if scores is not None:
        shown = {name: name for name in scores}
    scored = score_rows(
        *open_model(model, ModelLoadArgs(), device=device),
        examples,
        scorer=find_scorer(model),
        auxiliary=find_auxiliary_models(model),
        retain=kept,
        scores=shown,
        system=system,
    )
    return HeatMap(scored)


def score_rows(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    scorer: TokenScorer | None = None,
    scores: Mapping[str, str] | None = None,
    retain: Sequence[Example] | None = None,
    auxiliary: AuxiliaryModels | None = None,
    max_length: int = 512,
    system: str | None = None,
    progress: str | None = None,
) -> list[ScoredRow]:
    """Score the words of every answer.

    Args:
        scores: displayed label -> name of a weighting; by default every score that can be computed, except labels.
        retain: retain rows, for the scores that count tokens of retain answers.
        auxiliary: SU-LLM's two models, for its selection.
    """
    inputs = weighting_scores.ScoreInputs(
        scorer=scorer is not None,
        labels=all(example.forget_spans is not None for example in examples),
        retain=bool(retain),
        auxiliary=auxiliary is not None,
    )
    if scores is None:
        scores = {name: name for name in weighting_scores.available(inputs) if name != "labels"}
    weighting_scores.check_scores(scores.values(), inputs)  # before the model is run
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    encoded = encoder.encode_rows(examples, what="rows")
    for warning in encoded.warnings:
        logger.warning(warning)
    rows = read_tokens(model, encoded.rows, scorer=scorer, progress=progress)
    kept = auxiliary_logps = None
    if retain:
        kept = encoder.encode_rows(retain, what="retain").rows
    if auxiliary is not None and "model_difference" in scores.values():  # loads two models, so only if it is wanted
        auxiliary_logps = auxiliary.logps(encoded.rows, device=next(model.parameters()).device)
    context = ScoreContext(rows, encoded.rows, examples, retain=kept, retain_text=retain, auxiliary=auxiliary_logps)
    token_scores = weighting_scores.token_scores(context, dict.fromkeys(scores.values()))
    return [
        ScoredRow(
            question=example.question,
            answer=example.answer,
            words={
                label: tuple(word_scores(example.answer, row.offsets, token_scores[name][index]))
                for label, name in scores.items()
            },
            forget_spans=example.forget_spans,
            index=index,
        )
        for index, (example, row) in enumerate(zip(examples, rows, strict=True))
    ]


def side_by_side(parts: Sequence[Sequence[ScoredRow]]) -> list[ScoredRow]:
    return [
        replace(rows[0], words={label: words for row in rows for label, words in row.words.items()})
        for rows in zip(*parts, strict=True)
    ]


def render_terminal(rows: Sequence[ScoredRow], console: Console) -> None:
    """Print each row's question and one line of coloured words per method, then a legend.

    The background is that of dark pages, lighter for higher scores, and labelled words are underlined. If the console has fewer
    than 256 colours (a pipe, NO_COLOR), words from .5 on print as [word:93] and labelled words as _word_.
    """
    # With fewer colours, several steps of the scale would look the same.
    coloured = console.color_system in ("256", "truecolor") and not console.no_color
    for row in rows:
        console.print(Text.assemble((f"{row.index}  ", "dim"), (printable(row.question), "bold")))
        grid = Table.grid(padding=(0, 2), expand=False)
        grid.add_column(no_wrap=True, min_width=max((len(name) for name in methods_of(rows)), default=0))
        grid.add_column(no_wrap=True, justify="right", min_width=3)
        grid.add_column(overflow="fold")
        for method in row.words:
            auroc = word_auroc(row, method)
            percent = ""
            if auroc is not None:
                percent = str(percent_of_score(auroc))
            line = Text()
            for piece in pieces(row, method):
                line.append_text(_format_piece(piece, coloured=coloured))
            grid.add_row(Text(printable(method)), Text(percent, "dim"), line)
        console.print(grid)
        console.print()
    if rows:
        console.print(_terminal_legend(rows, coloured))


def render_html(rows: Sequence[ScoredRow], *, title: str) -> str:
    """Render all rows as one HTML page with a legend, and controls for methods, threshold and numbers.

    The page follows the reader's light or dark setting, prints, and works without JavaScript, on phones and with screen
    readers, which read each word followed by its score from 0 to 100. It has no external references.
    """
    methods = methods_of(rows)
    aurocs: dict[str, list[float]] = {}
    for method in methods:
        for row in rows:
            auroc = word_auroc(row, method) if method in row.words else None
            if auroc is not None:
                aurocs.setdefault(method, []).append(auroc)
    return render_template(
        "heatmap.html",
        title=title,
        rows=rows,
        methods=methods,
        annotated=any(row.forget_spans is not None for row in rows),
        aurocs=aurocs,
    )


def _format_piece(piece: Piece, *, coloured: bool) -> Text:
    """Format a piece: with its background, or without colour as [word:93], with _word_ for a labelled word."""
    score = None
    if piece.word is not None:
        score = piece.word.score
    if coloured and score is not None:
        paper = background(score, dark=True)
        return Text(piece.text, Style(color=ink(paper).hex, bgcolor=paper.hex, underline=piece.secret))
    if coloured:
        return Text(piece.text, Style(underline=piece.secret))
    text = piece.text
    if piece.secret:
        text = f"_{text}_"
    if score is not None and score >= _MARKED_FROM:
        text = f"[{text}:{percent_of_score(score)}]"
    return Text(text)


def _terminal_legend(rows: Sequence[ScoredRow], coloured: bool) -> Text:
    annotated = any(row.forget_spans is not None for row in rows)
    legend = Text()
    if coloured:
        legend.append("score ", "dim")
        for tenth in range(0, 11, 2):
            paper = background(tenth / 10, dark=True)
            legend.append(f" {10 * tenth} ", Style(color=ink(paper).hex, bgcolor=paper.hex))
        if annotated:
            legend.append("   ").append("labelled", "underline").append(" word", "dim")
    else:
        legend.append(f"[word:93] = 93 of 100, shown from {percent_of_score(_MARKED_FROM)} on")
        if annotated:
            legend.append("; _word_ = labelled word")
    if annotated:
        legend.append("\nnumber after the method: AUROC x 100 of its words in this row", "dim")
    return legend
