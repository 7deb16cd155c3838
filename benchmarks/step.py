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
import dataclasses
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from typing import Any

from sides import SCORER_EVERY, SHAPES, Setting, build_model, step_of

GROUPS = (
    (("grad_diff", "plain"), ("grad_diff", "atwu"), ("grad_diff", "padded"), ("atwu", "atwu")),
    (("wga", "open-unlearning"), ("wga", "atwu")),
    (("npo", "open-unlearning"), ("npo", "atwu")),
    (("dpo", "trl"), ("dpo", "atwu")),
)
"""Method and side; those of a line take turns."""
METHODS = tuple(group[0][0] for group in GROUPS)


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
    step = step_of(setting, method, side, build_model(setting))
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
