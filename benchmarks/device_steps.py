"""Compare training steps on one device: build models on it, take one step per implementation, count FLOPs and memory.

`scripts/gpu_check.py` documents the implementations, what is trained and which FLOPs count.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import gc
import importlib
import json
import math
import statistics
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import step_implementations as compared

PEAK = 989e12
LLAMA = {"num_key_value_heads": 8, "num_attention_heads": 32, "vocab_size": 128_256, "max_position_embeddings": 8192}
LLAMA_SHAPES: dict[str, dict[str, Any]] = {
    "1b": LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64},
    "8b": LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "tie_word_embeddings": False},
}
TINY = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 32}
TINY |= {"num_key_value_heads": 2, "vocab_size": 512}
TRAINERS = {"grad_diff": "GradDiff", "wga": "WGA", "npo": "NPO"}

Side = tuple[str, str]
"""Method, and implementation that takes the step."""
OURS: tuple[Side, ...] = tuple((method, "atwu") for method in ("grad_diff", "wga", "npo", "atwu"))
THEIRS: tuple[Side, ...] = tuple((method, "open-unlearning") for method in TRAINERS)
EVERY = (("grad_diff", "plain"), *THEIRS, *OURS)
BATCHES, MOST_ROUNDS = 3, 10


@dataclasses.dataclass(frozen=True)
class Cell:
    """Steps that are compared with each other."""

    shape: str
    trained: str
    """`all`, `gradients`, `lora` or `lora-4bit`."""
    rows: int
    """Forget rows, and as many retain rows."""
    sides: tuple[Side, ...]
    checkpointing: bool = False
    """Activation checkpointing."""
    length: float = 1.0
    """Factor on the tokens of a row."""
    seconds: float = 8.0
    """Seconds after which no new round starts."""


class Results:
    """Records of one part, written to its file at every change."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}

    def put(self, **values: Any) -> None:
        self.found |= values
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.file)


def add_shapes(tiny: bool) -> None:
    """Register the shapes in `benchmarks/step_implementations.py`, including those with other vocabularies."""
    shapes = {f"1b-{thousands}k": LLAMA_SHAPES["1b"] | {"vocab_size": thousands * 1024} for thousands in (32, 64, 256)}
    for name, shape in (LLAMA_SHAPES | shapes).items():
        of_tiny = TINY | {"vocab_size": shape["vocab_size"] // 256} | {"tie_word_embeddings": name != "8b"}
        compared.SHAPES[name] = of_tiny if tiny else shape


def build(cell: Cell, device: str) -> Any:
    """Build a model of that shape on the device, with the cell's adapters and quantization."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings = {"tie_word_embeddings": True, "use_cache": False} | compared.SHAPES[cell.shape]
    with torch.device(device):
        model = LlamaForCausalLM._from_config(LlamaConfig(**settings), dtype=torch.bfloat16)
    model.train()
    if cell.trained == "lora-4bit":
        from atwu.modeling.quantization import quantize_model

        model = quantize_model(model, "4bit")
    if cell.trained.startswith("lora"):
        from atwu.modeling.adapters import Lora, attach

        return attach(model, Lora(16), seed=0)
    return model


def their_loss(checkout: str, method: str, model: Any, original: Any) -> Callable[[Any, Any], Any]:
    """Return `compute_loss` of open-unlearning's trainer of that method, with its default settings."""
    package, base = types.ModuleType("trainer"), types.ModuleType("trainer.unlearn.base")
    package.__path__ = [f"{checkout}/src/trainer"]
    vars(base)["UnlearnTrainer"] = object  # leaves out everything but the loss
    for module in (package, base):
        sys.modules.setdefault(module.__name__, module)
    trainer_class = getattr(importlib.import_module(f"trainer.unlearn.{method}"), TRAINERS[method])
    trainer = trainer_class.__new__(trainer_class)
    beta = {"beta": 0.1 if method == "npo" else 1.0}
    vars(trainer).update(model=model, ref_model=original, gamma=1.0, alpha=1.0, retain_loss_type="NLL", **beta)
    return lambda forget, retain: trainer.compute_loss(model, {"forget": forget, "retain": retain})


def losses_of(side: Side, model: Any, batches: list[Any], checkout: str | None, original: Any) -> Callable[[int], Any]:
    """Return functions for the loss of a batch by number, and for the work after the model's step."""
    method, who = side
    if who == "atwu":
        return compared.our_loss(model, method, "auto", batches)
    if who == "plain":
        theirs = compared.loss_of_others(model, method, who, None)
    else:
        assert checkout is not None
        theirs = their_loss(checkout, method, model, original)
    return lambda number: (theirs(*batches[number]), lambda: None)


def useful_flops(shape: dict[str, Any], batches: tuple[Any, Any], *, adapters: bool) -> tuple[int, float]:
    """Count tokens without padding, and the FLOPs of the formula in `scripts/gpu_check.py`."""
    hidden, heads, kv_heads = (shape[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    size = shape.get("head_dim", hidden // heads)
    matrices = hidden * size * (2 * heads + 2 * kv_heads) + 3 * hidden * shape["intermediate_size"]
    lengths = [int(length) for rows in batches for length in rows["attention_mask"].sum(dim=1)]
    answers = sum(int((rows["labels"] != -100).sum()) for rows in batches)
    layers, tokens = shape["num_hidden_layers"], sum(lengths)
    products = 2 * layers * matrices * tokens + 2 * shape["vocab_size"] * hidden * answers
    attention = 6 * layers * heads * size * sum(length**2 for length in lengths)
    return tokens, (2 if adapters else 3) * products + attention


def free() -> None:
    """Free unreferenced memory."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Steps:
    """The steps of one cell on one model.

    Args:
        cell: what to measure.
        model: from `build`.
        optimizer: None if only gradients are computed.
        options: the command-line options.
    """

    def __init__(self, cell: Cell, model: Any, optimizer: Any, options: argparse.Namespace) -> None:
        self.cell, self.model, self.optimizer, self.options = cell, model, optimizer, options
        rows = min(cell.rows, 2) if options.tiny else cell.rows
        setting = compared.Setting(cell.shape, options.device, "bfloat16", BATCHES, rows, None, cell.length)
        self.batches = compared.build_batches(setting)
        adapters, shape = cell.trained.startswith("lora"), compared.SHAPES[cell.shape]
        self.work = [useful_flops(shape, pair, adapters=adapters) for pair in self.batches]
        self.original: Any = None
        self.original_bytes = 0
        self.losses: dict[Side, Callable[[int], Any]] = {}

    def step(self, side: Side, number: int) -> tuple[float, float, int, bool]:
        """Return seconds of forward and backward pass and of the whole step, peak bytes, and whether the loss was
        finite."""
        import torch

        cuda = self.options.device == "cuda"
        wait: Callable[[], None] = torch.cuda.synchronize if cuda else lambda: None
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        wait()
        begin = time.perf_counter()
        loss, after = self.losses[side](number)
        loss.backward()
        wait()
        passes = time.perf_counter() - begin
        if self.optimizer is not None:
            self.optimizer.step()
        self.model.zero_grad()
        after()
        wait()
        whole = time.perf_counter() - begin
        holds_copy = side[1] == "open-unlearning" and side[0] != "grad_diff"
        peak = torch.cuda.max_memory_allocated() if cuda else 0
        return passes, whole, peak - (0 if holds_copy else self.original_bytes), math.isfinite(loss.item())

    def prepare(self) -> Iterator[tuple[Side, str | None]]:
        """Take an uncounted step of each implementation on each batch; yields the reason if one fails."""
        import torch

        for side in sorted(self.cell.sides, key=lambda side: side in THEIRS[1:]):
            reason, before = None, torch.cuda.memory_allocated() if self.options.device == "cuda" else 0
            try:
                if side in THEIRS and self.options.open_unlearning is None:
                    raise ValueError("no checkout of open-unlearning was given")
                if side in THEIRS[1:] and self.original is None:
                    self.original = copy.deepcopy(self.model).eval()
                    self.original_bytes = torch.cuda.memory_allocated() - before if before else 0
                self.losses[side] = losses_of(
                    side, self.model, self.batches, self.options.open_unlearning, self.original
                )
                for number in range(BATCHES):
                    self.step(side, number)
            except Exception as error:
                out_of_memory = isinstance(error, torch.OutOfMemoryError)
                reason = "out of memory" if out_of_memory else traceback.format_exc(limit=-4)
                self.losses.pop(side, None)
            if reason is not None:
                self.model.zero_grad()
                if not any(each in self.losses for each in THEIRS[1:]):
                    self.original, self.original_bytes = None, 0
                free()
            yield side, reason


def summary(times: list[Any], ours: list[Any] | None, work: list[tuple[int, float]], device: str) -> dict[str, Any]:
    """Summarize the steps of one implementation, relative to ours on the same batches."""
    passes, whole, peaks, finite = zip(*times, strict=True)
    rates = [work[number % BATCHES][1] / seconds for number, seconds in enumerate(whole)]
    tokens = [work[number % BATCHES][0] / seconds for number, seconds in enumerate(whole)]
    found = {
        "rounds": len(whole),
        "seconds": statistics.median(whole),
        "mean_seconds": statistics.fmean(whole),
        "forward_backward_seconds": statistics.median(passes),
        "tokens_per_second": statistics.median(tokens),
        "useful_tflops": statistics.median(rates) / 1e12,
        "share_of_peak": statistics.median(rates) / PEAK if device == "cuda" else None,
        "peak_bytes": max(peaks) or None,
        "finite": all(finite),
    }
    if ours:
        pairs = zip(whole, (each[1] for each in ours), strict=False)
        found["times_our_seconds"] = statistics.median(theirs / mine for theirs, mine in pairs)
    return found


def measure(cells: tuple[Cell, ...], results: Results, options: argparse.Namespace) -> None:
    """Take the steps of all cells and store their numbers."""
    import torch

    records: list[dict[str, Any]] = []
    held: tuple[tuple[str, str], Any, Any] | None = None
    line = "{:>8} {:>9} {:>4} {:>6} {:>9} {:>15} {:>8} {:>8} {:>8} {:>6} {:>7} {:>6}"
    heads = ("shape", "trained", "rows", "length", "method", "side", "s", "passes", "tokens/s", "peak", "GB", "x ours")
    print(line.format(*heads), flush=True)
    for cell in cells:
        if held is None or held[0] != (cell.shape, cell.trained):
            held = None
            free()
            model = build(cell, options.device)
            weights = [weight for weight in model.parameters() if weight.requires_grad]
            optimizer = None if cell.trained == "gradients" else torch.optim.AdamW(weights, lr=1e-6, fused=True)
            held = (cell.shape, cell.trained), model, optimizer
            del weights
        (_, model, optimizer), steps = held, None
        if cell.checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        else:
            model.activation_checkpointing_disable()
        steps, named = Steps(cell, model, optimizer, options), {}
        for side, reason in steps.prepare():
            about = dataclasses.asdict(cell) | {"method": side[0], "side": side[1]}
            named[side] = {name: value for name, value in about.items() if name not in ("sides", "seconds")}
            named[side] |= {"error": reason} if reason else {}
            records.append(named[side])
            results.put(records=records)
        times: dict[Side, list[Any]] = {side: [] for side in steps.losses}
        begin, number = time.perf_counter(), 0
        while times and number < (2 if options.tiny else MOST_ROUNDS):
            if number >= 2 and time.perf_counter() - begin > cell.seconds:
                break
            turn = number % len(times)
            for side in [*times][turn:] + [*times][:turn]:
                try:
                    times[side].append(steps.step(side, number % BATCHES))
                except torch.OutOfMemoryError:
                    named[side]["error"] = f"out of memory in round {number + 1}"
                    del times[side]
                if side not in times:
                    model.zero_grad()
                    free()
            number += 1
            for side, taken in times.items():
                ours = times.get((side[0], "atwu")) if side[1] != "atwu" else None
                named[side] |= summary(taken, ours, steps.work, options.device)
            results.put(records=records)
        for side, found in named.items():
            start = (cell.shape, cell.trained, cell.rows, f"{cell.length:g}", *side)
            if "seconds" not in found:
                print(*start, found["error"].strip().splitlines()[-1], flush=True)
                continue
            share, peak, ratio = (found.get(name) for name in ("share_of_peak", "peak_bytes", "times_our_seconds"))
            rest = f"{share or 0:.1%}", f"{(peak or 0) / 1e9:.2f}", "" if ratio is None else f"{ratio:.2f}"
            seconds = f"{found['seconds']:.4f}", f"{found['forward_backward_seconds']:.4f}"
            print(line.format(*start, *seconds, f"{found['tokens_per_second']:.0f}", *rest), flush=True)
        del steps
