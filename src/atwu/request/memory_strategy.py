"""Memory strategies from full fine-tuning to 4-bit LoRA, and the choice of the first one that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from atwu.data.general_rows import general_questions
from atwu.data.schema import Example
from atwu.modeling.batches import RowLengths
from atwu.modeling.footprint import Footprint
from atwu.modeling.load import is_adapter
from atwu.request.retain_set import GENERATED_TOKENS
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.memory_estimate import Memory, longest_batch, measure_footprint, memory
from atwu.training.training_rows import RowsInput, unlearning_rows

MEMORY_MARGIN = 0.1
"""Share of the free memory that stays unused."""
MAX_ESTIMATE_ERROR = 0.15
"""Largest relative error of an estimate (docs/requests.md)."""


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
    MemoryStrategy(
        "LoRA on 4-bit weights",
        _CHECKPOINTING
        | {"lora_r": 16, "quantize": "4bit", "save_adapter": True},  # adapters cannot be merged into quantized weights
        gpu=True,
    ),
)
"""In order of preference. Activation checkpointing costs a third more time; the strategies for GPUs use it, too."""
STRATEGY_OPTIONS = ("lora_r", "quantize", "activation_checkpointing", "optim")
"""Options that a strategy sets."""


@dataclass(frozen=True, slots=True)
class StrategyEstimate:
    """The estimated memory of a strategy."""

    strategy: MemoryStrategy
    memory: Memory
    fits: bool


def possible_strategies(given: Mapping[str, Any], *, device: str, adapter: bool = False) -> tuple[MemoryStrategy, ...]:
    """Return the strategies that agree with the given options on a kind of device; an adapter folder is not quantized."""

    def agrees(strategy: MemoryStrategy) -> bool:
        if (strategy.gpu and device != "cuda") or (adapter and "quantize" in strategy.options):
            return False
        if "save_adapter" in strategy.options and not given.get("save_adapter", True):
            return False
        if "optim" in given and "optim" in strategy.options:
            return False
        switches = (name for name in STRATEGY_OPTIONS if name != "optim" and name in given)
        return all(bool(given[name]) == bool(strategy.options.get(name)) for name in switches)

    return tuple(strategy for strategy in MEMORY_STRATEGIES if agrees(strategy)) or (MemoryStrategy("as given"),)


def strategy_estimates(
    source: ModelSource,
    given: Mapping[str, Any],
    lengths: RowLengths,
    *,
    device: str,
    free: float,
    chosen: bool = True,
) -> Iterator[StrategyEstimate]:
    """Estimate the memory of each strategy, in order of preference.

    Args:
        source: the model.
        given: options of `UnlearnConfig` that were set.
        lengths: lengths of the rows of a batch.
        device: kind of device.
        free: free memory in bytes.
        chosen: estimate every strategy; else only the given options.
    """
    footprints: dict[tuple[object, ...], Footprint] = {}
    adapter = source.model is not None and is_adapter(source.model)
    for strategy in (
        possible_strategies(given, device=device, adapter=adapter) if chosen else (MemoryStrategy("as given"),)
    ):
        config = UnlearnConfig(**{**strategy.options, **given})
        key = config.lora_r, config.quantize
        if key not in footprints:
            footprints[key] = measure_footprint(source, config, lengths, device=device)
        needed = memory(footprints[key], config, device=device)
        yield StrategyEstimate(strategy, needed, needed.peak <= (1 - MEMORY_MARGIN) * free)


def first_that_fits(tried: Iterable[StrategyEstimate], *, device: str, free: float) -> StrategyEstimate:
    """Return the first strategy that fits; if none does, the smallest one, if it may fit within the estimate's error.

    Raises:
        ValueError: none fits.
    """
    too_large = []
    for each in tried:
        if each.fits:
            return each
        too_large.append(each)
    least = min(too_large, key=lambda each: each.memory.peak)
    if least.memory.peak * (1 - MAX_ESTIMATE_ERROR) <= free:
        return least
    raise ValueError(
        f"this run needs about {least.memory.peak / 1e9:.1f} GB ({least.strategy.description}), and {free / 1e9:.1f} GB "
        f"are free on {device}; give a smaller --batch-size or --max-length, or a smaller model. "
        "atwu plan shows the estimate of each item."
    )


def batch_of(forget: RowsInput, retain: RowsInput | None, config: UnlearnConfig, tokenizer: Any) -> RowLengths:
    """Return the row lengths of the largest batch; without a retain set, self-generated answers count at full length."""
    needed = "retain" in config.recipe().needs
    kept = retain if retain is not None or not needed else _longest_answers()
    return longest_batch(unlearning_rows(forget, kept if needed else None, config, tokenizer=tokenizer), config)


def _longest_answers() -> list[Example]:
    return [Example.from_qa(question, "word " * GENERATED_TOKENS) for question in general_questions("kept")]
