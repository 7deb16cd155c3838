"""The verdict as plain text, 80 columns wide: what still comes out, how it was asked, and what the model said."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence

from atwu._file_reading import printable
from atwu.evaluation.facts.askings import AS_WRITTEN
from atwu.evaluation.facts.fact_table import AS_SAVED, FactAnswer, FactCount
from atwu.request.verdict import NOTHING, RequestVerdict, StateCount

WIDTH = 80
LEAKS_SHOWN = 10
_NAME, _FACTS = 34, 25
"""Widths of the columns of states; the longest name is "after 20 steps on unrelated rows"."""


def verdict_text(verdict: RequestVerdict) -> str:
    """Return a verdict to print."""
    lines = [f"VERDICT: {verdict.outcome.upper()}"]
    if verdict.outcome == NOTHING:
        stated = answers_under("Stated", verdict.leaks[:LEAKS_SHOWN])
        return "\n".join([*lines, *wrap_text(verdict.reason), *stated, *next_lines(verdict.next_steps)])
    for criterion in verdict.criteria:
        mark = "" if criterion.met else "NOT MET: "
        lines += wrap_text(mark + criterion.sentence)
    for note in verdict.notes:
        lines += wrap_text(note)
    lines += ["", *wrap_text(verdict.rule)]
    lines += leak_lines(verdict.leaks)
    lines += answers_under("Answers now", verdict.samples)
    lines += ["", *state_lines(verdict.states)]
    if verdict.earlier:
        lines += ["", "Earlier requests on this model, asked again"]
        for check in verdict.earlier:
            lines += wrap_text(f"request {check.number} {check.summary}", rest="  ")
    if verdict.not_tested:
        lines += ["", "Not tested:", *(line for item in verdict.not_tested for line in wrap_item(item))]
    return "\n".join([*lines, *next_lines(verdict.next_steps)])


def leak_lines(leaks: Sequence[FactAnswer]) -> list[str]:
    """Return the answers that state a fact, those of the model as saved first, and how many more there are."""
    shown = sorted(leaks, key=lambda leak: leak.state != AS_SAVED)[:LEAKS_SHOWN]
    lines = answers_under("Still stated", shown)
    if len(leaks) > LEAKS_SHOWN:
        lines.append(f"  and {len(leaks) - LEAKS_SHOWN} more, in verdict.json")
    return lines


def answers_under(title: str, answers: Sequence[FactAnswer]) -> list[str]:
    """Return some questions with their answers under a title; nothing without any."""
    if not answers:
        return []
    return ["", title, *(line for answer in answers for line in answer_lines(answer))]


def answer_lines(answer: FactAnswer) -> list[str]:
    """Return one question with its answer, on one line if they fit, and in brackets the state of the model or the way of asking
    unless as written."""
    how = answer.asking.replace("_", " ") if answer.state == AS_SAVED else answer.state
    if answer.state == AS_SAVED and answer.asking == AS_WRITTEN:
        how = ""
    note = f" ({how})" if how else ""
    question = f"  {shorten(answer.question, WIDTH - 2 - len(note))}{note}"
    said = excerpt(answer.answer, answer.said, WIDTH - len("    -> ")) or "(no answer)"
    if len(f"{question}  ->  {said}") <= WIDTH:
        return [f"{question}  ->  {said}"]
    return [question, f"    -> {said}"]


def state_lines(states: Sequence[StateCount]) -> list[str]:
    """Return the table of states, of which only the first line decides."""
    never = any(state.unknown is not None for state in states)
    head = f"{'':{_NAME}}{'facts that come out':{_FACTS}}{'never known' if never else 'answers stating one'}"
    lines = [head]
    for state in states:
        low, high = state.after.interval()
        facts = f"{state.before.facts_stated} -> {state.after.facts_stated} of {state.after.facts}"
        facts = f"{facts:14}[{_share(low)}, {_share(high)}]"
        answers = f"{state.before.answers_stating} -> {state.after.answers_stating} of {state.after.answers}"
        if never:
            answers = _unknown(state.unknown)
        lines.append(f"{state.name:{_NAME}}{facts:{_FACTS}}{answers}".rstrip())
    if len(states) > 1:
        lines += wrap_text("Before -> after. The lines below the first one decide nothing.")
    return lines


def _unknown(count: FactCount | None) -> str:
    return "" if count is None else f"{count.facts_stated} of {count.facts}"


def _share(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if 0 < value < 1 else f"{value:.0f}"


def verdict_html(verdict: RequestVerdict) -> str:
    """Return a verdict for a notebook: outcome, reason, the parts of the rule, and the answers that state a fact."""
    table: str = verdict.to_pandas().to_html(index=False, float_format="{:.3g}".format, na_rep="")
    leaks = "".join(
        f"<tr><td>{html.escape(printable(leak.question))}</td><td>{html.escape(printable(leak.answer))}</td></tr>"
        for leak in verdict.leaks
    )
    summary = f"<p><b>{html.escape(verdict.outcome)}</b>. {html.escape(verdict.reason)}</p>"
    stated = f"<table><tr><th>question</th><th>still stated</th></tr>{leaks}</table>" if leaks else ""
    return summary + table + stated


def next_lines(steps: Sequence[str]) -> list[str]:
    """Return the next steps under a heading; a command stays on one line, to be copied."""
    if not steps:
        return []
    lines: list[str] = []
    for step in steps:
        is_command = step.startswith(("atwu ", "llama-server "))
        lines += [f"  {step}"] if is_command else wrap_item(step)
    return ["", "Next:", *lines]


def wrap_item(text: str) -> list[str]:
    """Wrap one entry of an indented list."""
    return wrap_text(text, "  ", "    ")


def wrap_text(text: str, first: str = "", rest: str = "") -> list[str]:
    """Wrap a text to the width of the screen."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def excerpt(text: str, part: str, width: int) -> str:
    """Cut a text to one line of at most `width` characters that shows one part of it, in brackets."""
    line, shown = (" ".join(printable(words).split()) for words in (text, part))
    start = line.find(shown)
    if not shown or start < 0:
        return shorten(line, width)
    end = start + len(shown)
    marked = f"{line[:start]}[{shown}]{line[end:]}"
    # Two thirds of the line lead up to the part, so that it can be read in its sentence.
    before = max(end + len("[]") - 2 * width // 3, 0)
    if end + len("[]") < width or before > start:
        return shorten(marked, width)
    return shorten(f"…{marked[before:]}", width)


def shorten(text: str, width: int = 70) -> str:
    """Cut a text to one line of at most `width` characters, without control characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"
