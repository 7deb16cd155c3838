"""Does `atwu unlearn --about NAME` forget what somebody would have written as rows, and what only leads back to the name?

    python benchmarks/about_rows.py unlearned --rows examples/egypt.jsonl --output benchmarks/results/about.md

Hand-written rows, which the run never saw, are asked of the original and of the unlearned model in all ways of the verdict; so
are the run's questions about the answers, which were kept from training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from atwu.benchmarks.sources import load_rows
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import AS_WRITTEN, CHAINED, chained_askings
from atwu.evaluation.facts.fact_table import FactCount, FactTable, answerer, ask_facts
from atwu.evaluation.generations import GenerationStore
from atwu.request.finished_request import FinishedRequest
from atwu.request.measurement import fact_askings
from atwu.request.row_facts import ModelReader, mark_facts
from atwu.request.verdict import read_request_verdict


def counted(count: FactCount) -> str:
    return f"{count.facts_stated} of {count.facts} facts, {count.answers_stating} of {count.answers} answers"


def line(name: str, before: FactTable, after: FactTable) -> str:
    return f"| {name} | {counted(before.count())} | {counted(after.count())} |"


def page(run: Path, rows_file: Path) -> str:
    finished = FinishedRequest(run, device="cpu")
    models = {"before": finished.open_original(), "after": finished.model}
    original = TransformersGenerator(*models["before"])
    reader = ModelReader(original, system=finished.reading.system, max_length=finished.reading.max_length)
    rows = mark_facts(load_rows(rows_file).rows, reader)
    chained = chained_askings(finished.sets[FORGET], finished.sets[CHAINED])
    said: dict[str, FactTable] = {}
    led_back: dict[str, FactTable] = {}
    for name, model in models.items():
        answers = answerer(TransformersGenerator(*model), store=GenerationStore(), progress=name)
        said[name] = ask_facts(answers, fact_askings(rows))
        led_back[name] = ask_facts(answers, chained)
    verdict = read_request_verdict(finished.folder.run)
    own = {name: table.select(askings=(AS_WRITTEN,)) for name, table in said.items()}
    lines = [
        f"`{finished.request.command}`",
        "",
        f"Verdict: **{verdict.outcome}**. {verdict.reason}",
        "",
        "| stated | original model | unlearned model |",
        "|---|---|---|",
        *(
            f"| {state.name}: rows of the run | {counted(state.before)} | {counted(state.after)} |"
            for state in verdict.states
        ),
        line(f"{rows_file.name}, all ways of asking", said["before"], said["after"]),
        line(f"{rows_file.name}, own question", own["before"], own["after"]),
        line("questions about the answers", led_back["before"], led_back["after"]),
        "",
        *(f"- {criterion.sentence}" for criterion in verdict.criteria),
        "",
        "| question | original model | unlearned model |",
        "|---|---|---|",
    ]
    for was, now in (*zip(own["before"].records, own["after"].records, strict=True),):
        lines.append(f"| {was.question} | {shown(was.answer)} | {shown(now.answer)} |")
    for was, now in (*zip(led_back["before"].records, led_back["after"].records, strict=True),):
        lines.append(f"| {was.question} (leads back) | {shown(was.answer)} | {shown(now.answer)} |")
    return "\n".join(lines) + "\n"


def shown(answer: str) -> str:
    return " ".join(answer.split()).replace("|", "/")[:120]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.write_text(page(arguments.run, arguments.rows), encoding="utf-8")


if __name__ == "__main__":
    main()
