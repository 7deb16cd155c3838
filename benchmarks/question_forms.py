"""Key-token recall of greedy answers by form of the question: is a forgotten fact still recalled in another form?

    python benchmarks/question_forms.py MODEL... --forget examples/france.jsonl --neighbours examples/japan.jsonl ...

Prints per model and set the recall of every form, the mean over forms, and the fluency of the answers: surprisal under the
first model in nats per token, and the share of repeated 4-grams.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atwu.benchmarks.sources import load_rows
from atwu.data.encode import Encoder
from atwu.data.form_rows import rows_in_forms
from atwu.data.question_forms import FORMS, UNMEASURED, FormRow
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.askings import form_prompt
from atwu.evaluation.facts.readable import repeated_ngrams
from atwu.evaluation.generations import Decoding, generate_all
from atwu.evaluation.metrics.recall_by_form import form_recall
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.open_model import ModelLoadArgs, open_model


def answers(model: Any, tokenizer: Any, rows: Sequence[FormRow]) -> list[str]:
    """Greedy answers of at most 48 tokens."""
    generator = TransformersGenerator(model, tokenizer)
    prompts = [form_prompt(each) for each in rows]
    return [each.text for each in generate_all(generator, prompts, Decoding(max_new_tokens=48))]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--forget", required=True)
    parser.add_argument("--neighbours", nargs="*", default=[])
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    sets = {"forget": load_rows(given.forget).rows}
    neighbours = tuple(itertools.chain.from_iterable(load_rows(name).rows[:8] for name in given.neighbours))
    sets |= {"neighbours": neighbours} if neighbours else {}
    records, first = [], None
    for name in given.models:
        model, tokenizer = open_model(name, ModelLoadArgs(), device=torch.device("cpu"))
        first = first or (model, tokenizer)
        for what, rows in sets.items():
            said: list[tuple[str, str, str]] = []
            forms = [form for form in FORMS if form not in UNMEASURED]
            written = [row for row in rows_in_forms(rows, forms) if row.can_be_asked]
            found = answers(model, tokenizer, written)
            scores: dict[str, list[float]] = {}
            for each, text in zip(written, found, strict=True):
                scores.setdefault(each.form, []).append(form_recall(each, text))
                said.append((each.form, each.row.question, text))
            recalls = {form: float(np.mean(values)) for form, values in scores.items()}
            rows_said = [Example.from_qa(question, text) for _, question, text in said if text.strip()]
            encoded = Encoder(first[1], max_length=512, system=None).encode_rows(rows_said, what=what).rows
            surprise = -float(np.mean(np.concatenate([row.logps for row in read_tokens(first[0], encoded)])))
            record = {
                "model": name,
                "set": what,
                "recall": recalls,
                "mean": float(np.mean(list(recalls.values()))),
                "worst": max(recalls.values()),
                "surprise": surprise,
                "repeated": float(np.mean([repeated_ngrams(text) for *_, text in said])),
                "answers": said,
            }
            records.append(record)
            shown = "  ".join(f"{form} {value:.2f}" for form, value in recalls.items())
            print(
                f"{name} {what}: mean {record['mean']:.3f}  surprise {surprise:.2f}  repeated {record['repeated']:.2f}"
            )
            print(f"    {shown}", flush=True)
    if given.output:
        given.output.write_text(json.dumps(records, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
