"""Profile a training step by kind of operation: the plain step compared with ours, with PyTorch's profiler.

    OMP_NUM_THREADS=1 python benchmarks/step_profile.py --shape smollm2 --precision autocast

The steps are those of `step.py` (8 forget and 8 retain rows), each in its own process. Times exclude called operations; the
profiler itself takes time, so shares are more reliable than seconds.
"""

from __future__ import annotations

import argparse
from collections import Counter

from step import GROUPS
from step_implementations import SHAPES, Setting, build_model, elsewhere, step_of

KINDS = (
    ("attention", ("attention", "attn")),
    ("matrix products", ("mm", "linear", "matmul", "gemm", "bmm")),
    ("optimizer", ("adam",)),
    ("softmax and logarithms", ("softmax", "logsumexp", "exp", "log")),
    ("copies and casts", ("copy", "contiguous", "cat", "_to_copy", "clone")),
    ("lookups and their gradient", ("embedding", "index", "gather", "scatter")),
)
"""Kind of operation and parts of operation names; the first match counts."""
REST = "norms, activations, the rest"


def kind_of(operation: str) -> str:
    """Return the kind of an operation by its name."""
    return next((kind for kind, words in KINDS if any(word in operation.lower() for word in words)), REST)


def profiled(setting: Setting, method: str, side: str) -> Counter[str]:
    """Return seconds per step by kind of operation."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    step = step_of(setting, method, side, build_model(setting))
    step(0)
    cuda = setting.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
        for number in range(setting.steps):
            step(number)
        if cuda:
            torch.cuda.synchronize()
    found: Counter[str] = Counter()
    for each in seen.key_averages():
        found[kind_of(each.key)] += (
            (each.self_device_time_total if cuda else each.self_cpu_time_total) / 1e6 / setting.steps
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="smollm2", choices=SHAPES)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="float32", choices=["float32", "autocast", "bfloat16"])
    parser.add_argument("--steps", type=int, default=3, help="counted steps of a side, after one that is not")
    given = parser.parse_args()
    setting = Setting(given.shape, given.device, given.precision, given.steps, rows=8, checkout=None)
    sides = GROUPS[0]
    found = [elsewhere(profiled, setting, *side) for side in sides]
    print(f"{'seconds a step, share':>28}" + "".join(f"{' '.join(side):>20}" for side in sides))
    for kind in (*(kind for kind, _ in KINDS), REST):
        shares = (f"{each[kind]:.2f} s {each[kind] / each.total():4.0%}" for each in found)
        print(f"{kind:>28}" + "".join(f"{share:>20}" for share in shares))
    print(f"{'together':>28}" + "".join(f"{each.total():>15.2f} s   " for each in found))


if __name__ == "__main__":
    main()
