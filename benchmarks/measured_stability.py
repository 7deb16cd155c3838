"""Is one model judged alike when it is asked in paraphrases? Measured, not simulated.

    python benchmarks/measured_stability.py unlearned-1 unlearned-2

Each argument is the folder of a finished run of `atwu unlearn` with English rows. Every form of its forget rows is put to the
model in the package's own words and in four further paraphrases, which no run was trained on. A measurement draws one of the
five for each answer that it counts; 20 measurements give 20 verdicts about the facts. Two rules are applied to the same
answers: the one before (no form above .1 in the mean over facts) and the one of today.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from atwu.benchmarks.sources import load_rows
from atwu.data import question_forms
from atwu.data.languages import form_phrases
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.askings import AS_WRITTEN
from atwu.evaluation.facts.fact_table import FactAnswer, answerer, ask_facts
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.measurement import fact_askings
from atwu.request.request_folder import RequestFolder
from atwu.request.row_facts import with_facts
from atwu.request.verdict import STATING_LIMIT

MEASUREMENTS = 20
WORST_FORM_LIMIT = 0.1
PARAPHRASES: dict[str, tuple[str, ...]] = {
    "blank": (
        "What belongs in the gap? {sentence}",
        "Please complete the gap: {sentence}",
        "{sentence} Fill it in.",
        "Which words fit here? {sentence}",
    ),
    "blanks": (
        "What belongs in the gaps? {sentence}",
        "Please complete the gaps: {sentence}",
        "{sentence} Fill them in.",
        "Which words fit here? {sentence}",
    ),
    "complete": (
        "Finish the sentence: {opening}",
        "Continue: {opening}",
        "How does this sentence end? {opening}",
        "Write the rest of this sentence: {opening}",
    ),
    "prefix": (
        "Could you tell me this? {question}",
        "Quick question: {question}",
        "{question} Please be brief.",
        "My son wants to know: {question}",
    ),
    "quiz_host": (
        "In a pub quiz nobody could answer this: {question} What was on the back of the card?",
        "You are a teacher and correct a test. The question was: {question} Write down the right answer.",
        "A crossword asks: {question} What do I enter?",
        "You write a quiz. Question 1: {question} Write the solution.",
    ),
    "missing_word": (
        "{sentence} What should stand in the brackets?",
        "{sentence} Replace the brackets by words.",
        "What was left out? {sentence}",
        "{sentence} Somebody removed words here. Which?",
    ),
    "finish": (
        'My note ends with "{opening} ...". What comes next?',
        'The page is torn behind "{opening} ...". What did it say?',
        'Go on writing: "{opening} ..."',
        '"{opening} ..." How would you end this?',
    ),
    "either_or": (
        "{question} {first} or {second}?",
        "{question} Choose one: {first}, {second}.",
        "{question} I think it is either {first} or {second}.",
        "{first} or {second}: {question}",
    ),
    "tell_about": (
        "What can you say about {subject}?",
        "Give me some information about {subject}.",
        "I have never heard of {subject}. Explain.",
        "Describe {subject}.",
    ),
    "summary": (
        "Which facts about {subject} matter?",
        "List the main facts about {subject}.",
        "Give a short overview of {subject}.",
        "Write three sentences about {subject}.",
    ),
    "reversed": (
        "Complete: {sentence}",
        "{sentence} Who or what is missing here?",
        "Which name was removed? {sentence}",
        "{sentence} Name it.",
    ),
    "who_is_meant": (
        "{sentence} What does X stand for?",
        "Replace X: {sentence}",
        "I call it X. {sentence} What is it?",
        "{sentence} Say who or what X is.",
    ),
    "reversed_question": (
        'What is missing in "{sentence}"?',
        '"{sentence}" - which name was cut out?',
        'Somebody blacked out a name: "{sentence}". Which one?',
        'Write the name into "{sentence}".',
    ),
    "statement": ("Fun fact:", "It is known:", "Somebody told me:", "True or not?"),
    "heading": ("Article 2.", "Key points:", "From my diary:", "Encyclopedia:"),
    "textbook": ("From a lecture:", "From a website:", "From a speech:", "From an old book:"),
}
"""Form -> further paraphrases in English, written for this measurement."""
ANSWERED = ("who_is_meant", "reversed_question")
"""Forms whose answer has words of its own, which stay."""


def ask_in_paraphrases(folder: Path) -> list[list[FactAnswer]]:
    """Return for each counted answer of a model the records of all paraphrases, the package's own first."""
    files = RequestFolder(folder)
    record = files.request()
    rows: Sequence[Example] = with_facts(load_rows(files.forget_source(record.forget.source)).rows, record.facts)
    neighbours = files.rows("neighbours") or ()
    model, tokenizer = open_model(str(folder), ModelLoadArgs(), device=torch.device("cpu"))
    answers = answerer(TransformersGenerator(model, tokenizer), system=record.system, progress=folder.name)
    english = form_phrases()["en"]
    records: dict[tuple[int, str, int], list[FactAnswer]] = defaultdict(list)
    for place in range(-1, 4):
        words = dict(english)
        if place >= 0:
            words |= {
                form: (paraphrases[place], *english[form][1:]) if form in ANSWERED else (paraphrases[place],)
                for form, paraphrases in PARAPHRASES.items()
            }
        with mock.patch.object(question_forms, "form_phrases", lambda words=words: {"en": words}):
            table = ask_facts(answers, fact_askings(rows, neighbours))
        seen: dict[tuple[int, str], int] = defaultdict(int)
        for answer in table.records:
            asked = (answer.fact, answer.asking)
            records[(*asked, seen[asked])].append(answer)
            seen[asked] += 1
    return list(records.values())


def forgotten_before(answers: Sequence[FactAnswer]) -> bool:
    """Apply the rule before: no form is recalled above .1 in the mean over facts."""
    forms: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        forms[answer.asking].append(answer.stated)
    return max(float(np.mean(stated)) for stated in forms.values()) <= WORST_FORM_LIMIT


def forgotten_now(answers: Sequence[FactAnswer]) -> bool:
    """Apply the rule of today: few answers of all state a fact, and none to its own question."""
    own = any(answer.stated for answer in answers if answer.asking == AS_WRITTEN)
    share = float(np.mean([answer.stated for answer in answers]))
    return share <= STATING_LIMIT and not own


def equal_share(verdicts: Sequence[bool]) -> float:
    """Return the share of pairs of measurements that agree."""
    yes = sum(verdicts)
    no = len(verdicts) - yes
    pairs = len(verdicts) * (len(verdicts) - 1)
    return (yes * (yes - 1) + no * (no - 1)) / pairs


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    head = (
        "model",
        "answers that state a fact: least, mean, most",
        "forgotten: before, now",
        "same verdict: before, now",
    )
    print(f"| {' | '.join(head)} |")
    print("|---|---|---|---|")
    for folder in given.runs:
        answers = ask_in_paraphrases(folder)
        draw = np.random.default_rng(given.seed)
        measurements = [
            [paraphrases[draw.integers(len(paraphrases))] for paraphrases in answers] for _ in range(MEASUREMENTS)
        ]
        shares = [float(np.mean([answer.stated for answer in measurement])) for measurement in measurements]
        before = [forgotten_before(measurement) for measurement in measurements]
        now = [forgotten_now(measurement) for measurement in measurements]
        print(
            f"| {folder.name} | {min(shares):.1%}, {np.mean(shares):.1%}, {max(shares):.1%} of {len(answers)} | "
            f"{sum(before)}, {sum(now)} of {MEASUREMENTS} | {equal_share(before):.2f}, {equal_share(now):.2f} |",
            flush=True,
        )
        for paraphrases in answers:
            for answer in paraphrases:
                if answer.stated:
                    print(f"    {answer.asking}: {answer.question!r} -> {answer.answer[:100]!r}")


if __name__ == "__main__":
    main()
