"""One training step of atwu beside the same step as others take it: time, work, share of the machine's peak, memory.

    python benchmarks/step.py                                       # what is installed
    python benchmarks/step.py --open-unlearning CHECKOUT --shape smollm2 --json

`plain` is transformers' model with its own loss: a pass for the forget rows and one for the retain rows, padded, with logits
at every position. `open-unlearning` calls that project's own loss functions, from a checkout, and keeps the copy of the
starting model that its trainers keep. `trl` is the loss of its DPO trainer, with the starting model's numbers computed before
training as ours are, where that package is installed; DPO has a refused and a preferred answer, and no retain rows. `padded`
is our step with rows side by side. All sides take the same optimizer step
(AdamW) on the same rows: 8 to forget and 8 to keep (--rows), as long as TOFU rows in a Llama-3 chat template (58 ± 4 prompt and
37 ± 15 answer tokens). What NPO compares with, atwu computes once before training, in one forward pass of every row; that is
not part of its step.

Each side is a process of its own, so that peak memory is its own, and those of a method take turns step by step, so that a
noisy machine disturbs them alike. Work is the arithmetic of the matrix products that a step really does, attention's between
all positions of a row among them; the peak is what products of 2048 x 2048 matrices reach in the same precision and number of
threads. Memory is measured apart from time, with freed tensors given back to the system at once: the peak resident size above
that of the bare process with all libraries loaded (on CUDA: the peak of the allocator).
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import importlib.util
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LLAMA = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "16k": LLAMA | {"intermediate_size": 1408, "vocab_size": 16_384},
    "128k": LLAMA | {"intermediate_size": 1408, "vocab_size": 131_072},
    "128k-untied": LLAMA | {"intermediate_size": 1408, "vocab_size": 131_072, "tie_word_embeddings": False},
    "smollm2": {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49_152,
    },
}
"""Random weights: what a step costs does not depend on them."""
GROUPS = (
    (("grad_diff", "plain"), ("grad_diff", "atwu"), ("grad_diff", "padded"), ("atwu", "atwu")),
    (("wga", "open-unlearning"), ("wga", "atwu")),
    (("npo", "open-unlearning"), ("npo", "atwu")),
    (("dpo", "trl"), ("dpo", "atwu")),
)
"""Method and side; those of a line take turns."""
METHODS = tuple(group[0][0] for group in GROUPS)
SCORER_EVERY, MAX_STEPS = 5, 5000


@dataclass(frozen=True)
class Setting:
    """What all sides share."""

    shape: str
    device: str
    precision: str
    steps: int
    rows: int
    checkout: str | None
    length: float = 1.0
    """Factor on the tokens of a row."""


def build_model(setting: Setting):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    known = {"max_position_embeddings": 2048, "tie_word_embeddings": True, "use_cache": False}
    model = LlamaForCausalLM(LlamaConfig(**known | SHAPES[setting.shape]))
    dtype = torch.bfloat16 if setting.precision == "bfloat16" else torch.float32
    return model.to(device=setting.device, dtype=dtype).train()


def build_batches(setting: Setting) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    import torch

    vocabulary = SHAPES[setting.shape]["vocab_size"]
    generator = torch.Generator().manual_seed(1)

    def draw(mean: float, std: float, low: int, high: int) -> int:
        return int((mean + std * torch.randn(1, generator=generator)).clamp(low, high))

    def rows() -> dict[str, Any]:
        drawn = [(draw(58, 4, 48, 80), draw(37, 15, 5, 90)) for _ in range(setting.rows)]
        lengths = [(round(prompt * setting.length), round(answer * setting.length)) for prompt, answer in drawn]
        width = max(prompt + answer for prompt, answer in lengths)
        ids = torch.randint(3, vocabulary, (setting.rows, width), generator=generator)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, (prompt, answer) in enumerate(lengths):
            mask[row, : prompt + answer] = 1
            labels[row, prompt : prompt + answer] = ids[row, prompt : prompt + answer]
        return {name: part.to(setting.device) for name, part in zip(NAMES, (ids, mask, labels), strict=True)}

    return [(rows(), rows()) for _ in range(setting.steps)]


NAMES = ("input_ids", "attention_mask", "labels")


def loss_of_others(model, method: str, side: str, checkout: str | None):
    """Their loss of a forget and a retain batch."""
    if side == "trl":
        return loss_of_trl(model)
    if side == "plain":
        return lambda forget, retain: -0.12 * model(**forget).loss + 0.8 * model(**retain).loss
    assert checkout is not None
    spec = importlib.util.spec_from_file_location("theirs", Path(checkout) / "src" / "trainer" / "utils.py")
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    reference = copy.deepcopy(model).eval()

    def loss(forget, retain):
        if method == "wga":  # its trainer keeps the copy, too, and does not use it
            removed, _ = theirs.compute_wga_loss(model, forget, beta=1.0)
        else:
            removed, _ = theirs.compute_dpo_loss(model, reference, None, forget, beta=0.1)
        return removed + model(**retain).loss

    return loss


def loss_of_trl(model):
    """Its DPO trainer's loss, which prefers the answers of the second batch."""
    import tempfile

    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast
    from trl import DPOConfig, DPOTrainer

    words = Tokenizer(WordLevel({"<pad>": 0, "a": 1}, unk_token="<pad>"))
    trainer = DPOTrainer(
        model,
        args=DPOConfig(
            output_dir=tempfile.gettempdir(),
            precompute_ref_log_probs=True,
            report_to=[],
            use_cpu=model.device.type == "cpu",
        ),
        train_dataset=Dataset.from_dict({"prompt": ["a"], "chosen": ["a a"], "rejected": ["a"]}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="a"),
    )

    def loss(refused, preferred):
        width = max(rows["input_ids"].shape[1] for rows in (refused, preferred))
        ids, mask, labels = (
            torch.cat(
                [torch.nn.functional.pad(rows[name], (0, width - rows[name].shape[1]), value=fill) for rows in order]
            )
            for order in [(preferred, refused)]
            for name, fill in zip(NAMES, (0, 0, -100), strict=True)
        )
        known = torch.zeros(len(refused["input_ids"]), device=ids.device)
        compared = {"ref_chosen_logps": known, "ref_rejected_logps": known}
        return trainer.compute_loss(
            model, {"input_ids": ids, "attention_mask": mask, "completion_mask": (labels != -100).long(), **compared}
        )

    return loss


def our_loss(model, method: str, layout: str, batches):
    """Our loss of the batch of that number, and what a scorer does after the model's step."""
    from atwu.methods.alternation import ScorerAlternation
    from atwu.methods.objective import recipe_loss
    from atwu.methods.recipe import recipe
    from atwu.methods.seen import Given
    from atwu.methods.weightings.scorer import TokenScorer
    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.layers import decoder_layers
    from atwu.modeling.reference import Reference, live_reference

    decided = recipe(method, **({"retain_loss": "none"} if method == "dpo" else {"scorer_every": SCORER_EVERY}))
    second = "retain" if decided.retainer is not None else "alternate"
    wanted = decided.wanted(len(decoder_layers(model)))
    given = [Given(Reference())] * len(batches)
    if wanted:
        rows = [{"forget": TokenBatch.of(forget), second: TokenBatch.of(other)} for forget, other in batches]
        given = [Given(live_reference(model, each, wanted)) for each in rows]
    alternation = None
    if decided.scores is not None:
        device = next(model.parameters()).device
        alternation = ScorerAlternation(TokenScorer(model.config.hidden_size).to(device), decided)
    done = itertools.count()

    def loss(number: int):
        step = next(done)
        scorer = alternation.scorer if alternation else None
        forget, other = batches[number]
        others = {"retain": None, "alternate": None, second: other}
        result = recipe_loss(model, forget, recipe=decided, scorer=scorer, given=given[number], layout=layout, **others)
        if alternation and alternation.due(step, MAX_STEPS):
            alternation.collect(result)
            return result.loss, lambda: alternation.step(MAX_STEPS)
        return result.loss, lambda: None

    return loss


def worker(pipe, setting: Setting, method: str, side: str) -> None:
    """Sends what one side sends, or the traceback that it ends in."""
    try:
        steps_as_told(pipe, setting, method, side)
    except Exception:
        pipe.send(SideError(f"{setting.shape}, {method}, {side}:\n{traceback.format_exc()}"))


class SideError(Exception):
    """A side cannot take its step; says which, and why."""


def heard(pipe) -> Any:
    """What a side sends.

    Raises:
        SideError: it has ended instead.
    """
    try:
        told = pipe.recv()
    except EOFError:
        told = SideError("a side was ended from outside: for its memory, most likely.")
    if isinstance(told, SideError):
        raise told
    return told


def steps_as_told(pipe, setting: Setting, method: str, side: str) -> None:
    """Builds one side, then takes one step each time it is told to; ends with its work and its peak memory."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    import atwu.methods.alternation  # noqa: F401  (all sides load the same libraries)
    from atwu.modeling.device import peak_memory

    device = torch.device(setting.device)
    bare = peak_memory(device)
    model, batches = build_model(setting), build_batches(setting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    after = lambda: None  # noqa: E731
    if side in ("atwu", "padded"):
        ours = our_loss(model, method, "padded" if side == "padded" else "auto", batches)
    else:
        theirs = loss_of_others(model, method, side, setting.checkout)
    half = torch.autocast(setting.device, torch.bfloat16, enabled=setting.precision == "autocast")

    def step(number: int) -> None:
        nonlocal after
        with half:
            if side in ("atwu", "padded"):
                loss, after = ours(number)
            else:
                loss = theirs(*batches[number])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()

    pipe.send("ready")
    work, held, index = 0, 0, 0
    while (told := next_told(pipe)) != "end":
        begin = time.perf_counter()
        if told == "count":  # attention as plain products, which are the ones that are counted on every device
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                step(index % setting.steps)
            work += counter.get_total_flops()
        else:
            step(index % setting.steps)
            if device.type == "cuda":
                torch.cuda.synchronize()
            held = peak_memory(device) - (0 if device.type == "cuda" else bare)
        index += 1
        pipe.send(time.perf_counter() - begin)
    pipe.send((work, held))


def next_told(pipe) -> str:
    """What to do next; the end, too, where the one who tells has ended."""
    try:
        return pipe.recv()
    except EOFError:
        sys.exit(1)


def take_turns(setting: Setting, sides: tuple[tuple[str, str], ...], *, count: bool) -> dict[tuple[str, str], Any]:
    """Seconds of each step, and then work and peak bytes, of each side.

    Args:
        count: take the steps once more, counting their work, which takes time itself.
    """
    context = multiprocessing.get_context("spawn")
    running = {}
    for each in sides:
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs, setting, *each), daemon=True)
        process.start()
        theirs.close()
        running[each] = process, ours
    for _, pipe in running.values():
        heard(pipe)
    times: dict[tuple[str, str], list[float]] = {each: [] for each in sides}
    for index in range(setting.steps + 2):
        for each, (_, pipe) in running.items():
            time.sleep(0.3 * (setting.device == "cpu"))  # until the other side's threads have stopped spinning
            pipe.send("step")
            times[each].append(heard(pipe))
        print(f"\r{setting.shape}: step {index + 1}/{setting.steps + 2}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    found = {}
    for each, (process, pipe) in running.items():
        for _ in range(setting.steps if count else 0):
            pipe.send("count")
            heard(pipe)
        pipe.send("end")
        found[each] = times[each][2:], *heard(pipe)
        process.join()
    return found


def memory(setting: Setting, sides: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], int]:
    """Peak bytes of each side over three steps, one side at a time."""
    # glibc then maps every larger tensor on its own and returns it when freed; without this, what it hoards is counted.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 18)
    one = dataclasses.replace(setting, steps=1)
    try:
        return {each: take_turns(one, (each,), count=False)[each][2] for each in sides}
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]


def peak_speed(device: str, precision: str) -> float:
    """Most that matrix products reach here, in FLOP/s."""
    import torch

    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    one, other = torch.rand(2, 2048, 2048, device=device).to(dtype)
    seconds = []
    for _ in range(12):
        begin = time.perf_counter()
        one @ other
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return 2 * 2048**3 / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="only this model; may be repeated")
    parser.add_argument("--method", action="append", choices=METHODS, help="only these lines; may be repeated")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="float32", choices=["float32", "autocast", "bfloat16"])
    parser.add_argument(
        "--steps", type=int, default=10, help="timed steps of a side; a multiple of 5 counts scorers fairly"
    )
    parser.add_argument("--rows", type=int, default=8, help="to forget, and as many to keep")
    parser.add_argument("--open-unlearning", metavar="CHECKOUT", help="folder of github.com/locuslab/open-unlearning")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    given = parser.parse_args()
    if given.steps < SCORER_EVERY or given.steps % SCORER_EVERY:
        parser.error(f"--steps must be a positive multiple of {SCORER_EVERY}, got {given.steps}")
    missing = {"open-unlearning"} if given.open_unlearning is None else set()
    missing |= set() if importlib.util.find_spec("trl") else {"trl"}
    groups = [group for group in GROUPS if group[0][0] in (given.method or METHODS)]
    without = [group for group in groups if not missing.isdisjoint(side for _, side in group)]
    if given.method and without:
        parser.error(f"--method {without[0][0][0]} is compared with {without[0][0][1]}, which is not there")
    groups = [group for group in groups if group not in without]
    peak, ratios = peak_speed(given.device, given.precision), {}
    print(f"peak: {peak / 1e9:.0f} GFLOP/s, {given.precision}")
    line = "{:>11} {:>9} {:>15} {:>8} {:>8} {:>8} {:>8} {:>8}"
    print(line.format("shape", "method", "side", "s/step", "stdev", "GFLOP", "of peak", "peak MB"))
    for shape in given.shape or SHAPES:
        setting = Setting(shape, given.device, given.precision, given.steps, given.rows, given.open_unlearning)
        for group in groups:
            found = take_turns(setting, group, count=True)
            held = (
                {each: values[2] for each, values in found.items()}
                if given.device == "cuda"
                else memory(setting, group)
            )
            for (method, side), (seconds, work, _) in found.items():
                share = work / sum(seconds) / peak
                numbers = (f"{statistics.mean(seconds):.3f}", f"{statistics.stdev(seconds):.3f}")
                counted = (f"{work / len(seconds) / 1e9:.0f}", f"{share:.0%}", f"{held[method, side] / 1e6:.0f}")
                print(line.format(shape, method, side, *numbers, *counted), flush=True)
            ours = (group[1][0], "atwu")
            for each in (each for each in group if each != ours):
                name = f"{shape}: {' '.join(each)} / {' '.join(ours)}"
                ratios[f"{name}, time"] = sum(found[each][0]) / sum(found[ours][0])
                ratios[f"{name}, memory"] = held[each] / held[ours]
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.3f}")
    if given.json:
        print(json.dumps({name: round(ratio, 4) for name, ratio in ratios.items()}))


if __name__ == "__main__":
    main()
