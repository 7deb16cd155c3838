"""Does `atwu ask --about` find by itself what somebody would have written as rows?

    python benchmarks/ask_coverage.py smollm2 --subjects egypt einstein --output benchmarks/results/ask.md

For every example file, of the rows that the model knows, the share whose key text a row found by `ask` states; and all rows
found, to be read by somebody who says which are wrong or no fact.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from atwu.benchmarks.sources import load_rows
from atwu.data.fact import asked_part
from atwu.data.matching import states
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.asking.ask import AskRequest, ask_with
from atwu.request.asking.ask_result import AskResult
from atwu.request.asking.asked_facts import KNOWN_SHARE, AskedFact
from atwu.request.asking.known_facts import compare_facts
from atwu.request.asking.subject_asker import SubjectAsker
from atwu.request.asking.subject_templates import SubjectQuestion
from atwu.request.row_facts import ModelReader

EXAMPLES = Path(__file__).parents[1] / "examples"
SUBJECTS = {
    "egypt": "Egypt",
    "france": "France",
    "japan": "Japan",
    "einstein": "Albert Einstein",
    "united_states": "the United States",
    "shakespeare": "William Shakespeare",
}
"""Example file -> the name that is asked about."""


@dataclass(frozen=True, slots=True)
class Coverage:
    subject: str
    written: int
    known: tuple[Example, ...]
    missed: tuple[Example, ...]
    result: AskResult
    seconds: float
    """Processor time of asking."""

    def line(self) -> str:
        covered = len(self.known) - len(self.missed)
        missed = "; ".join(row.question for row in self.missed) or "none"
        return (
            f"| {self.subject} | {self.written} | {len(self.known)} | {covered} | {len(self.result.rows)} "
            f"| {self.seconds:.0f} s | {missed} |"
        )


def key_text(row: Example) -> str:
    part = asked_part(row)
    assert part is not None, row.question
    return row.answer[part[0] : part[1]]


def cover(asker: SubjectAsker, name: str) -> Coverage:
    """Ask about the subject of an example file, and compare with its rows."""
    rows = load_rows(str(EXAMPLES / f"{name}.jsonl")).rows
    facts = [AskedFact(row, key_text(row), 0, 0, "written") for row in rows]
    askings = [SubjectQuestion((row.question,), "written") for row in rows]
    asked = compare_facts(asker, facts, askings)
    known = tuple(
        fact.row
        for fact in asked
        if fact.compared is not None and fact.compared.agree >= KNOWN_SHARE * fact.compared.askings
    )
    start = time.process_time()
    result = ask_with(asker, AskRequest(about=SUBJECTS[name]))
    seconds = time.process_time() - start
    said = [row.answer[begin:end] for row in result.rows for begin, end in row.forget_spans or ()]
    missed = tuple(row for row in known if not any(states(text, key_text(row)) for text in said))
    return Coverage(SUBJECTS[name], len(rows), known, missed, result, seconds)


def page(model: str, coverages: list[Coverage]) -> str:
    covered = sum(len(each.known) - len(each.missed) for each in coverages)
    known = sum(len(each.known) for each in coverages)
    names = " ".join(name for name, subject in SUBJECTS.items() if subject in {each.subject for each in coverages})
    lines = [
        "# What `atwu ask --about` finds by itself",
        "",
        f"`python benchmarks/ask_coverage.py {model} --subjects {names} --output benchmarks/results/ask.md`",
        "",
        "Of the rows of an example file that the model knows (it says their key text in 60 % of the askings), those whose key "
        "text some found row has marked.",
        "",
        "| subject | rows | known | of these found | rows found | processor time | not found |",
        "|---|---|---|---|---|---|---|",
        *(each.line() for each in coverages),
        "",
        f"Together {covered} of {known}.",
    ]
    for each in coverages:
        lines += [
            "",
            f"## {each.subject}: all rows found",
            "",
            "| question | answer | askings | source |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {fact.row.question} | {fact.row.answer} | {fact.agree} of {fact.askings} | {fact.source} |"
            for fact in each.result.known
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=[*SUBJECTS])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    generator = TransformersGenerator(*open_model(arguments.model, ModelLoadArgs(), device="cpu"))
    asker = SubjectAsker(generator, read=ModelReader(generator, system=None, max_length=512))
    coverages = []
    for name in arguments.subjects:
        coverages.append(cover(asker, name))
        arguments.output.write_text(page(arguments.model, coverages), encoding="utf-8")


if __name__ == "__main__":
    main()
