"""All rows of an unlearning run, as its method needs them.

Some losses read answers of the model itself to the forget questions (`OwnSamples`): sampled anew in every epoch (BS-S), or
once, before training, from a combination of several readings (ELM).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers.trainer_callback import TrainerCallback

from atwu.data.alternates import Alternates, prompted_rows
from atwu.data.encode import EncodedRow, Encoder, template_terminal
from atwu.data.pairing import PairedDataset
from atwu.data.question_forms import FORMS, PLAIN_FORMS, UNMEASURED, read_forms
from atwu.data.render import without_next_turn
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.data.text_similarity import closest_rows
from atwu.methods.component_inputs import AnswerRows
from atwu.methods.recipe import Recipe
from atwu.modeling.generate import generate
from atwu.training.config import UnlearnConfig
from atwu.training.row_sets import (
    RowSet,
    RowsInput,
    check_no_overlap,
    count_all_positions,
    encode_dataset,
    question_end,
    with_more,
    with_waiting,
    without_labels,
    without_openings,
)


@dataclass(frozen=True, slots=True)
class UnlearningRows:
    forget: RowSet
    retain: RowSet | None
    """Also present if only the weighting uses it."""
    alternates: Alternates | None
    """Alternate answers to the forget questions; None if no loss uses them."""
    closest: Sequence[Sequence[int]] | None = None
    """For each forget row, its closest retain rows; None if they are drawn at random only."""
    retain_alternates: Alternates | None = None
    """Alternate answers to the retain questions; None if the retain loss uses none."""
    prompted: Mapping[str, Sequence[EncodedRow]] = field(default_factory=dict)
    """Forget rows behind each prompt that only the teacher of a loss reads, by name."""
    refused: Sequence[EncodedRow] | None = None
    """Questions that the model refuses, of which the last token is counted; None if no loss reads them."""
    asked: Sequence[EncodedRow] | None = None
    """The forget questions, of which the last token is counted; None without `refused`."""

    @property
    def sets(self) -> dict[str, RowSet]:
        if self.retain is None:
            return {"forget": self.forget}
        return {"forget": self.forget, "retain": self.retain}

    @property
    def forms(self) -> dict[str, Sequence[str]] | None:
        """Set -> the form of each row; None without forms."""
        if self.forget.forms is None:
            return None
        return {name: rows.forms for name, rows in self.sets.items() if rows.forms is not None}

    @property
    def encoded(self) -> dict[str, Sequence[EncodedRow]]:
        """Encoded rows of all sets that a step may draw from, by name."""
        encoded: dict[str, Sequence[EncodedRow]] = {name: rows.rows for name, rows in self.sets.items()}
        if self.alternates is None:
            return encoded
        return {**encoded, "alternate": self.alternates.rows}


def unlearning_rows(
    forget: RowsInput, retain: RowsInput | None, config: UnlearnConfig, *, tokenizer: Any
) -> UnlearningRows:
    """Check and encode the rows of a run, with labels, alternates and whatever else its recipe needs.

    Args:
        retain: retain rows; ignored if neither the recipe nor `clean_change` needs them.
    """
    recipe = config.recipe()
    if retain is None and recipe.reads_retain:
        instead = ""
        if recipe.retain_component is not None:
            instead = " or set retain_loss='none'"
        raise ValueError(f"method {recipe.name!r} needs a retain_dataset; pass one{instead}.")
    if retain is None and config.clean_change:
        raise ValueError("clean_change reads retain rows; pass a retain_dataset, or leave it out.")
    longest = config.max_length
    if any(recipe.all_positions.values()):
        longest -= 1  # room for the token that `count_all_positions` appends
    encoding: dict[str, Any] = {"max_length": longest, "system": config.system, "forms": _forms(config, recipe)}
    forget_set = _forget_rows(forget, config, recipe, tokenizer, encoding)
    retain_set = None
    if retain is not None and (recipe.reads_retain or config.clean_change):
        forms = encoding["forms"]
        if config.forget_leaks:
            # A waiting row may be trained on later; it is then paired with retain rows of its own form.
            forms += _waiting_forms(config, recipe)
        retain_set = _retain_rows(retain, forget_set, config, recipe, tokenizer, {**encoding, "forms": forms})
    closest = None
    if retain_set is not None and config.pairing == "closest":
        closest = _closest(forget_set, retain_set)
    refused = asked = None
    questions = recipe.forget_component.refused_questions()
    if questions:
        encoder = Encoder(tokenizer, max_length=longest, system=config.system)
        refused = [question_end(encoder.encode(Example.from_qa(question, "-"))) for question in questions]
        asked = [question_end(row) for row in forget_set.rows]
        for number, row in enumerate(asked, start=1):
            if len(row.input_ids) < 2:
                raise ValueError(
                    f"forget set, row {number}: a plain text row has no question to redirect; use another forget loss."
                )
    # Only now: from here on the labels no longer say where the question ends and the answer begins.
    if "forget" in recipe.all_positions:
        forget_set = count_all_positions(forget_set, appends=recipe.all_positions["forget"])
    if retain_set is not None and "retain" in recipe.all_positions:
        retain_set = count_all_positions(retain_set, appends=recipe.all_positions["retain"])
    prompted = {
        name: prompted_rows(forget_set.rows, forget_set.examples, tokenizer, prompt=prompt, system=config.system)
        for name, prompt in recipe.forget_component.teacher_prompts().items()
    }
    draws: dict[str, Any] = {
        "tokenizer": tokenizer,
        "seed": config.seed,
        "max_length": longest,
        "system": config.system,
    }
    other_answers = retain_alternates = None
    if recipe.answering is not None:
        epochs = config.planned_epochs(len(forget_set.rows) - forget_set.waiting)
        answered = AnswerRows(
            forget_set.examples, what="forget", epochs=epochs, plain_text=forget_set.plain_text, **draws
        )
        other_answers = recipe.answering.other_answers(answered)
    if retain_set is not None and recipe.retain_component is not None and recipe.retain_component.reads_alternates:
        answered = AnswerRows(retain_set.examples, what="retain", epochs=1, **draws)
        retain_alternates = recipe.retain_component.other_answers(answered)
    return UnlearningRows(
        forget_set,
        retain_set,
        other_answers,
        closest=closest,
        retain_alternates=retain_alternates,
        prompted=prompted,
        refused=refused,
        asked=asked,
    )


def _as_written(rows: RowSet) -> Sequence[Example]:
    """Return the rows as they were given, without their forms."""
    if rows.forms is None:
        return rows.examples
    return [row for row, form in zip(rows.examples, rows.forms, strict=True) if form == "question"]


def _forms(config: UnlearnConfig, recipe: Recipe) -> tuple[str, ...]:
    """Return the forms of questions to train on, if the method can."""
    forms = read_forms(config.forms)
    if forms and recipe.prefers_as_written:
        raise ValueError(
            f"method {recipe.name!r} prefers an alternative answer to each question as written; set forms='none'."
        )
    plain = set(forms) & set(PLAIN_FORMS)
    if recipe.changes_questions and plain:
        asks = ",".join(form for form in forms if form not in PLAIN_FORMS)
        raise ValueError(
            f"method {recipe.name!r} changes questions, and the form {', '.join(sorted(plain))} has none; set forms={asks!r}."
        )
    return forms


def _waiting_forms(config: UnlearnConfig, recipe: Recipe) -> tuple[str, ...]:
    """Return the forms in which facts are asked for but not trained on."""
    trained = (*read_forms(config.forms), *UNMEASURED)
    asks = recipe.changes_questions
    return tuple(form for form in FORMS if form not in trained and not (asks and form in PLAIN_FORMS))


def _forget_rows(
    forget: RowsInput, config: UnlearnConfig, recipe: Recipe, tokenizer: Any, encoding: Mapping[str, Any]
) -> RowSet:
    """Encode the forget rows, with labels if all of them have some."""
    forget_set = encode_dataset(forget, tokenizer, what="forget", words=config.forget_words, **encoding)
    written = _as_written(forget_set)
    if config.further_forget is not None:
        forget_set = with_more(forget_set, config.further_forget, tokenizer, encoding, what="further_forget")
    if config.forget_leaks:
        if forget_set.forms is None or not written:
            raise ValueError("forget_leaks needs rows in forms, with question among them; set forms to auto.")
        forget_set = with_waiting(forget_set, written, _waiting_forms(config, recipe), tokenizer, encoding)
    missing = sum(row.token_labels is None for row in forget_set.rows)
    if missing:
        if recipe.reads_labels:
            raise ValueError(
                f"method {recipe.name!r} needs the column forget_spans; {missing} of {len(forget_set.rows)} rows of "
                f"{forget_set.source or 'the forget set'} have none. A file of words to label also works: "
                "--forget-words FILE."
            )
        # Labels of some rows only would make the logged agreement one of these rows.
        forget_set = without_labels(forget_set)
    if recipe.reads_labels and not any(any(row.token_labels or ()) for row in forget_set.rows):
        raise ValueError(f"method {recipe.name!r} cannot train: no forget row has a word in forget_spans.")
    return forget_set


def _retain_rows(
    retain: RowsInput,
    forget_set: RowSet,
    config: UnlearnConfig,
    recipe: Recipe,
    tokenizer: Any,
    encoding: Mapping[str, Any],
) -> RowSet:
    retain_set = encode_dataset(retain, tokenizer, what="retain", **encoding)
    check_no_overlap(
        _as_written(retain_set),
        _as_written(forget_set),
        source=retain_set.source or "retain set",
        why="is in the forget set, too",
    )
    if config.further_retain is not None:
        retain_set = with_more(retain_set, config.further_retain, tokenizer, encoding, what="further_retain")
    return without_labels(without_openings(retain_set))


def _closest(forget_set: RowSet, retain_set: RowSet) -> Sequence[Sequence[int]]:
    forms = None
    if forget_set.forms is not None and retain_set.forms is not None:
        forms = (forget_set.forms, retain_set.forms)
    return closest_rows(forget_set.examples, retain_set.examples, forms=forms)


# Answers of the model itself


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
            self._epoch, self._answers = epoch, self._sample(dataset, epoch)
        rows = tuple(with_own_answer(row, own) for row, own in zip(dataset.forget, self._answers, strict=True))
        dataset.alternates = Alternates(rows, (tuple(range(len(rows))),))

    def _sample(self, dataset: PairedDataset, epoch: int) -> list[tuple[int, ...]]:
        args, size = self._trainer.args, len(self._readings)
        sets = {"forget": dataset.forget, **self._trainer.rows.prompted}
        prompts_of_rows = [
            [sets[name][row].prompt_ids for name in self._readings] for row in range(len(dataset.forget))
        ]
        caps = [max(1, min(LONGEST_SAMPLE, args.max_length - max(map(len, prompts)))) for prompts in prompts_of_rows]
        # A stream for each (seed, epoch, row): an answer depends neither on its batch nor on where a run was resumed.
        draws = (np.random.default_rng([_SAMPLE, args.seed, epoch, row]) for row in range(len(prompts_of_rows)))
        seeds = [int(draw.integers(2**63)) for draw in draws]
        with self._trainer.accelerator.autocast():
            # Every row has one prompt for each reading, and gets the same answer to all of them: the first is taken.
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
        # The end that rows of the data have, too: of a turn in a chat template, else of a text.
        end = template_terminal(self._tokenizer)
        if end is None:
            end = self._tokenizer.eos_token_id
        cut = [up_to_next_turn(own, self._tokenizer) for own in answers]
        # An answer as long as its cap was cut off, so it has no end that the model could learn.
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
    text = without_next_turn(whole, tokenizer)
    if text == whole:
        return answer
    # Tokens have no places in the decoded text, so the last ones go one by one until no invented text is left.
    size = len(answer)
    while not text.rstrip().startswith(tokenizer.decode(answer[:size])):
        size -= 1
    return answer[:size]


def with_own_answer(row: EncodedRow, answer: tuple[int, ...]) -> EncodedRow:
    """Return the question of a row with another answer, given as tokens."""
    prompt, size = row.prompt_ids, len(row.prompt_ids) + len(answer)
    return dataclasses.replace(
        row,
        input_ids=(*prompt, *answer),
        labels=(*[IGNORE_INDEX] * len(prompt), *answer),
        token_labels=None,
        answer_offsets=(None,) * size,
    )
