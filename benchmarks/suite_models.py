"""Ask finished models every question of a SUITE topic, as one line of results per model for `suite_table.py`.

python benchmarks/suite_models.py --data ATWU_DATA/suite --topic salem_witch_trials --out runs.jsonl default=unlearned
python benchmarks/suite_table.py runs.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from suite_scoring import load_topic, score  # noqa: E402

from atwu.data.schema import Message  # noqa: E402
from atwu.evaluation.backends import TransformersGenerator  # noqa: E402
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generate_all  # noqa: E402
from atwu.modeling.open_model import ModelLoadArgs, open_model  # noqa: E402

TOKENS = 32
"""Longest answer; those of SUITE are short, and a refusal has twelve tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL", help="name in the table, and a folder or Hub name")
    parser.add_argument("--data", required=True, help="folder of the topics")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seed", type=int, default=0, help="seed of the runs, for the table")
    parser.add_argument("--out", type=Path, required=True, help="file to append to; it contains no text of the data")
    options = parser.parse_args()
    topic = load_topic(options.topic, options.data, False)
    prompts = [Prompt((Message("user", question),)) for question in topic.questions]
    for given in options.models:
        name, _, model = given.partition("=")
        start = time.monotonic()
        network, tokenizer = open_model(model, ModelLoadArgs())
        with torch.no_grad():
            answers = generate_all(
                TransformersGenerator(network, tokenizer),
                prompts,
                Decoding(max_new_tokens=TOKENS),
                store=GenerationStore(),
                progress=name,
            )
        about = {"configuration": name, "topic": options.topic, "seed": options.seed, "part": "report", "rate": 0.0}
        found = score(about, options.topic, [each.answer for each in answers], [], [])
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        shown = " ".join(f"{key} {value:.2f}" for key, value in found["means"].items())
        print(f"{name}: {shown} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
