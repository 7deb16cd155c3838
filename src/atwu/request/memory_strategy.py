"""Ways to train that take less and less memory, and the first of them that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from atwu.benchmarks.general_rows import general_questions
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
"""Share of the free memory that is left alone."""
MAX_ESTIMATE_ERROR = 0.15
"""Most that an estimate was off (docs/requests.md)."""


@dataclass(frozen=True, slots=True)
class MemoryStrategy:
    """How to train."""

    description: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `UnlearnConfig`."""
    gpu: bool = False
    """Whether it needs bitsandbytes on a CUDA device."""


_AGAIN = {"activation_checkpointing": True}
MEMORY_STRATEGIES = (
    MemoryStrategy("all weights"),
    MemoryStrategy("all weights, recomputing", _AGAIN),
    MemoryStrategy("all weights, 8-bit AdamW", _AGAIN | {"optim": "adamw_8bit"}, gpu=True),
    MemoryStrategy("all weights, paged AdamW", _AGAIN | {"optim": "paged_adamw_8bit"}, gpu=True),
    MemoryStrategy("adapters", {"lora_r": 16}),
    MemoryStrategy("adapters, recomputing", _AGAIN | {"lora_r": 16}),
    MemoryStrategy(
        "adapters, 4-bit weights",
        _AGAIN | {"lora_r": 16, "quantize": "4bit", "save_adapter": True},  # rounded weights take no adapters
        gpu=True,
    ),
)
"""In the order in which they are preferred. Recomputing is activation checkpointing, which costs a third more time; the ways
of a GPU do it, too."""
STRATEGY_OPTIONS = ("lora_r", "quantize", "activation_checkpointing", "optim")
"""Options that a way decides."""


@dataclass(frozen=True, slots=True)
class StrategyEstimate:
    """A way, and what it takes."""

    strategy: MemoryStrategy
    memory: Memory
    fits: bool


def possible_strategies(given: Mapping[str, Any], *, device: str, adapter: bool = False) -> tuple[MemoryStrategy, ...]:
    """The ways that do what was given, on that kind of device; an adapter folder is not read in fewer bits."""

    def agrees(way: MemoryStrategy) -> bool:
        if (way.gpu and device != "cuda") or (adapter and "quantize" in way.options):
            return False
        if "save_adapter" in way.options and not given.get("save_adapter", True):
            return False
        if "optim" in given and "optim" in way.options:
            return False
        switches = (name for name in STRATEGY_OPTIONS if name != "optim" and name in given)
        return all(bool(given[name]) == bool(way.options.get(name)) for name in switches)

    return tuple(way for way in MEMORY_STRATEGIES if agrees(way)) or (MemoryStrategy("as given"),)


def strategy_estimates(
    source: ModelSource,
    given: Mapping[str, Any],
    lengths: RowLengths,
    *,
    device: str,
    free: float,
    chosen: bool = True,
) -> Iterator[StrategyEstimate]:
    """What each way takes, in the order of preference.

    Args:
        source: the model.
        given: options of `UnlearnConfig` that were set.
        lengths: of the rows of a batch.
        device: kind of device.
        free: bytes that are free there.
        chosen: whether there is a choice; else what was given is what is looked at.
    """
    looked: dict[tuple[object, ...], Footprint] = {}
    adapter = source.model is not None and is_adapter(source.model)
    for way in possible_strategies(given, device=device, adapter=adapter) if chosen else (MemoryStrategy("as given"),):
        config = UnlearnConfig(**{**way.options, **given})
        key = config.lora_r, config.quantize
        if key not in looked:
            looked[key] = measure_footprint(source, config, lengths, device=device)
        needed = memory(looked[key], config, device=device)
        yield StrategyEstimate(way, needed, needed.peak <= (1 - MEMORY_MARGIN) * free)


def first_that_fits(tried: Iterable[StrategyEstimate], *, device: str, free: float) -> StrategyEstimate:
    """The first that fits; without one, the last if it only lacks what an estimate may be off.

    Raises:
        ValueError: none fits.
    """
    without_room = []
    for each in tried:
        if each.fits:
            return each
        without_room.append(each)
    least = min(without_room, key=lambda each: each.memory.peak)
    if least.memory.peak * (1 - MAX_ESTIMATE_ERROR) <= free:
        return least
    raise ValueError(
        f"this run takes about {least.memory.peak / 1e9:.1f} GB ({least.strategy.description}), and {free / 1e9:.1f} GB are free on "
        f"{device}; give a smaller --batch-size or --max-length, or a smaller model. atwu plan shows what takes how much."
    )


def batch_of(forget: RowsInput, retain: RowsInput | None, config: UnlearnConfig, tokenizer: Any) -> RowLengths:
    """Tokens of the rows of the largest batch; without rows to keep, the model's own answers count at full length."""
    needed = "retain" in config.recipe().needs
    kept = retain if retain is not None or not needed else _own_answers()
    return longest_batch(unlearning_rows(forget, kept if needed else None, config, tokenizer=tokenizer), config)


def _own_answers() -> list[Example]:
    return [Example.from_qa(question, "word " * GENERATED_TOKENS) for question in general_questions("kept")]
