"""Measure how the cost of a training step grows with rows, length, vocabulary and layers, compared with the plain step.

    OMP_NUM_THREADS=1 python benchmarks/growth.py

A small Llama with random weights takes the steps of `step.py`: `plain` (grad_diff with transformers' own loss) and ours
(grad_diff and atwu). One of the four sizes grows from half to eight times the default. The table shows processor seconds per
step, which are independent of other load; the exponent is the slope of their logarithms between the two largest sizes. If it
is at most that of the plain step, our step adds no faster-growing term.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time

from step_implementations import LLAMA, SHAPES, Setting, build_model, step_of

BASE = LLAMA | {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4}
BASE |= {"intermediate_size": 704, "vocab_size": 16_384}
SIDES = (("grad_diff", "plain"), ("grad_diff", "atwu"), ("atwu", "atwu"))
FACTORS = (0.5, 1, 2, 4, 8)
GROWS = ("rows", "length", "vocabulary", "layers")


def grown(what: str, factor: float, steps: int) -> tuple[int, Setting]:
    """Return the scaled size, and the setting."""
    setting = Setting("grown", "cpu", "float32", steps, rows=8, checkout=None)
    SHAPES["grown"] = dict(BASE)
    if what == "rows":
        setting = dataclasses.replace(setting, rows=int(8 * factor))
        return setting.rows, setting
    if what == "length":
        return int(95 * factor), dataclasses.replace(setting, length=factor)
    key = {"vocabulary": "vocab_size", "layers": "num_hidden_layers"}[what]
    SHAPES["grown"][key] = int(BASE[key] * factor)
    return SHAPES["grown"][key], setting


def seconds(setting: Setting, method: str, side: str) -> float:
    """Processor time of one step: the mean after one warm-up step. One of five steps includes a scorer step."""
    step, times = step_of(setting, method, side, build_model(setting)), []
    for number in (0, *range(setting.steps)):
        begin = time.process_time()
        step(number)
        times.append(time.process_time() - begin)
    return statistics.fmean(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="counted steps of each")
    parser.add_argument("--grow", action="append", choices=GROWS, help="only this; may be repeated")
    parser.add_argument("--most", type=float, default=FACTORS[-1], help="largest factor")
    given = parser.parse_args()
    for what in given.grow or GROWS:
        print(f"{what:>12}" + "".join(f"{' '.join(side):>20}" for side in SIDES), flush=True)
        found: list[tuple[int, list[float]]] = []
        for factor in (each for each in FACTORS if each <= given.most):
            count, setting = grown(what, factor, given.steps)
            found.append((count, [seconds(setting, *side) for side in SIDES]))
            print(f"{count:>12}" + "".join(f"{each:>18.3f} s" for each in found[-1][1]), flush=True)
        (fewer, less), (most, more) = found[-2:]
        slopes = [math.log(b / a) / math.log(most / fewer) for a, b in zip(less, more, strict=True)]
        print(f"{'exponent':>12}" + "".join(f"{slope:>20.2f}" for slope in slopes), flush=True)


if __name__ == "__main__":
    main()
