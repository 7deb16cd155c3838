"""What each part of the default of `atwu unlearn` does, alone and with the others, at a fixed number of steps.

    python benchmarks/ingredients.py --forget examples/france.jsonl --output ingredients.jsonl

The six parts are the preserve loss, forms of the question (with self-generated answers to them), the choice of similar
retain rows, refusals, and more draws of the rows that are still known and of the retain rows that are damaged. Each variant is
measured as in a verdict; a line per variant, printed and appended to the file.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_callback import TrainerCallback

from atwu.benchmarks.sources import load_rows
from atwu.data.question_forms import TRAINED_FORMS
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.facts.askings import MEASURED_FORMS
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.registry import EvaluateConfig
from atwu.evaluation.unlearn_trainer import UnlearnTrainer
from atwu.modeling.device import multiplies_bfloat16
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.goal_evaluations import ControllerRows, GoalEvaluations
from atwu.request.measurement import general_answers, measured_sets
from atwu.request.neighbours import known_related_rows
from atwu.request.related_questions import related_rows
from atwu.request.retain_set import build_retain
from atwu.request.row_facts import ModelReader, mark_facts
from atwu.request.self_generated_rows import self_generated_forget_rows, self_generated_retain_rows
from atwu.training.config import UnlearnConfig

PARTS: Mapping[str, Mapping[str, Any]] = {
    "preserve": {"preserve": "kl"},
    "forms": {"forms": "auto"},
    "similar": {"pairing": "closest", "retain_per_forget": 2},
    "refusal": {
        "replacement": "refusal",
        "replacement_weight": 0.3,
        "retain_loss": "kl_first",
        "retain_weight": 2.0,
    },
    "known": {},
    "damaged": {},
}
"""Part of the default -> the options that it sets; `known` is a callback, `damaged` an attribute of the trainer."""
METRICS = ("memorization", "key_tokens", "forms", "fluency")
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    **{part: (part,) for part in PARTS},
    "all": tuple(PARTS),
    **{f"all but {part}": tuple(each for each in PARTS if each != part) for part in PARTS},
}


class PreferKnownRows(TrainerCallback):
    """Draws rows that are still known more often, as the adaptive controller does."""

    def __init__(self, every: int = 5) -> None:
        self.every = every
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure the rows every few steps."""
        if state.global_step % self.every == 0 and self.trainer is not None:
            _, rows = GoalEvaluations(self.trainer, ControllerRows((), None), 0.0).measure(state.global_step)
            self.trainer.sampler.prefer(rows.known, rows.forgotten)


def measure(model: Any, tokenizer: Any, sets: Mapping[str, Sequence[Example]]) -> dict[str, float | None]:
    """Return recall by form, gibberish, refusals, neighbours and retain probability of a model."""
    result = evaluate(
        model,
        {"forget": sets["forget"], **{name: rows for name, rows in sets.items() if name != "forget"}},
        Evaluation(metrics=METRICS, settings=EvaluateConfig(max_length=512), store=GenerationStore(), progress=False),
        tokenizer=tokenizer,
    )
    found: dict[str, float | None] = {}
    for split, names in {
        "forget": ("key_token_probability", *(f"form_{form}" for form in MEASURED_FORMS), "form_gibberish", "refusal"),
        NEIGHBOURS: ("form_question", "form_mean", "refusal"),
        "general": ("probability", "refusal"),
    }.items():
        values = result.sets.get(split, {})
        found |= {f"{split} {name}": values[name].value for name in names if name in values}
    untrained = [found.get(f"forget form_{form}") for form in MEASURED_FORMS if form not in TRAINED_FORMS]
    found["worst untrained form"] = max(value for value in untrained if value is not None)
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--forget", required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS))
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    rows = load_rows(given.forget).rows
    model, tokenizer = open_model(given.model, ModelLoadArgs(), device=torch.device("cpu"))
    generator = TransformersGenerator(model, tokenizer)
    read = ModelReader(generator, system=None, max_length=512)
    rows = mark_facts(rows, read)
    related, neighbours = related_rows(read, rows).kept, known_related_rows(read, rows)
    general, _ = build_retain(generator, rows, whole=False)
    retain = (*general, *related)
    asked: dict[str, Any] = {"forms": TRAINED_FORMS, "system": None}
    own = self_generated_forget_rows(generator, rows, **asked)
    own += self_generated_retain_rows(generator, retain, of=len(related), forget=rows, **asked)
    sets = {
        name: each
        for name, each in measured_sets(
            rows, retain, (), general_answers(generator, rows, system=None), neighbours
        ).items()
        if name in ("forget", NEIGHBOURS, "general")
    }
    lines: list[dict[str, Any]] = [{"variant": "before", **measure(model, tokenizer, sets)}]
    for name in (None, *given.only):
        if name is not None:
            options: dict[str, Any] = {"retain_loss": "kl"}
            options |= {key: value for part in VARIANTS[name] for key, value in PARTS[part].items()}
            if "forms" in VARIANTS[name]:
                options |= {choice.name: choice.value for choice in own}
            with tempfile.TemporaryDirectory() as folder:
                config = UnlearnConfig(
                    output_dir=folder,
                    method="satga",
                    weighting="key_tokens",
                    beta=0.5,
                    max_steps=given.steps,
                    learning_rate=5e-5,
                    warmup_steps=5,
                    lr_scheduler_type="constant_with_warmup",
                    per_device_train_batch_size=min(8, len(rows)),
                    save_strategy="no",
                    seed=given.seed,
                    bf16=multiplies_bfloat16(torch.device("cpu")),
                    use_cpu=True,
                    **options,
                )
                prefer = PreferKnownRows()
                trainer = UnlearnTrainer(
                    copy.deepcopy(model),
                    config,
                    forget_dataset=rows,
                    retain_dataset=retain,
                    processing_class=tokenizer,
                    callbacks=[prefer] if "known" in VARIANTS[name] else [],
                )
                prefer.trainer, trainer.draw_damaged = trainer, "damaged" in VARIANTS[name]
                trainer.train()
            after = measure(trainer.model, tokenizer, sets)
            lines.append({"variant": name, "steps": given.steps, "seed": given.seed, **after})
        with given.output.open("a", encoding="utf-8") as file:
            print(json.dumps(lines[-1]), file=file)
        print({key: value if isinstance(value, str) else round(value or 0.0, 3) for key, value in lines[-1].items()})


if __name__ == "__main__":
    main()
