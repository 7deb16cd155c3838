"""A local web page (Gradio) that asks an unlearned and its original model the same question.

Every answer is shown as a heat map of the probability that each model gives its words, with the key tokens underlined
and their probability: an unlearned model may say something else and still know the fact.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from atwu._extras import require
from atwu.data.key_token_spans import key_token_spans
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.side_by_side import SideBySide
from atwu.evaluation.word_scores import word_scores
from atwu.report.page.page_templates import fragment
from atwu.report.scored_row import ScoredRow

_ABOUT = (
    "The models answer greedily, each question in a new conversation. Below, every answer is read by both models: the "
    "stronger the colour, the more probable the word. Key tokens (names, numbers) are underlined; *p* is their "
    "probability, the geometric mean. If the unlearned model still gives the fact a high *p*, it is not forgotten."
)
TRUE_ANSWER = "true answer"


def playground(models: SideBySide, titles: Sequence[str], examples: Sequence[Example] = ()) -> Any:
    """Return the page as `gradio.Blocks`; the questions and answers of `examples` can be picked."""
    gradio = require("gradio", extra="app")

    def respond(question: str, truth: str) -> Iterator[list[str]]:
        """Yield the contents of the answers and of the heat maps, first without the latter."""
        if not question.strip():
            raise gradio.Error("Enter a question.", print_exception=False)
        models.restart()
        with _shown_on_page():
            answers = dict(models.ask(question.strip()))
        yield [*answers.values(), ""]
        whose: dict[str, list[str]] = {truth.strip(): [TRUE_ANSWER]}
        for title, text in answers.items():
            whose.setdefault(text, []).append(f"answer of {title}")
        with _shown_on_page():
            rows = [
                scored_answer(models, ", ".join(said), models.row(question.strip(), text))
                for text, said in whose.items()
                if text
            ]
        yield [*answers.values(), fragment("notebook.html", rows=rows)]

    with gradio.Blocks(title="atwu playground", analytics_enabled=False) as page:
        gradio.Markdown(f"# Playground\n\n{_ABOUT}")
        question = gradio.Textbox(label="Question", autofocus=True)
        truth = gradio.Textbox(label="True answer (optional)")
        ask = gradio.Button("Ask both models", variant="primary")
        with gradio.Row():
            answers = [gradio.Textbox(label=title, lines=4, interactive=False) for title in titles]
        heat_maps = gradio.HTML()
        if examples:
            rows = [[row.question, row.answer] for row in examples]
            gradio.Examples(rows, [question, truth], label="Rows", examples_per_page=8)
        gradio.on([ask.click, question.submit], respond, [question, truth], [*answers, heat_maps])
    return page


@contextlib.contextmanager
def _shown_on_page() -> Iterator[None]:
    """Show the message of an error that a command would print; Gradio shows none, and prints a traceback."""
    gradio = require("gradio", extra="app")
    try:
        yield
    except (AtwuError, ValueError) as error:
        raise gradio.Error(str(error), print_exception=False) from error


def scored_answer(models: SideBySide, who: str, row: Example) -> ScoredRow:
    """Return an answer (`row`) of somebody (`who`) with the probability of its words by each model."""
    row = dataclasses.replace(row, forget_spans=key_token_spans(row) or None)
    words = {}
    for title, read in models.read(row):
        known = key_token_probability(row, read)
        told = "" if known is None else f", p = {known:.3f}"
        words[f"{title}{told}"] = tuple(word_scores(row.answer, read.offsets, np.exp(read.logps)))
    return ScoredRow(who, row.answer, words, row.forget_spans, 0)
