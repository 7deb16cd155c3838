"""Choose settings of an unlearning run by the rows, the model and the free memory, each with a reason."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from atwu.data.general_rows import general_questions
from atwu.data.question_forms import PLAIN_FORMS, TRAINED_FORMS
from atwu.data.schema import Example
from atwu.methods.recipe import Recipe
from atwu.modeling.batches import Layout
from atwu.modeling.device import multiplies_bfloat16
from atwu.modeling.load import is_adapter
from atwu.request.controller import MAX_EVALUATIONS
from atwu.request.retain_set import GENERATED_TOKENS
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.memory_estimate import Footprint, Memory, longest_batch, measure_footprint, memory
from atwu.training.row_sets import RowsInput
from atwu.training.training_rows import unlearning_rows

MEMORY_MARGIN = 0.1
"""Share of the free memory that stays unused."""
MAX_ESTIMATE_ERROR = 0.15
"""Largest relative error of an estimate (benchmarks/results/request-memory.md)."""
HOLES_OF_STEP, HOLES_OF_OUTPUT = 0.17, 4.7
"""Holes of a default run, in multiples of what a step computes and of an output layer that is trained; fitted to runs
(benchmarks/results/request-memory.md)."""
LENGTH_OPTIONS = ("num_train_epochs", "max_steps")
RATE_OPTION = "learning_rate"
METHOD_OPTIONS = ("method", "weighting", "forget_loss", "retain_loss", "preserve", "configuration")
"""Options of which any one, if given, leaves the method to the user."""


@dataclass(frozen=True, slots=True)
class MemoryStrategy:
    """A way to train with a certain amount of memory."""

    description: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `UnlearnConfig`."""
    gpu: bool = False
    """Whether it needs bitsandbytes on a CUDA device."""


_CHECKPOINTING = {"activation_checkpointing": True}
MEMORY_STRATEGIES = (
    MemoryStrategy("all weights"),
    MemoryStrategy("all weights, activation checkpointing", _CHECKPOINTING),
    MemoryStrategy("all weights, 8-bit AdamW", _CHECKPOINTING | {"optim": "adamw_8bit"}, gpu=True),
    MemoryStrategy("all weights, paged AdamW", _CHECKPOINTING | {"optim": "paged_adamw_8bit"}, gpu=True),
    MemoryStrategy("LoRA", {"lora_r": 16}),
    MemoryStrategy("LoRA, activation checkpointing", _CHECKPOINTING | {"lora_r": 16}),
    MemoryStrategy(  # adapters cannot be merged into quantized weights
        "LoRA on 4-bit weights",
        _CHECKPOINTING | {"lora_r": 16, "quantize": "4bit", "save_adapter": True},
        gpu=True,
    ),
)
"""In order of preference. Activation checkpointing costs a third more time; the strategies for GPUs use it, too."""
STRATEGY_OPTIONS = ("lora_r", "quantize", "activation_checkpointing", "optim")
"""Options that a strategy sets."""
AS_GIVEN = MemoryStrategy("as given")


@dataclass(frozen=True, slots=True)
class StrategyEstimate:
    """The estimated memory of a strategy."""

    strategy: MemoryStrategy
    memory: Memory
    free: float
    """Free memory of the device in bytes."""

    @property
    def fits(self) -> bool:
        """Whether it leaves `MEMORY_MARGIN` of the free memory unused."""
        return self.memory.peak <= (1 - MEMORY_MARGIN) * self.free


def possible_strategies(
    options: Mapping[str, Any], *, device: str, adapter: bool = False
) -> tuple[MemoryStrategy, ...]:
    """Return the strategies that agree with the given options on a kind of device; an adapter folder is not quantized."""

    def agrees(strategy: MemoryStrategy) -> bool:
        if (strategy.gpu and device != "cuda") or (adapter and "quantize" in strategy.options):
            return False
        if "save_adapter" in strategy.options and not options.get("save_adapter", True):
            return False
        if options.get("collapse_components") and "lora_r" in strategy.options:  # needs gradients of whole matrices
            return False
        if "optim" in options and "optim" in strategy.options:
            return False
        switches = (name for name in STRATEGY_OPTIONS if name != "optim" and name in options)
        return all(bool(options[name]) == bool(strategy.options.get(name)) for name in switches)

    return tuple(strategy for strategy in MEMORY_STRATEGIES if agrees(strategy)) or (AS_GIVEN,)


def strategy_estimates(
    source: ModelSource,
    options: Mapping[str, Any],
    batch: Layout,
    *,
    device: str,
    free: float,
    chosen: bool = True,
) -> Iterator[StrategyEstimate]:
    """Estimate the memory of each strategy, in order of preference.

    Args:
        source: the model.
        options: those of `UnlearnConfig` that were set.
        batch: the rows of a batch.
        device: kind of device.
        free: free memory in bytes.
        chosen: estimate every strategy; else only the given options.
    """
    footprints: dict[tuple[object, ...], Footprint] = {}
    adapter = source.model is not None and is_adapter(source.model)
    tried: tuple[MemoryStrategy, ...] = (AS_GIVEN,)
    if chosen:
        tried = possible_strategies(options, device=device, adapter=adapter)
    for strategy in tried:
        config = UnlearnConfig(**{**strategy.options, **options})
        key = config.lora_r, config.quantize
        if key not in footprints:
            footprints[key] = measure_footprint(source, config, batch, device=device)
        needed = memory(footprints[key], config, device=device)
        if device == "cpu" and not any(name in options for name in LENGTH_OPTIONS):
            # The controller keeps the best weights and the original ones in main memory.
            copies = needed.copies + 2 * footprints[key].trained
            holes = HOLES_OF_STEP * needed.turning + HOLES_OF_OUTPUT * footprints[key].embedding * (not config.lora_r)
            needed = dataclasses.replace(needed, copies=copies, holes=holes)
        yield StrategyEstimate(strategy, needed, free)


def first_that_fits(tried: Iterable[StrategyEstimate], *, device: str) -> StrategyEstimate:
    """Return the first strategy that fits; if none does, the smallest one, if it may fit within the estimate's error.

    Raises:
        ValueError: none fits.
    """
    too_large = []
    for estimate in tried:
        if estimate.fits:
            return estimate
        too_large.append(estimate)
    least = min(too_large, key=lambda estimate: estimate.memory.peak)
    if least.memory.peak * (1 - MAX_ESTIMATE_ERROR) <= least.free:
        return least
    raise ValueError(
        f"this run needs about {least.memory.peak / 1e9:.1f} GB ({least.strategy.description}), and "
        f"{least.free / 1e9:.1f} GB are free on {device}; give a smaller --batch-size or --max-length, or a smaller model. "
        "atwu plan shows the estimate of each item."
    )


def batch_of(
    forget: RowsInput, retain: Sequence[Example] | None, config: UnlearnConfig, tokenizer: Any, *, adds: bool
) -> Layout:
    """Return the largest batch; self-generated answers count at full length.

    Args:
        retain: given retain rows; None if all of them are self-generated.
        adds: add self-generated answers to given rows, as with a chosen method (`chooses_method`).
    """
    rows: list[Example] | None = None
    if config.recipe().reads_retain:
        rows = list(retain or ())
        if retain is None or adds:
            rows += [Example.from_qa(question, "word " * GENERATED_TOKENS) for question in general_questions("kept")]
    return longest_batch(unlearning_rows(forget, rows, config, tokenizer=tokenizer), config)


def chooses_method(options: Mapping[str, Any]) -> bool:
    """Whether the method is chosen, because no option of it was given."""
    return not is_expert_run(options) and not any(name in options for name in METHOD_OPTIONS)


@dataclass(frozen=True, slots=True)
class Choice:
    """One chosen setting."""

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        value = self.value
        if isinstance(value, float):
            value = f"{value:.2g}"
        return f"{self.name}={value}"


def is_expert_run(options: Mapping[str, Any]) -> bool:
    """Whether learning rate and length are given; then everything else keeps its documented default."""
    return RATE_OPTION in options and any(name in options for name in LENGTH_OPTIONS)


def method_choices(options: Mapping[str, Any], rows: Sequence[Example]) -> tuple[Choice, ...]:
    """Choose the method of a run and the forms it trains on, where they were not given.

    The choice is that of docs/learn/default.md: a loss that ends at improbable key tokens and holds the other words of
    the forget answers in place, on questions in several forms.

    Args:
        options: those that the user set; they stay.
        rows: forget rows.
    """
    if is_expert_run(options):
        return ()
    chosen = []
    why_key_tokens = "unlearn the words that carry the fact"
    if rows and not any(row.messages for row in rows):
        why_key_tokens = "unlearn the words that the model knows by heart, or of short texts names and numbers"
    if chooses_method(options):
        chosen = [
            Choice("method", "satga", "its loss fades for a token that has become improbable"),
            Choice("weighting", "key_tokens", why_key_tokens),
            Choice("beta", 0.5, "keeps the gradient of certain tokens"),
            Choice("preserve", "kl", "keeps the other words of forget answers as the original model has them"),
            Choice("pairing", "closest", "questions most like those of the forget rows are damaged first"),
            Choice("retain_per_forget", 2, "one of the closest and one of all"),
        ]
        if options.get("replacement", "refusal") == "refusal" and all(row.messages for row in rows):
            chosen += [
                Choice("replacement", "refusal", "says that it does not know, instead of a false claim"),
                Choice("replacement_weight", 0.3, "learned with little; more of it damages other answers"),
                Choice(
                    "retain_loss", "kl_first", "holds the first token, at which other answers would be refused, too"
                ),
                Choice("retain_weight", 2.0, "refusals spread to other questions otherwise"),
            ]
    taken = UnlearnConfig(**{**{choice.name: choice.value for choice in chosen}, **options}).recipe()
    if "forms" not in options and not taken.prefers_as_written and any(row.messages for row in rows):
        asks = ",".join(form for form in TRAINED_FORMS if form not in PLAIN_FORMS)
        forms = asks if taken.changes_questions else "auto"
        why = "also as blanks, unfinished sentences and choices, else these bring it back"
        chosen.append(Choice("forms", forms, why))
    return tuple(choice for choice in chosen if choice.name not in options)


def with_method(options: Mapping[str, Any], rows: Sequence[Example] = ()) -> dict[str, Any]:
    """Return the given options with those of the chosen method; without rows, as for questions with answers."""
    return {**{choice.name: choice.value for choice in method_choices(options, rows)}, **options}


def choose(
    options: Mapping[str, Any],
    *,
    recipe: Recipe,
    rows: int,
    hidden: int,
    self_generated_answers: bool,
    device: torch.device,
    fitted: StrategyEstimate,
    auto_memory: bool = False,
) -> tuple[Choice, ...]:
    """Choose the settings of a run that were not given.

    Args:
        options: those that the user set; they stay. With a learning rate and a length, only the retain loss for
            self-generated answers is chosen.
        recipe: the method.
        rows: number of forget rows.
        hidden: hidden size of the model.
        self_generated_answers: whether the retain rows are self-generated answers.
        device: the device.
        fitted: the memory strategy that fits there.
        auto_memory: apply this strategy even where nothing else is chosen.
    """
    length = any(name in options for name in LENGTH_OPTIONS)
    adapters = int(options.get("lora_r", fitted.strategy.options.get("lora_r", 0)))
    needed = (
        f"{fitted.strategy.description}: about {fitted.memory.peak / 1e9:.1f} GB of {fitted.free / 1e9:.1f} GB free"
    )
    ways = [Choice(name, value, needed) for name, value in ({"lora_r": 0} | dict(fitted.strategy.options)).items()]
    kept = []
    if recipe.retain_loss == "nll":
        kept = [Choice("retain_loss", "kl", "keeps the answers as they are instead of training on them")]
    if is_expert_run(options):
        alone = []
        if auto_memory:
            alone += ways
        if self_generated_answers:
            alone += kept
        return tuple(choice for choice in alone if choice.name not in options)
    batch = batch_size(options, rows)
    steps_per_epoch = math.ceil(rows / (batch * int(options.get("gradient_accumulation_steps", 1))))
    every = eval_every(steps_per_epoch)
    rate, why_rate = 5e-5 * 576 / hidden, f"initial value: 5e-5 * 576 / hidden size {hidden}"
    if adapters:
        rate, why_rate = 10 * rate, f"{why_rate}, times 10 for LoRA"
    choices = [
        *ways,
        Choice(RATE_OPTION, rate, why_rate),
        Choice("per_device_train_batch_size", batch, f"for {rows} forget rows"),
        Choice("gradient_accumulation_steps", 1, "one batch per step, as there are few rows"),
    ]
    if not length:
        until = f"upper bound; evaluated every {every} steps, ends when the rows are forgotten"
        choices += [
            Choice("max_steps", MAX_EVALUATIONS * every, until),
            Choice("lr_scheduler_type", "constant_with_warmup", "the controller adjusts the learning rate"),
            Choice("warmup_steps", 5, "the first steps of AdamW are its largest"),
            Choice("save_strategy", "steps", "a killed run resumes from a checkpoint"),
            Choice("save_steps", 5 * every, "every fifth evaluation step"),
        ]
    if multiplies_bfloat16(device) and not options.get("fp16"):
        choices.append(Choice("bf16", True, "faster on this device; weights stay float32"))
    if recipe.scores is not None and "scorer_from" not in options:
        choices.append(Choice("scorer_prior", "labels", "starts from the facts of the rows, found by evidence"))
    return tuple(choice for choice in (*choices, *kept) if choice.name not in options)


def batch_size(options: Mapping[str, Any], rows: int) -> int:
    """Return the number of forget rows in a batch."""
    return int(options.get("per_device_train_batch_size", min(8, rows)))


def eval_every(steps_per_epoch: int) -> int:
    """Return the optimizer steps between two evaluation steps: half an epoch, at least 5 and at most 25."""
    return min(25, max(5, steps_per_epoch // 2))
