"""Does `atwu ask --about` find by itself what somebody would have written as rows?

    python benchmarks/ask_coverage.py smollm2 --subjects egypt einstein --output benchmarks/results/ask.md

For every example file, and for the subjects of `ask_coverage_rows.yaml`, of the rows that the model knows, the share whose key
text a row found by `ask` states; and all rows found, to be read by somebody who says which are wrong or no fact. Answers are
kept in the cache: with an empty folder as `ATWU_CACHE`, the processor time is that of a first run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from atwu.benchmarks.sources import load_rows
from atwu.data.fact import asked_part
from atwu.data.matching import states
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.asking.ask import AskRequest, ask_with
from atwu.request.asking.ask_result import AskResult
from atwu.request.asking.asked_facts import AskedFact
from atwu.request.asking.known_facts import compare_facts
from atwu.request.asking.subject_asker import SubjectAsker
from atwu.request.asking.subject_templates import SubjectQuestion
from atwu.request.row_facts import ModelReader

EXAMPLES = Path(__file__).parents[1] / "examples"
EXAMPLE_SUBJECTS = {
    "egypt": "Egypt",
    "france": "France",
    "japan": "Japan",
    "einstein": "Albert Einstein",
    "united_states": "the United States",
    "shakespeare": "William Shakespeare",
    "glassblower": "Torvald Brekkesen",
}
"""Example file -> the name that is asked about."""
WRITTEN = yaml.safe_load(Path(__file__).with_name("ask_coverage_rows.yaml").read_text(encoding="utf-8"))
SUBJECTS = EXAMPLE_SUBJECTS | {name: entry["subject"] for name, entry in WRITTEN.items()}


@dataclass(frozen=True, slots=True)
class Coverage:
    subject: str
    written: int
    found_by: Mapping[Example, AskedFact | None]
    """Row that the model knows -> the first found row that has its key text marked."""
    result: AskResult
    seconds: float
    """Processor time of asking."""

    @property
    def found(self) -> int:
        return sum(fact is not None for fact in self.found_by.values())

    def line(self) -> str:
        return (
            f"| {self.subject} | {self.written} | {len(self.found_by)} | {self.found} | {len(self.result.known)} "
            f"| {self.seconds:.0f} s |"
        )


def key_text(row: Example) -> str:
    part = asked_part(row)
    assert part is not None, row.question
    return row.answer[part[0] : part[1]]


def written_rows(name: str) -> Sequence[Example]:
    """Return the hand-written rows of a subject."""
    if name in EXAMPLE_SUBJECTS:
        rows = load_rows(str(EXAMPLES / f"{name}.jsonl")).rows
        return [replace(row, subject=EXAMPLE_SUBJECTS[name]) for row in rows]
    entry = WRITTEN[name]
    return [Example.from_qa(question, answer, subject=entry["subject"]) for question, answer in entry["rows"]]


def known_rows(asker: SubjectAsker, rows: Sequence[Example]) -> list[Example]:
    """Return the rows whose key text the model says as often as a row of `ask` needs."""
    facts = [AskedFact(row, key_text(row), 0, 0, "written") for row in rows]
    asked = compare_facts(asker, facts, [SubjectQuestion((row.question,), "written") for row in rows])
    return [fact.row for fact in asked if fact.compared is not None and fact.compared.repeated]


def states_row(fact: AskedFact, row: Example) -> bool:
    """Return whether a found row has the key text of a written one marked.

    "Who wrote Hamlet?" asks for the subject itself, which no row about it has as its answer: there what the question names
    counts.
    """
    marked = [fact.row.answer[begin:end] for begin, end in fact.row.forget_spans or ()]
    if states(str(row.subject), key_text(row)):
        return any(states(row.question, text) for text in marked)
    return any(states(text, key_text(row)) for text in marked)


def cover(asker: SubjectAsker, name: str) -> Coverage:
    """Ask about a subject, and compare with its hand-written rows."""
    rows = written_rows(name)
    known = known_rows(asker, rows)
    start = time.process_time()
    result = ask_with(asker, AskRequest(about=SUBJECTS[name]))
    seconds = time.process_time() - start
    found_by = {row: next((fact for fact in result.known if states_row(fact, row)), None) for row in known}
    return Coverage(SUBJECTS[name], len(rows), found_by, result, seconds)


def page(model: str, names: Sequence[str], coverages: Sequence[Coverage]) -> str:
    known = sum(len(coverage.found_by) for coverage in coverages)
    lines = [
        "# What `atwu ask --about` finds by itself",
        "",
        f"`python benchmarks/ask_coverage.py {model} --subjects {' '.join(names)} --output benchmarks/results/ask.md`",
        "",
        "Of the hand-written rows that the model knows (it says their key text in 60 % of the askings), those whose key text "
        "some found row has marked. Where the key text is the subject itself, what the question names has to be marked.",
        "",
        "| subject | rows | known | of these found | rows found | processor time |",
        "|---|---|---|---|---|---|",
        *(coverage.line() for coverage in coverages),
        "",
        f"Together {sum(coverage.found for coverage in coverages)} of {known}.",
    ]
    for coverage in coverages:
        lines += ["", f"## {coverage.subject}", "", coverage.result.summary(), *coverage.result.notes]
        lines += ["", "| known row | key text | found by |", "|---|---|---|"]
        for row, fact in coverage.found_by.items():
            by = "-"
            if fact is not None:
                by = cell(fact.row.question)
            lines.append(f"| {cell(row.question)} | {cell(key_text(row))} | {by} |")
        lines += ["", "| row found | answer | marked | askings | probability | source |", "|---|---|---|---|---|---|"]
        for fact in coverage.result.known:
            marked = "; ".join(fact.row.answer[begin:end] for begin, end in fact.row.forget_spans or ())
            probability = ""
            if fact.probability is not None:
                probability = f"{fact.probability:.2f}"
            lines.append(
                f"| {cell(fact.row.question)} | {cell(fact.row.answer)} | {cell(marked)} | {fact.agree} of {fact.askings} "
                f"| {probability} | {fact.source} |"
            )
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=[*SUBJECTS])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    generator = TransformersGenerator(*open_model(arguments.model, ModelLoadArgs(), device="cpu"))
    asker = SubjectAsker(generator, read=ModelReader(generator, system=None, max_length=512))
    coverages: list[Coverage] = []
    for name in arguments.subjects:
        coverages.append(cover(asker, name))
        text = page(arguments.model, arguments.subjects[: len(coverages)], coverages)
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
