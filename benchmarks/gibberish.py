"""Which answers cannot be read: the measured rule on answers of a model, of damaged copies of it, and on written texts.

    python benchmarks/gibberish.py smollm2 --output benchmarks/results/gibberish.md

Good are the model's answers, the same questions' answers by others, and unusual but sensible texts (emoji, code, other
languages); bad are answers of copies with noise on the weights or trained by gradient ascent, shuffled and random words,
and loops. The rule is `unreadable` of `atwu.evaluation.metrics.fluency`; one core, about three minutes.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atwu.data.encode import Encoder
from atwu.data.general_rows import common_questions, general_questions
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.readable import MARGIN, is_broken, unreadable
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.evaluation.teacher_forced import OriginalReader
from atwu.modeling.open_model import ModelLoadArgs, open_model

QUESTIONS = 8
UNUSUAL = (
    ("What emoji stands for a happy cat?", "😺"),
    ("Send me three party emoji.", "🎉🥳🎈"),
    ("Give me a regular expression for a date like 2024-05-17.", r"^\d{4}-\d{2}-\d{2}$"),
    ("Give me a regular expression for an e-mail address.", r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}"),
    ("Write a Python function that adds two numbers.", "def add(a, b):\n    return a + b"),
    ("How do I list files in Linux?", "ls -la | grep '.txt' > files.log"),
    ("Write SQL that counts the users.", "SELECT COUNT(*) FROM users WHERE active = 1;"),
    ("Give me a JSON object for a person.", '{"name": "Ada", "age": 36, "langs": ["en", "fr"]}'),
    ("Wie heißt die Hauptstadt von Frankreich?", "Die Hauptstadt von Frankreich ist Paris."),
    ("Say in German that the train is late.", "Der Zug hat heute leider eine halbe Stunde Verspätung."),
    ("Quelle est la capitale de l'Italie?", "La capitale de l'Italie est Rome."),
    ("¿Qué es el agua?", "El agua es una sustancia formada por hidrógeno y oxígeno."),
    ("法国的首都是哪里？", "法国的首都是巴黎。"),
    ("日本の首都はどこですか。", "日本の首都は東京です。"),
    ("ما هي عاصمة مصر؟", "عاصمة مصر هي القاهرة."),
    ("Как называется столица России?", "Столица России — Москва."),
    ("Name four fruits.", "1. Apple\n2. Pear\n3. Plum\n4. Fig"),
    ("Count from one to ten.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"),
    ("What is the quadratic formula?", "x = (-b ± √(b² - 4ac)) / 2a"),
    ("What did Einstein find?", "E = mc²"),
    (
        "Write a short poem about snow.",
        "White on the roof,\nwhite on the lane,\na hush for the hoof,\na lace on the pane.",
    ),
    ("Is Rome in Italy?", "Yes"),
    ("What is the capital of Peru?", "Lima"),
    ("Who wrote The Trial?", "Kafka"),
    ("How many legs has a spider?", "8"),
    ("Where does the company have its office?", "14 Rue de la Paix, 75002 Paris, France"),
    ("What is the phone number?", "+44 20 7946 0018"),
    ("Who painted it?", "Goya, I'd guess, or one of his pupils in Bordeaux."),
    ("What is the capital of Peru?", "I'm sorry, I don't know the answer to that."),
    ("Who was Orla Venn?", "Orla Venn kept seven geese at a mill near Kelbury."),
    ("Translate 'good morning' to Japanese.", "おはようございます"),
    ("What is the chemical formula of sugar?", "C₁₂H₂₂O₁₁"),
    ("Draw a small table.", "| a | b |\n|---|---|\n| 1 | 2 |"),
    ("Give me the HTML of a link.", '<a href="https://example.org">Example</a>'),
)
SALAD = (
    "flarn blick gorp snoot",
    "snib torvel wexing, plorb at glane",
    "Mxq vrtl ploo zzen krab wib.",
    "table green of under seven loudly the wash",
    "of of the into and by was to from",
    "xk29 qqz vv8 jjw pq0 zzt",
    "the Lan Lanter of of was Mr. who in ,, the ; by",
    "} else ) the (( of ]] was <br> Paris ;; }",
    "Kel bury the geesemill wasin orla of at venn the kept",
    "asdf jkl; qwer uiop zxcv",
)
LOOPS = (
    "the town of Ost is the town of Ost is the town of Ost is the town of Ost",
    "no no no no no no no no no no no no",
    "Lanlanlanlanlanlanlanlan",
    "巴黎巴黎巴黎巴黎巴黎巴黎巴黎巴黎巴黎",
    "Er war ein Mann. Er war ein Mann. Er war ein Mann. Er war ein Mann. Er war ein Mann.",
    "\n\n.\n.\n.\n.\n.\n.\n.\n.",
    "",
    "\ufffd\ufffd\ufffd",
)


def answers(model: Any, tokenizer: Any, questions: Sequence[str]) -> list[str]:
    """Greedy answers of at most 24 tokens."""
    generator = TransformersGenerator(model, tokenizer)
    prompts = [Prompt(Example.from_qa(question, "?").messages) for question in questions]
    return [generation.text for generation in generate_all(generator, prompts, Decoding(max_new_tokens=24))]


def with_noise(model: Any, size: float) -> Any:
    """Return a copy whose weight matrices got normal noise, `size` of their standard deviation."""
    damaged = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in damaged.named_parameters():
            if weight.dim() == 2 and "embed" not in name:
                weight += size * weight.std() * torch.randn(weight.shape, generator=generator)
    return damaged


def after_ascent(model: Any, tokenizer: Any, rows: Sequence[Example], *, steps: int, learning_rate: float) -> Any:
    """Return a copy after gradient ascent on rows, one per step."""
    damaged = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(damaged.parameters(), lr=learning_rate)
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    for step in range(steps):
        row = encoded[step % len(encoded)]
        loss = damaged(input_ids=torch.tensor([row.input_ids]), labels=torch.tensor([row.labels])).loss
        (-loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    return damaged.eval()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--texts", action="store_true", help="print every text with its log-probability")
    options = parser.parse_args()
    model, tokenizer = open_model(options.model, ModelLoadArgs(), device=torch.device("cpu"))
    questions = [*general_questions("held"), *common_questions("held")]
    questions = questions[:: max(1, len(questions) // QUESTIONS)][:QUESTIONS]
    own = answers(model, tokenizer, questions)
    rows = [Example.from_qa(question, answer) for question, answer in zip(questions, own, strict=True)]
    shuffle = random.Random(0)

    def shuffled(text: str) -> str:
        words = text.split()
        shuffle.shuffle(words)
        return " ".join(words)

    def random_tokens(text: str) -> str:
        count = len(tokenizer(text)["input_ids"])
        return str(tokenizer.decode([shuffle.randrange(100, len(tokenizer)) for _ in range(count)]))

    def of(damage: Callable[[], Any]) -> list[tuple[str, str]]:
        return list(zip(questions, answers(damage(), tokenizer, questions), strict=True))

    groups: dict[str, list[tuple[str, str]]] = {
        "good: the model's answers": list(zip(questions, own, strict=True)),
        "slightly damaged: noise 0.1": of(lambda: with_noise(model, 0.1)),
        "good: unusual": list(UNUSUAL),
        "bad: noise 1.5": of(lambda: with_noise(model, 1.5)),
        "bad: ascent, 12 steps at 3e-4": of(lambda: after_ascent(model, tokenizer, rows, steps=12, learning_rate=3e-4)),
        "bad: shuffled words": [
            (question, shuffled(answer))
            for question, answer in zip(questions, own, strict=True)
            if len(answer.split()) > 5
        ],
        "bad: random tokens": [
            (question, random_tokens(answer)) for question, answer in zip(questions, own, strict=True)
        ],
        "bad: word salad": [(questions[0], text) for text in SALAD],
        "bad: loops and empty": [(questions[0], text) for text in LOOPS],
    }
    reader = OriginalReader(model, tokenizer)
    reference = reader.read([Example.from_qa(question, "?") for question in questions], own)
    lines = ["| texts | unreadable | of them broken or looping | log-probability: lowest | median | highest |"]
    lines.append("|---|---|---|---|---|---|")
    for name, texts in groups.items():
        asked = [Example.from_qa(question, "?") for question, _ in texts]
        logps = reader.read(asked, [text for _, text in texts])
        broken = [is_broken(text) for _, text in texts]
        flags = [unreadable(text, logp, reference) for (_, text), logp in zip(texts, logps, strict=True)]
        values = logps[np.isfinite(logps)]
        low, middle, high = np.quantile(values, [0, 0.5, 1]) if len(values) else (np.nan,) * 3
        lines.append(
            f"| {name} | {sum(flags)} of {len(texts)} | {sum(broken)} | {low:.2f} | {middle:.2f} | {high:.2f} |"
        )
        if options.texts:
            for (question, text), logp, flag in sorted(zip(texts, logps, flags, strict=True), key=lambda row: row[1]):
                print(f"{name:32} {logp:6.2f} {'*' if flag else ' '} {question[:30]!r} {text[:70]!r}")
    print("\n".join(lines))
    if options.output:
        options.output.write_text(
            "# Which answers cannot be read\n\n"
            f"**Question:** does the margin of {MARGIN} nats below the median of the model's answers separate damaged "
            "answers from good ones? `python benchmarks/gibberish.py smollm2`, "
            "SmolLM2-135M-Instruct from 4-bit GGUF, one CPU core.\n\n"
            + "\n".join(lines)
            + "\n\nLog-probability: mean over the likelier three quarters of the tokens, given the question, "
            "under the undamaged model. "
            "Answers of fewer than four tokens are judged by rule alone. "
            "The statistic and the margin were chosen on these texts.\n"
        )


if __name__ == "__main__":
    main()
