r"""Where the time of `atwu unlearn` goes: sums the samples of py-spy by part of a request.

    pip install py-spy
    py-spy record --format raw --rate 2 --output samples.txt -- \
        atwu unlearn --model smollm2 --forget examples/france.jsonl --output out
    python benchmarks/request_time.py samples.txt
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

PARTS = {
    "optimizer steps": ("training_step",),
    "greedy answers at checks": ("find_leak",),
    "evaluations during training": ("_evaluate",),
    "looking for the neighbour set": ("find_neighbours",),
    "measuring the original model": ("_ask_original",),
    "measuring the unlearned model": ("_measure_and_decide",),
    "answers to related questions": ("related_rows",),
    "answers to general questions": ("build_retain", "general_answers"),
    "self-generated answers to forms": ("self_generated_forget_rows", "self_generated_retain_rows"),
    "the original model's distributions": ("compute_reference",),
    "the rest of training": ("_inner_training_loop",),
}
"""Part -> functions that belong to it; the first match counts."""
REST = "imports, loading and saving"


def part_of(stack: str) -> str:
    """Return the part of a request that a sampled stack belongs to."""
    functions = {frame.partition(" ")[0].rpartition(".")[2] for frame in stack.split(";")}
    return next((part for part, names in PARTS.items() if functions.intersection(names)), REST)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("samples", type=Path, nargs="+")
    parser.add_argument("--rate", type=float, default=2.0, help="Samples per second.")
    given = parser.parse_args()
    for file in given.samples:
        counts = Counter[str]()
        for line in file.read_text(encoding="utf-8").splitlines():
            stack, _, count = line.rpartition(" ")
            counts[part_of(stack)] += int(count)
        print(f"{file}: {counts.total() / given.rate:.0f} s")
        for part in (*PARTS, REST):
            print(f"{counts[part] / given.rate:8.0f} s {counts[part] / counts.total():4.0%}  {part}")


if __name__ == "__main__":
    main()
