"""Does `atwu unlearn --about NAME` forget what somebody would have written as rows, and what only leads back to the name?

    atwu unlearn --model smollm2 --about Egypt --output about
    atwu unlearn --model smollm2 --forget examples/egypt.jsonl --output rows
    python benchmarks/about_rows.py about rows --rows examples/egypt.jsonl --output benchmarks/results/about.md

Hand-written rows, which the first run never saw, are asked of the original model and of the unlearned ones in all ways of the
verdict; so are the first run's questions about the answers, which were kept from training, and its neighbours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from atwu.benchmarks.sources import load_rows
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import AS_WRITTEN, CHAINED, Asking, chained_askings, form_askings
from atwu.evaluation.facts.fact_table import FactTable, answerer, ask_facts
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics.recall_by_form import NEIGHBOUR_FORMS, NEIGHBOURS
from atwu.request.finished_request import FinishedRequest
from atwu.request.measurement import fact_askings
from atwu.request.row_facts import ModelReader, mark_facts
from atwu.request.verdict import read_request_verdict

ORIGINAL = "original model"


@dataclass(frozen=True, slots=True)
class Answers:
    """What one model says."""

    written: FactTable
    """To the hand-written rows."""
    chained: FactTable
    neighbours: FactTable

    @property
    def own_questions(self) -> FactTable:
        """To the hand-written rows as they are written."""
        return self.written.select(askings=(AS_WRITTEN,))


def ask_all(
    runs: Sequence[FinishedRequest], askings: tuple[Sequence[Asking], Sequence[Asking], Sequence[Asking]]
) -> dict[str, Answers]:
    """Ask the original model and the unlearned ones."""
    models = {ORIGINAL: runs[0].open_original()} | {run.folder.run.name: run.model for run in runs}
    said: dict[str, Answers] = {}
    for name, model in models.items():
        generator = TransformersGenerator(*model)
        answers = answerer(generator, system=runs[0].row_encoding.system, store=GenerationStore(), progress=name)
        said[name] = Answers(*(ask_facts(answers, several) for several in askings))
    return said


def written_askings(rows: Sequence[Example], run: FinishedRequest) -> list[Asking]:
    """Return hand-written rows in all ways of the verdict, with the facts that the original model marks."""
    original = TransformersGenerator(*run.open_original())
    reader = ModelReader(original, system=run.row_encoding.system, max_length=run.row_encoding.max_length)
    return fact_askings(mark_facts(rows, reader))


def page(folders: Sequence[Path], rows_file: Path) -> str:
    runs = [FinishedRequest(folder, device="cpu") for folder in folders]
    for run in runs[1:]:
        if run.request.fingerprint != runs[0].request.fingerprint:
            raise ValueError(f"{run.folder.run} and {runs[0].folder.run} start from different models.")
    first = runs[0].sets
    askings = (
        written_askings(load_rows(rows_file).rows, runs[0]),
        chained_askings(first[FORGET], first[CHAINED]),
        form_askings(first[NEIGHBOURS], forms=NEIGHBOUR_FORMS),
    )
    said = ask_all(runs, askings)
    lines = []
    for run in runs:
        verdict = read_request_verdict(run.folder.run)
        lines += [f"- `{run.request.command}`: **{verdict.outcome}**. {verdict.reason}"]
    lines += ["", f"| stated | {' | '.join(said)} |", f"|---|{'---|' * len(said)}"]
    lines += [
        counts(f"{rows_file.name}, all ways of asking", [answers.written for answers in said.values()]),
        counts(f"{rows_file.name}, own question", [answers.own_questions for answers in said.values()]),
        counts("questions about the answers, never trained on", [answers.chained for answers in said.values()]),
        counts("neighbours", [answers.neighbours for answers in said.values()]),
    ]
    lines += ["", f"| question | {' | '.join(said)} |", f"|---|{'---|' * len(said)}"]
    lines += answers_of([answers.own_questions for answers in said.values()], "")
    lines += answers_of([answers.chained for answers in said.values()], " (leads back)")
    return "\n".join(lines) + "\n"


def counts(name: str, tables: Sequence[FactTable]) -> str:
    cells = []
    for count in (table.count() for table in tables):
        facts = f"{count.facts_stated} of {count.facts} facts"
        cells.append(f"{facts}, {count.answers_stating} of {count.answers} answers")
    return f"| {name} | {' | '.join(cells)} |"


def answers_of(tables: Sequence[FactTable], note: str) -> Iterator[str]:
    """Yield a line per question: what each model says, in bold where it states the fact."""
    for records in zip(*(table.records for table in tables), strict=True):
        cells = []
        for record in records:
            text = " ".join(record.answer.split()).replace("|", "/")[:120]
            if record.stated:
                text = f"**{text}**"
            cells.append(text)
        yield f"| {records[0].question}{note} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="the run with --about, and others of the same model")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.write_text(page(arguments.runs, arguments.rows), encoding="utf-8")


if __name__ == "__main__":
    main()
