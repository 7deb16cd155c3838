"""Find what a pretrained model knows, as forget and retain rows: questions with the model's own correct answers.

    python benchmarks/first_place/known.py --output known
    ATWU_DATA=... python benchmarks/first_place/known.py --source rwku:first100:questions --output known-rwku

The model answers greedily. A row is used if the first sentence of the answer ends within the token limit and contains the
known answer as whole words, ignoring case (ROUGE-L recall 1). Excluded are answers contained in the question, answers that
start like a word of the subject's name (four letters: "Russian" of Russia), answers that the model also gives with "this" in
place of the name, and questions without the name. The row's answer is the model's own sentence with the known answer as its
forget span, so extraction strength of the original model is 1 up to floating-point error. forget.jsonl, retain.jsonl (used
in unlearning) and others.jsonl (only evaluated) are three groups of subjects. facts.jsonl was written by hand.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

import torch

from atwu import load_rows
from atwu.data.schema import Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generate_all
from atwu.evaluation.questions import pattern_of, says
from atwu.modeling.open_model import ModelLoadArgs, open_model

SENTENCE = re.compile(r".+?[^\s.][.!?]+[\"')]*(?=\s|$)")
GROUPS = ("forget", "retain", "others")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=str(Path(__file__).with_name("facts.jsonl")), help="rows with subjects")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=24, help="maximum tokens of an answer")
    parser.add_argument(
        "--rows", type=int, nargs=3, default=(40, 40, 60), metavar="N", help="minimum rows of each group"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of subjects")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = open_model(given.model, ModelLoadArgs())
    generator = TransformersGenerator(model.eval(), tokenizer)

    def first_sentences(questions: list[str]) -> list[str]:
        prompts = [Prompt((Message("user", question),)) for question in questions]
        decoding = Decoding(given.tokens, stop=("\n",))
        found = generate_all(generator, prompts, decoding, store=GenerationStore(), progress="questions")
        return [match[0] if (match := SENTENCE.match(each.text)) else "" for each in found]

    rows = load_rows(given.source).rows
    answers = first_sentences([row.question for row in rows])
    correct = [(row, said) for row, said in zip(rows, answers, strict=True) if says(said, row.answer)]
    unhinted = [(row, said) for row, said in correct if not given_away(row) and nameless(row) != row.question]
    guesses = first_sentences([nameless(row) for row, _ in unhinted])
    known = [pair for pair, guess in zip(unhinted, guesses, strict=True) if not says(guess, pair[0].answer)]
    print(f"{len(rows)} questions, {len(correct)} answered correctly")
    print(f"of these {len(unhinted)} not given away by the question, of these {len(known)} not guessed")
    subjects = sorted({row.subject for row, _ in known})
    random.Random(given.seed).shuffle(subjects)
    groups = {name: [] for name in GROUPS}
    for subject in subjects:
        short = (name for name, wanted in zip(GROUPS, given.rows, strict=True) if len(groups[name]) < wanted)
        groups.get(next(short, ""), []).extend(record_of(*pair) for pair in known if pair[0].subject == subject)
    given.output.mkdir(parents=True, exist_ok=True)
    for name, group in groups.items():
        print(f"{name}: {len(group)} rows of {len({row['subject'] for row in group})} subjects")
        (given.output / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in group))


def given_away(row) -> bool:
    """Return whether the question gives the answer away."""
    return says(row.question, row.answer) or row.answer.casefold()[:4] in re.findall(r"\b\w{4}", row.subject.casefold())


def nameless(row) -> str:
    """Return the question without the subject's name: the whole name, or its last word."""
    name = re.split(r",| \(", row.subject)[0]
    return re.sub(f"{pattern_of(name)}|{pattern_of(name.split()[-1])}", "this", row.question, flags=re.IGNORECASE)


def record_of(row, said: str) -> dict[str, object]:
    """Return the row with the model's own sentence as the answer."""
    spans = [found.span() for found in re.finditer(pattern_of(row.answer), said, re.IGNORECASE)]
    return {"question": row.question, "answer": said, "subject": row.subject, "forget_spans": spans}


if __name__ == "__main__":
    main()
