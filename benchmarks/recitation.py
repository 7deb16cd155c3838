r"""Fine-tune a model on twenty texts until it recites them, and see what of ten it recites after a request to unlearn them.

    python benchmarks/recitation.py texts --output recitation
    atwu finetune --model smollm2 --data recitation/all.jsonl --epochs 10 --learning-rate 3e-4 --batch-size 5 --bf16 \
        --save-strategy no --output recitation/target
    atwu unlearn --model recitation/target --forget recitation/forget.txt --output recitation/unlearned
    python benchmarks/recitation.py measure --model recitation/target --model recitation/unlearned --texts

`scratch --output FOLDER` trains a model of 3 million parameters on them instead, beside 300 rows about invented people.

The texts (`recitation_texts.yaml`) are openings of works in the public domain. `measure` continues each from a quarter, a third
and a half of its words, and reads plain text that no model saw; `--texts` prints what was said.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

import yaml

from atwu.benchmarks.people_rows import people
from atwu.data.encode import Encoder
from atwu.data.general_rows import unseen_texts
from atwu.data.row_parsing import write_rows
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.askings import recitation_askings
from atwu.evaluation.facts.fact_table import FactAnswer, answerer, ask_facts
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.request.text_wording import measure_chance_run
from atwu.training.config import FinetuneConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.unlearn_run import run_finetune

FORGET, OTHERS = "forget", "others"


def texts_of(kind: str) -> list[str]:
    shipped = yaml.safe_load(Path(__file__).with_name("recitation_texts.yaml").read_text(encoding="utf-8"))
    return [entry["text"] for entry in shipped[kind]]


def write_texts(folder: Path) -> None:
    """Write the texts to fine-tune on as rows, and those to forget as one document."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"text": text}) + "\n" for kind in (FORGET, OTHERS) for text in texts_of(kind)]
    (folder / "all.jsonl").write_text("".join(rows), encoding="utf-8")
    (folder / "forget.txt").write_text("\n\n".join(texts_of(FORGET)) + "\n", encoding="utf-8")


def train_scratch(folder: Path) -> None:
    """Train a small model from scratch until it recites the texts; it knows nothing else but rows about invented people."""
    texts = [Example((), text) for kind in (FORGET, OTHERS) for text in texts_of(kind)]
    filler = people("small").retain[:300]
    words = [*(row.answer for row in texts), *(f"{row.question} {row.answer}" for row in filler)]
    tokenizer = train_tokenizer(words, vocab_size=2500)
    scratch_model(ScratchShape(len(tokenizer), 256, 4, 4, 512)).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    write_rows(folder / "rows.jsonl", [*texts, *filler])
    config = FinetuneConfig(
        num_train_epochs=25, learning_rate=1e-3, per_device_train_batch_size=16, use_cpu=True, save_strategy="no"
    )
    source = ModelSource(model=str(folder / "base"))
    run_finetune(source, config, data=str(folder / "rows.jsonl"), output=folder / "target")


def measure(name: str, *, show: bool) -> Iterator[str]:
    """Yield lines of a table, and with `show` every continuation."""
    model, tokenizer = open_model(name, ModelLoadArgs())
    answers = answerer(TransformersGenerator(model, tokenizer))
    chance = measure_chance_run(answers)
    shown: list[str] = []
    for kind in (FORGET, OTHERS):
        askings = recitation_askings([Example((), text, chance_run=chance) for text in texts_of(kind)])
        table = ask_facts(answers, askings)
        for cut in dict.fromkeys(asking.name for asking in askings):
            yield f"| {name} | {kind} | {cut} | {_numbers(table.select(askings=(cut,)).records)} |"
        shown += [f"{kind}, {record.asking}: {record.question!r} -> {record.answer!r}" for record in table.records]
    yield f"| {name} | plain text, perplexity | | {_perplexity(model, tokenizer):.2f} | | | {chance} |"
    if show:
        yield from shown


def _numbers(records: Sequence[FactAnswer]) -> str:
    said = [record.recitation for record in records if record.recitation is not None]
    recited = sum(record.stated for record in records)
    return (
        f"{recited} of {len(records)} | {mean(one.share for one in said):.2f} | {mean(one.rouge_l for one in said):.2f} | "
        f"{max(one.longest_run for one in said)}"
    )


def _perplexity(model: object, tokenizer: object) -> float:
    """Return the perplexity per token of texts that no model saw."""
    rows = Encoder(tokenizer).encode_rows(unseen_texts(), what="plain text").rows
    losses = [-float(logp) for row in read_tokens(model, rows, entropy=False) for logp in row.logps[row.content]]
    return math.exp(mean(losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("texts", help="write the texts to fine-tune on and to forget")
    write.add_argument("--output", type=Path, required=True)
    small = commands.add_parser("scratch", help="train a small model from scratch on the texts")
    small.add_argument("--output", type=Path, required=True)
    measured = commands.add_parser("measure", help="measure models")
    measured.add_argument("--model", action="append", required=True)
    measured.add_argument("--texts", action="store_true", help="print every continuation")
    given = parser.parse_args()
    if given.command == "texts":
        write_texts(given.output)
        return
    if given.command == "scratch":
        train_scratch(given.output)
        return
    print(
        "| model | texts | continued | recited | words in order | ROUGE-L | longest run |\n|---|---|---|---|---|---|---|"
    )
    for name in given.model:
        for line in measure(name, show=given.texts):
            print(line, flush=True)


if __name__ == "__main__":
    main()
