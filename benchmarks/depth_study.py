"""What comes back of unlearned facts after training on half of them: several unlearned models of one request side by side.

    python benchmarks/deletion_request.py rows --people 4 --output people
    atwu finetune --model smollm2 --data people/all.jsonl --epochs 8 --learning-rate 2e-4 --output people/target
    atwu unlearn --model people/target --forget people/forget.jsonl --output default
    atwu unlearn --model people/target --forget people/forget.jsonl --sam-radius 0.01 --output sam
    python benchmarks/depth_study.py default sam --strangers people/strangers.jsonl

The first run is what the others are compared with. A fact comes back if any of the answers to it states it; its value is the
share of the splits in which it was asked about and came back. Only facts count that the original model states. The last line is
the zero: what training on half of the facts about strangers, of whom the model never heard, makes it state of the other half.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from atwu.benchmarks.sources import load_rows
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import form_askings, split_facts
from atwu.evaluation.facts.fact_table import AS_SAVED, FactTable, answerer, ask_facts
from atwu.evaluation.facts.model_states import fine_tuned
from atwu.evaluation.intervals import Resampler
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.request.evidence_states import STEPS
from atwu.request.finished_request import FinishedRequest
from atwu.request.goal_evaluations import read_history
from atwu.request.measurement import STATE_FORMS
from atwu.request.request_folder import RequestFolder
from atwu.request.verdict import read_request_verdict

FactShares = Mapping[int, float]
"""Fact -> share of the splits in which it came out."""


class Asker:
    """Asks one model for facts, as saved and after training on some of them."""

    def __init__(self, request: FinishedRequest, *, original: bool = False) -> None:
        self.request = request
        self.model, self.tokenizer = request.open_original() if original else request.model
        self.came_back: list[str] = []
        """Every answer that states a fact after training, to be read."""

    def ask(self, rows: Sequence[Example], facts: Sequence[int]) -> FactTable:
        encoding = self.request.row_encoding
        askings = [asking for asking in form_askings(rows, forms=STATE_FORMS) if asking.fact in facts]
        answers = answerer(TransformersGenerator(self.model, self.tokenizer), system=encoding.system)
        return ask_facts(answers, askings)

    def shares_after(self, rows: Sequence[Example], steps: int, splits: int) -> FactShares:
        """Return how often each fact comes out after steps on half of the facts, over splits that ask about it."""
        if not steps:
            return dict.fromkeys(range(len(rows)), 0.0) | dict.fromkeys(stated(self.ask(rows, range(len(rows)))), 1.0)
        encoding = self.request.row_encoding
        encoder = Encoder(self.tokenizer, max_length=encoding.max_length, system=encoding.system)
        outcomes: dict[int, list[bool]] = {}
        for seed in range(splits):
            shown, asked = split_facts(rows, seed=seed)
            encoded = encoder.encode_rows([rows[place] for place in shown], what="fine-tuning rows").rows
            with fine_tuned(self.model, encoded, steps):
                table = self.ask(rows, asked)
            for record in table.stating:
                self.came_back.append(f"split {seed}, {steps} steps: {record.question!r} -> {record.answer!r}")
            for fact in asked:
                outcomes.setdefault(fact, []).append(fact in stated(table))
        return {fact: float(np.mean(values)) for fact, values in outcomes.items()}


def stated(table: FactTable) -> set[int]:
    return {record.fact for record in table.stating}


def mean(shares: FactShares, facts: Sequence[int]) -> str:
    """Format the mean over those facts that have a share, with its interval over facts and their number."""
    values = [shares[fact] for fact in facts if fact in shares]
    return f"{formatted(values, (0.0, 1.0))} of {len(values)}"


def formatted(values: Sequence[float], bounds: tuple[float, float]) -> str:
    estimate = Resampler([str(place) for place in range(len(values))]).mean(values)
    low, high = estimate.bounded(bounds).interval() or (float("nan"), float("nan"))
    return f"{estimate.value:.2f} [{low:.2f}, {high:.2f}]"


def difference(shares: FactShares, others: FactShares, facts: Sequence[int]) -> str:
    both = [fact for fact in facts if fact in shares and fact in others]
    return formatted([shares[fact] - others[fact] for fact in both], (-1.0, 1.0))


def cost(run: Path) -> str:
    """Return how many answers about neighbours are kept, the growth of the retain loss, the steps and the verdict."""
    files = RequestFolder(run)
    before = files.answers("before")
    after = files.answers("after").select(states=(AS_SAVED,)).like(before)
    counts = [answers.select(set=NEIGHBOURS).count() for answers in (before, after)]
    kept = " -> ".join(str(count.answers_stating) for count in counts)
    history = read_history(files.history)
    steps = json.loads((run / "run.json").read_text(encoding="utf-8"))["steps"]
    return (
        f"{kept} of {counts[0].answers} | {history.retain_loss_increase:+.3f} | {steps} "
        f"| {read_request_verdict(run).outcome}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="runs of atwu unlearn on the same rows, first the default")
    parser.add_argument("--splits", type=int, default=3, help="how often the facts are halved")
    parser.add_argument(
        "--strangers", required=True, help="rows of the same kind about people of whom the model never heard"
    )
    options = parser.parse_args()
    first = FinishedRequest(options.runs[0])
    rows = first.sets[FORGET]
    known = sorted(stated(Asker(first, original=True).ask(rows, range(len(rows)))))
    print(f"{len(known)} of {len(rows)} facts are stated by the original model; {options.splits} splits\n")
    titles = ["as saved", *(f"after {steps} steps" for steps in STEPS), "neighbours", "retain loss", "steps", "verdict"]
    print(f"| run | {' | '.join(titles)} |\n|---|{'---|' * len(titles)}", flush=True)
    strangers = load_rows(options.strangers).rows
    default: list[FactShares] = []
    came_back: list[str] = []
    for run in options.runs:
        asker = Asker(FinishedRequest(run))
        shares = [asker.shares_after(rows, steps, options.splits) for steps in (0, *STEPS)]
        print(f"| {run.name} | {' | '.join(mean(share, known) for share in shares)} | {cost(run)} |", flush=True)
        came_back += [f"{run.name}, {line}" for line in asker.came_back]
        if run is options.runs[0]:
            default = shares
        else:
            pairs = zip(shares, default, strict=True)
            columns = " | ".join(difference(share, other, known) for share, other in pairs)
            print(f"| {run.name} minus {options.runs[0].name} | {columns} | | | | |", flush=True)
    asker = Asker(first)
    shares = [asker.shares_after(strangers, steps, options.splits) for steps in (0, *STEPS)]
    print(f"| strangers | {' | '.join(mean(share, range(len(strangers))) for share in shares)} | | | | |", flush=True)
    came_back += [f"strangers, {line}" for line in asker.came_back]
    print("\nAnswers that state a fact again:", *came_back, sep="\n  ")


if __name__ == "__main__":
    main()
