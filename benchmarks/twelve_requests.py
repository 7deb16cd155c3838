"""Run twelve deletion requests without options and ask the models about them in words of no form.

    python benchmarks/deletion_request.py rows --output people
    atwu finetune --model smollm2 --data people/all.jsonl --epochs 8 --learning-rate 2e-4 --bf16 --output people/target
    python benchmarks/twelve_requests.py run --people people --output twelve
    python benchmarks/twelve_requests.py table --people people --output twelve
    python benchmarks/twelve_requests.py ask --people people --output twelve

Six requests are about what SmolLM2 knows: three files of `examples/`, and three that were never used while the default was
chosen. Six are about one person of the forty each, every seventh. `ask` counts answers to questions of
`twelve_requests.yaml` (subjects) and of `deletion_request.py` (people) before and after, and prints them all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from deletion_request import ASKED

from atwu.data.matching import states
from atwu.data.schema import Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import AS_WRITTEN
from atwu.evaluation.facts.fact_table import AS_SAVED
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generate_all
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.goal_evaluations import read_history
from atwu.request.request_folder import RequestFolder
from atwu.request.verdict import read_request_verdict

HERE = Path(__file__).parent
EXAMPLES = ("france", "japan", "einstein")
COVERAGE_ROWS = ("darwin", "oxygen")
PERSON_STEP = 7
"""Of forty people, every seventh is one request: six in all."""


def write_forget_files(people: Path, output: Path) -> list[tuple[str, str, Path]]:
    """Write a forget file per request; return (name, model, file) of each."""
    output.mkdir(parents=True, exist_ok=True)
    coverage = yaml.safe_load((HERE / "ask_coverage_rows.yaml").read_text(encoding="utf-8"))
    requests = [(name, "smollm2", HERE.parent / "examples" / f"{name}.jsonl") for name in EXAMPLES]
    germany = yaml.safe_load((HERE / "twelve_requests.yaml").read_text(encoding="utf-8"))["germany"]["rows"]
    rows = [{"question": question, "answer": answer, "subject": subject} for question, answer, subject in germany]
    requests.append(("germany", "smollm2", write_rows(output / "germany.jsonl", rows)))
    for name in COVERAGE_ROWS:
        subject = coverage[name]["subject"]
        rows = [
            {"question": question, "answer": answer, "subject": subject} for question, answer in coverage[name]["rows"]
        ]
        requests.append((name, "smollm2", write_rows(output / f"{name}.jsonl", rows)))
    everyone = read_rows(people / "all.jsonl")
    names = list(dict.fromkeys(row["subject"] for row in everyone))
    for person in names[::PERSON_STEP]:
        short = person.split()[0].lower()
        rows = [row for row in everyone if row["subject"] == person]
        requests.append((short, str(people / "target"), write_rows(output / f"{short}.jsonl", rows)))
    return requests


def read_rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run(people: Path, output: Path) -> None:
    """Unlearn each request into a folder of its name; finished ones are kept."""
    for name, model, forget in write_forget_files(people, output):
        if not (output / f"out-{name}" / "verdict.json").exists():
            command = [sys.executable, "-m", "atwu", "unlearn", "--model", model, "--forget", str(forget)]
            subprocess.run([*command, "--output", str(output / f"out-{name}"), "--overwrite"], check=True)


def table(people: Path, output: Path) -> None:
    """Print a line for each finished request: its verdict, and what the facts and the neighbours cost."""
    print(
        "| request | verdict | steps | answers that state a fact | own question | neighbours | unreadable | retain loss |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, _, _ in write_forget_files(people, output):
        folder = output / f"out-{name}"
        if not (folder / "verdict.json").exists():
            continue
        verdict, files = read_request_verdict(folder), RequestFolder(folder)
        before = files.answers("before")
        after = files.answers("after").select(states=(AS_SAVED,)).like(before)
        history = read_history(files.history)
        cells = [name, verdict.outcome, str(json.loads((folder / "run.json").read_text())["steps"])]
        was, now = (answers.select(set=FORGET).count() for answers in (before, after))
        cells.append(f"{was.answers_stating} -> {now.answers_stating} of {now.answers}")
        was, now = (answers.select(set=FORGET, askings=(AS_WRITTEN,)).count() for answers in (before, after))
        cells.append(f"{was.facts_stated} -> {now.facts_stated} of {now.facts}")
        was, now = (answers.select(set=NEIGHBOURS).count() for answers in (before, after))
        cells.append(f"{was.answers_stating} -> {now.answers_stating} of {now.answers} ({now.facts})")
        was_unreadable, unreadable = (sum(record.unreadable for record in table.records) for table in (before, after))
        cells.append(f"{was_unreadable} -> {unreadable} of {len(after.records)}")
        cells.append(f"{history.retain_loss_increase:+.3f}")
        print(f"| {' | '.join(cells)} |")


def questions_of(name: str, people: Path) -> list[tuple[str, str, str]]:
    """Return (group, question, words that state the answer) of a request."""
    subjects = yaml.safe_load((HERE / "twelve_requests.yaml").read_text(encoding="utf-8"))
    if name in subjects:
        return [(group, question, key) for group in ("facts", "others") for question, key in subjects[name][group]]
    asked = []
    for row in read_rows(people / "all.jsonl"):
        group = "others"
        if row["subject"].split()[0].lower() == name:
            group = "facts"
        questions = [text.format(name=row["subject"]) for text in ASKED[row["fact"]]]
        asked += [(group, question, row["key"]) for question in questions]
    return asked


def answer(model: str, questions: Sequence[str]) -> list[str]:
    """Return the greedy answers of a model, 40 tokens at most."""
    loaded, tokenizer = open_model(model, ModelLoadArgs())
    prompts = [Prompt((Message("user", question),)) for question in questions]
    generator = TransformersGenerator(loaded.eval(), tokenizer)
    answers = generate_all(generator, prompts, Decoding(max_new_tokens=40), store=GenerationStore(), progress=model)
    return [generated.answer for generated in answers]


def ask(people: Path, output: Path) -> None:
    """Ask the original and the unlearned model of each finished request the same questions and print what they say."""
    known: dict[tuple[str, str], str] = {}
    for name, model, _ in write_forget_files(people, output):
        if not (output / f"out-{name}" / "verdict.json").exists():
            continue
        asked = questions_of(name, people)
        new = list(dict.fromkeys(question for _, question, _ in asked if (model, question) not in known))
        known.update(zip(((model, question) for question in new), answer(model, new), strict=True))
        after = answer(str(output / f"out-{name}"), [question for _, question, _ in asked])
        counts = {group: [0, 0, 0] for group in ("facts", "others")}
        print(f"\n{name}")
        for (group, question, key), now in zip(asked, after, strict=True):
            before = known[model, question]
            counts[group][0] += states(before, key)
            counts[group][1] += states(now, key)
            counts[group][2] += 1
            if group == "facts" or name in ("france", "japan", "germany", "einstein", "darwin", "oxygen"):
                print(f"  {group}  {question}\n    before  {before[:120]!r}\n    now     {now[:120]!r}")
        for group, (before_count, now_count, total) in counts.items():
            print(f"{name}, {group}: {before_count} -> {now_count} of {total}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table", "ask"))
    parser.add_argument("--people", type=Path, required=True, help="folder of deletion_request.py, with target inside")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    commands = {"run": run, "table": table, "ask": ask}
    commands[options.command](options.people, options.output)


if __name__ == "__main__":
    main()
