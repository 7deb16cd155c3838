"""Compare one training step of atwu with other implementations: time, FLOPs, share of the machine's peak, memory.

    python benchmarks/step.py                                       # installed implementations
    python benchmarks/step.py --open-unlearning CHECKOUT --shape smollm2 --json

`plain` is transformers' model with its own loss: one pass for forget rows and one for retain rows, padded, with logits at
every position. `open-unlearning` calls that project's loss functions from a checkout, and keeps the copy of the original
model that its trainers keep. `trl` is the loss of its DPO trainer, with reference log-probabilities computed before training
like ours, if the package is installed; DPO uses a rejected and a preferred answer, and no retain rows. `padded` is our step
with padded batches. All implementations take the same optimizer step (AdamW) on the same rows: 8 forget and 8 retain rows
(--rows), as long as TOFU rows in a Llama-3 chat template (58 ± 4 prompt and 37 ± 15 answer tokens). Reference values of NPO
are computed once before training in atwu, in one forward pass over all rows, which is not part of its step.

Each implementation runs in its own process with its own peak memory. Those of one method alternate step by step, so that
noise affects them equally. FLOPs are those of all matrix products of a step, including attention between all positions of a
row; the peak is that of products of 2048 x 2048 matrices in the same precision and number of threads. Memory is measured
separately from time, with freed tensors returned to the system at once: the peak resident size above that of a process with
all libraries loaded (on CUDA: the allocator's peak).
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

from step_implementations import SCORER_EVERY, SHAPES, Setting, build_model, step_of

GROUPS = (
    (("grad_diff", "plain"), ("grad_diff", "atwu"), ("grad_diff", "padded"), ("atwu", "atwu")),
    (("wga", "open-unlearning"), ("wga", "atwu")),
    (("npo", "open-unlearning"), ("npo", "atwu")),
    (("dpo", "trl"), ("dpo", "atwu")),
)
"""Method and implementation; those in one group alternate."""
METHODS = tuple(group[0][0] for group in GROUPS)


def worker(pipe, setting: Setting, method: str, side: str) -> None:
    """Send the messages of one implementation, or its traceback."""
    try:
        serve_steps(pipe, setting, method, side)
    except Exception:
        pipe.send(SideError(f"{setting.shape}, {method}, {side}:\n{traceback.format_exc()}"))


class SideError(Exception):
    """An implementation failed; the message says which and why."""


def receive(pipe) -> Any:
    """Receive a message of an implementation.

    Raises:
        SideError: the process has ended instead.
    """
    try:
        message = pipe.recv()
    except EOFError:
        message = SideError("an implementation's process was killed, probably for its memory.")
    if isinstance(message, SideError):
        raise message
    return message


def serve_steps(pipe, setting: Setting, method: str, side: str) -> None:
    """Build one implementation, then take one step per request; sends its FLOPs and peak memory at the end."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    import atwu.training.scorer_training  # noqa: F401  (all sides load the same libraries)
    from atwu.modeling.device import peak_memory

    device = torch.device(setting.device)
    bare = peak_memory(device)
    step = step_of(setting, method, side, build_model(setting))
    pipe.send("ready")
    work, held, index = 0, 0, 0
    while (request := next_request(pipe)) != "end":
        begin = time.perf_counter()
        if request == "count":  # attention as plain products, which are counted on every device
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


def next_request(pipe) -> str:
    """Receive the next request; also ends when the parent process has ended."""
    try:
        return pipe.recv()
    except EOFError:
        sys.exit(1)


def take_turns(setting: Setting, sides: tuple[tuple[str, str], ...], *, count: bool) -> dict[tuple[str, str], Any]:
    """Seconds of each step, FLOPs and peak bytes, of each implementation.

    Args:
        count: repeat the steps to count their FLOPs, which takes time itself.
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
        receive(pipe)
    times: dict[tuple[str, str], list[float]] = {each: [] for each in sides}
    for index in range(setting.steps + 2):
        for each, (_, pipe) in running.items():
            time.sleep(0.3 * (setting.device == "cpu"))  # until the other implementation's threads stop spinning
            pipe.send("step")
            times[each].append(receive(pipe))
        print(f"\r{setting.shape}: step {index + 1}/{setting.steps + 2}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    found = {}
    for each, (process, pipe) in running.items():
        for _ in range(setting.steps if count else 0):
            pipe.send("count")
            receive(pipe)
        pipe.send("end")
        found[each] = times[each][2:], *receive(pipe)
        process.join()
    return found


def memory(setting: Setting, sides: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], int]:
    """Peak bytes of each implementation over three steps, one after the other."""
    # makes glibc map larger tensors separately and return them when freed; otherwise its reserve would be counted
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 18)
    one = dataclasses.replace(setting, steps=1)
    try:
        return {each: take_turns(one, (each,), count=False)[each][2] for each in sides}
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]


def peak_speed(device: str, precision: str) -> float:
    """Measure the peak speed of matrix products on this machine, in FLOP/s."""
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
    parser.add_argument("--method", action="append", choices=METHODS, help="only this method; may be repeated")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="float32", choices=["float32", "autocast", "bfloat16"])
    parser.add_argument(
        "--steps",
        type=int,
        default=10,
        help="timed steps of each implementation; a multiple of 5, since the scorer is updated every 5 steps",
    )
    parser.add_argument("--rows", type=int, default=8, help="forget rows per step, and as many retain rows")
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
        parser.error(f"--method {without[0][0][0]} is compared with {without[0][0][1]}, which is not installed")
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
