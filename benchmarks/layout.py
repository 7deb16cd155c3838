"""Packed rows beside padded ones in our own training step: seconds per step, taking turns in one process.

python benchmarks/layout.py
"""

from __future__ import annotations

import statistics
import time

import torch
from step import VOCABULARIES, build_batches, build_model, our_step

LAYOUTS = ("packed", "padded")


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, vocabulary in VOCABULARIES.items():
        model = build_model(vocabulary, device, "float32")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        batches = build_batches(vocabulary, 6, device)
        steps = {layout: our_step(model, optimizer, "grad_diff", layout) for layout in LAYOUTS}
        times: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
        for index, batch in enumerate(batches):
            for layout in LAYOUTS:
                begin = time.perf_counter()
                steps[layout](*batch)
                if device == "cuda":
                    torch.cuda.synchronize()
                if index:  # the first one warms up
                    times[layout].append(time.perf_counter() - begin)
        shown = ", ".join(f"{key} {statistics.mean(v):.3f} ± {statistics.stdev(v):.3f} s" for key, v in times.items())
        print(f"{name}: {shown}; padded / packed {sum(times['padded']) / sum(times['packed']):.2f}")


if __name__ == "__main__":
    main()
