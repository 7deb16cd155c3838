"""Answers of the model itself to the forget questions: sampled anew in every epoch (BS-S), or once, before training, from a
combination of several readings (ELM)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers.trainer_callback import TrainerCallback

from atwu.data.alternates import Alternates
from atwu.data.encode import EncodedRow, template_terminal
from atwu.data.pairing import PairedDataset
from atwu.data.render import without_next_turn
from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.generate import generate

LONGEST_SAMPLE = 200
"""Tokens of an own answer, as in an implementation on open-unlearning."""
OWN_SAMPLES_NAME = "own_samples.json"
_SAMPLE = 0x7361_6D70


class OwnSamples(TrainerCallback):
    """Callback that gives every forget row an own answer when training or an epoch starts, and its state.

    Args:
        trainer: a `MethodTrainer` in a single process.
        tokenizer: defines the end of an answer.
    """

    def __init__(self, trainer: Any, tokenizer: Any) -> None:
        self._trainer, self._tokenizer = trainer, tokenizer
        self._epoch, self._answers = -1, list[tuple[int, ...]]()
        self._readings: dict[str, float] = trainer.recipe.forget_component.sampled_readings()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        dataset = cast(PairedDataset, self._trainer.train_dataset)
        epoch = int(state.epoch or 0)
        once = len(self._readings) > 1
        # A resumed run goes on with the answers of its checkpoint.
        if self._epoch < 0 or (epoch != self._epoch and not once):
            self._epoch, self._answers = epoch, self._sampled(dataset, epoch)
        rows = tuple(answered(row, own) for row, own in zip(dataset.forget, self._answers, strict=True))
        dataset.alternates = Alternates(rows, (tuple(range(len(rows))),))

    def _sampled(self, dataset: PairedDataset, epoch: int) -> list[tuple[int, ...]]:
        args, size = self._trainer.args, len(self._readings)
        sets = {"forget": dataset.forget, **self._trainer.rows.prompted}
        prompts_of_rows = [
            [sets[name][row].prompt_ids for name in self._readings] for row in range(len(dataset.forget))
        ]
        caps = [max(1, min(LONGEST_SAMPLE, args.max_length - max(map(len, prompts)))) for prompts in prompts_of_rows]
        draws = (np.random.default_rng([_SAMPLE, args.rows_seed, epoch, row]) for row in range(len(prompts_of_rows)))
        seeds = [int(draw.integers(2**63)) for draw in draws]
        with self._trainer.accelerator.autocast():
            answers = generate(
                self._trainer.loaded.model,
                self._tokenizer,
                [prompt for prompts in prompts_of_rows for prompt in prompts],
                max_new_tokens=[cap for cap in caps for _ in range(size)],
                temperature=1.0,
                noise_seeds=[seed for seed in seeds for _ in range(size)],
                factors=tuple(self._readings.values()),
                progress=not args.disable_tqdm,
            )[::size]
        terminal = template_terminal(self._tokenizer)
        end = self._tokenizer.eos_token_id if terminal is None else terminal
        cut = [up_to_next_turn(own, self._tokenizer) for own in answers]
        return [own if len(own) == cap else (*own, end) for own, cap in zip(cut, caps, strict=True)]

    def save(self, folder: str) -> None:
        state = {"epoch": self._epoch, "answers": self._answers}
        (Path(folder) / OWN_SAMPLES_NAME).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def load(self, folder: str) -> None:
        state = json.loads((Path(folder) / OWN_SAMPLES_NAME).read_text(encoding="utf-8"))
        self._epoch, self._answers = state["epoch"], [tuple(own) for own in state["answers"]]


def up_to_next_turn(answer: tuple[int, ...], tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens of an answer before the next turn that the model invents (`without_next_turn`)."""
    whole = tokenizer.decode(answer)
    if (text := without_next_turn(whole, tokenizer)) == whole:
        return answer
    size = len(answer)
    while not text.rstrip().startswith(tokenizer.decode(answer[:size])):
        size -= 1
    return answer[:size]


def answered(row: EncodedRow, answer: tuple[int, ...]) -> EncodedRow:
    """Return the question of a row with another answer, given as tokens."""
    prompt, size = row.prompt_ids, len(row.prompt_ids) + len(answer)
    return dataclasses.replace(
        row,
        input_ids=(*prompt, *answer),
        labels=(*[IGNORE_INDEX] * len(prompt), *answer),
        token_labels=None,
        answer_offsets=(None,) * size,
    )
