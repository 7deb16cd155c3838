"""Key-token recall of greedy answers by form of the question: does a forgotten fact come back when it is asked otherwise?

    python benchmarks/question_forms.py MODEL... --forget examples/france.jsonl --neighbours examples/japan.jsonl ...

Prints a line per model and set with the recall of every form, the mean over forms, and the fluency of the answers: nats per
token of the first model at them, and the share of repeated 4-grams.
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
from atwu.data.question_forms import FORMS, key_text, question_forms
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, generate_all
from atwu.evaluation.metrics.key_tokens import key_token_recall, key_token_spans
from atwu.evaluation.questions.prompts import question_prompt
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.open_model import ModelLoadArgs, open_model


def forms_of(rows: Sequence[Example]) -> dict[str, list[tuple[Example, Example]]]:
    """Form -> pairs of a row in that form and a row whose answer is the text to look for in the reply."""
    keys = [key_text(row.answer, key_token_spans(row)) for row in rows]
    measured = tuple(name for name in FORMS if name != "yes_no")  # it says the key itself
    found: dict[str, list[tuple[Example, Example]]] = {name: [] for name in measured}
    for index, row in enumerate(rows):
        others = keys[index + 1 :] + keys[:index]
        for name, form in question_forms(row, key_token_spans(row), forms=measured, distractors=others).items():
            wanted = str(row.subject) if name == "reversed" else keys[index]
            found[name].append((form, Example((), wanted, forget_spans=((0, len(wanted)),))))
    return {name: forms for name, forms in found.items() if forms}


def answers(model: Any, tokenizer: Any, rows: Sequence[Example]) -> list[str]:
    """Greedy answers of at most 48 tokens."""
    generator = TransformersGenerator(model, tokenizer)
    prompts = [question_prompt(row, None) for row in rows]
    return [each.text for each in generate_all(generator, prompts, Decoding(max_new_tokens=48))]


def repeated(text: str) -> float:
    """Share of 4-grams of words that came before in the text."""
    words = text.lower().split()
    grams = [tuple(words[start : start + 4]) for start in range(len(words) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def main() -> None:
    """Measure and print."""
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
            recalls, said = {}, []
            for form, forms in forms_of(rows).items():
                found = answers(model, tokenizer, [row for row, _ in forms])
                scores = [key_token_recall(wanted, text) or 0.0 for (_, wanted), text in zip(forms, found, strict=True)]
                recalls[form] = float(np.mean(scores))
                said += [(form, row.question, text) for (row, _), text in zip(forms, found, strict=True)]
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
                "repeated": float(np.mean([repeated(text) for *_, text in said])),
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
