"""One training step of atwu beside the plain one: time, tokens per second, peak memory.

Plain is what most unlearning code does: a forward pass for the forget rows and one for the retain rows, logits at every
position, transformers' own cross entropy, and a copy of the starting model in memory. Both sides take the same optimizer step
(AdamW) on the same rows. Each side is a process of its own, so that peak memory is its own, and the two take turns step by
step, so that a noisy machine disturbs both alike. Lengths follow TOFU rows in a Llama-3 chat template: 58 ± 4 prompt and
37 ± 15 answer tokens. The model is a Llama of hidden size 512 with 8 layers and tied embeddings, as small models with
large vocabularies have (Llama-3.2-1B); --untied separates them. Memory is measured apart from time, with freed tensors given
back to the system at once; it is the peak resident size above that of the bare process with all libraries loaded (on CUDA:
the peak the allocator reports).

    python benchmarks/step.py --json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time

VOCABULARIES = {"16k": 16_384, "128k": 131_072}
ROWS = 8
SCORER_EVERY, MAX_STEPS = 5, 5000


def build_model(vocabulary: int, device: str, dtype: str, tied: bool = True):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        intermediate_size=1408,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        use_cache=False,
    )
    return LlamaForCausalLM(config).to(device=device, dtype=getattr(torch, dtype)).train()


def build_batches(vocabulary: int, count: int, device: str):
    import torch

    generator = torch.Generator().manual_seed(1)

    def draw(mean: float, std: float, low: int, high: int) -> int:
        return int((mean + std * torch.randn(1, generator=generator)).clamp(low, high))

    def rows():
        lengths = [(draw(58, 4, 48, 80), draw(37, 15, 5, 90)) for _ in range(ROWS)]
        width = max(prompt + answer for prompt, answer in lengths)
        ids = torch.randint(3, vocabulary, (ROWS, width), generator=generator)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, (prompt, answer) in enumerate(lengths):
            mask[row, : prompt + answer] = 1
            labels[row, prompt : prompt + answer] = ids[row, prompt : prompt + answer]
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "labels": labels.to(device)}

    return [(rows(), rows()) for _ in range(count)]


def plain_step(model, optimizer):
    import copy

    reference = copy.deepcopy(model).eval().requires_grad_(False)

    def step(forget, retain):
        loss = -0.12 * model(**forget).loss + 0.8 * model(**retain).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return reference

    return step


def our_step(model, optimizer, method: str, layout: str):
    from atwu.methods.alternation import ScorerAlternation
    from atwu.methods.objective import recipe_loss
    from atwu.methods.recipe import recipe
    from atwu.methods.weightings.scorer import TokenScorer

    decided = recipe(method, scorer_every=SCORER_EVERY)
    alternation = None
    if decided.scores is not None:
        device = next(model.parameters()).device
        alternation = ScorerAlternation(TokenScorer(512).to(device), decided)
    done = 0

    def step(forget, retain):
        nonlocal done
        scorer = alternation.scorer if alternation else None
        result = recipe_loss(model, forget, retain, decided, scorer=scorer, layout=layout)
        if alternation and alternation.due(done, MAX_STEPS):
            alternation.collect(result)
        result.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if alternation and alternation.due(done, MAX_STEPS):
            alternation.step(MAX_STEPS)
        done += 1

    return step


def resident_peak() -> int:
    """Largest resident size of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def worker(pipe, side: str, vocabulary: int, device: str, dtype: str, layout: str, steps: int, tied: bool) -> None:
    """Builds one side, then runs one timed step each time it is told to; ends with its peak memory in bytes."""
    import torch

    import atwu.methods.alternation  # noqa: F401  (both sides load the same libraries)

    baseline = resident_peak()
    model = build_model(vocabulary, device, dtype, tied)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batches = build_batches(vocabulary, steps, device)
    step = plain_step(model, optimizer) if side == "plain" else our_step(model, optimizer, side, layout)
    tokens = [int(sum(part["attention_mask"].sum() for part in pair)) for pair in batches]
    pipe.send(tokens)
    index = 0
    while pipe.recv() == "step":
        begin = time.perf_counter()
        step(*batches[index % steps])
        if device == "cuda":
            torch.cuda.synchronize()
        pipe.send(time.perf_counter() - begin)
        index += 1
    pipe.send(torch.cuda.max_memory_allocated() if device == "cuda" else resident_peak() - baseline)


def compare(sides: list[str], vocabulary: int, arguments, label: str, steps: int) -> dict[str, dict[str, float]]:
    """Run the sides in turn, step by step; two warm-up steps each."""
    context = multiprocessing.get_context("spawn")
    running = {}
    for side in sides:
        ours, theirs = context.Pipe()
        process = context.Process(
            target=worker,
            args=(
                theirs,
                side,
                vocabulary,
                arguments.device,
                arguments.dtype,
                arguments.layout,
                steps,
                not arguments.untied,
            ),
        )
        process.start()
        running[side] = (process, ours)
    tokens = {side: pipe.recv() for side, (_, pipe) in running.items()}
    times: dict[str, list[float]] = {side: [] for side in sides}
    for index in range(steps + 2):
        for side, (_, pipe) in running.items():
            time.sleep(0.3)  # until the other side's worker threads have stopped spinning
            pipe.send("step")
            elapsed = pipe.recv()
            if index >= 2:
                times[side].append(elapsed)
        print(f"\r{label}: step {index + 1}/{steps + 2}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    results = {}
    for side, (process, pipe) in running.items():
        pipe.send("end")
        peak = pipe.recv()
        process.join()
        seconds = statistics.mean(times[side])
        order = [index % steps for index in range(2, steps + 2)]
        per_second = sum(tokens[side][index] for index in order) / sum(times[side])
        results[side] = {
            "seconds": seconds,
            "median": statistics.median(times[side]),
            "stdev": statistics.stdev(times[side]) if steps > 1 else 0.0,
            "tokens_per_second": per_second,
            "peak_bytes": peak,
        }
    return results


def measure_memory(sides: list[str], vocabulary: int, arguments, label: str) -> dict[str, float]:
    """Peak bytes of each side over three steps, one side at a time."""
    # glibc then maps every larger tensor on its own and returns it when freed; without this, what it hoards is counted.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 18)
    try:
        return {side: compare([side], vocabulary, arguments, label, 1)[side]["peak_bytes"] for side in sides}
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--layout", default="auto", choices=["auto", "packed", "padded"])
    parser.add_argument(
        "--steps", type=int, default=10, help="timed steps per side; a multiple of 5 counts scorer updates fairly"
    )
    parser.add_argument("--untied", action="store_true", help="separate input and output embeddings")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    arguments = parser.parse_args()
    if arguments.steps < SCORER_EVERY or arguments.steps % SCORER_EVERY:
        parser.error(f"--steps must be a positive multiple of {SCORER_EVERY}, got {arguments.steps}")
    summary: dict[str, float] = {}
    line = "{:>5} {:>10} {:>8} {:>8} {:>9} {:>9}"
    print(line.format("vocab", "step", "s/step", "stdev", "tokens/s", "peak MB"))
    for name, vocabulary in VOCABULARIES.items():
        results = compare(["plain", "grad_diff"], vocabulary, arguments, f"{name} time", arguments.steps)
        if name == "16k":
            pair = compare(["grad_diff", "atwu"], vocabulary, arguments, f"{name} scorer", arguments.steps)
            summary["atwu_over_graddiff"] = pair["atwu"]["seconds"] / pair["grad_diff"]["seconds"]
            results["atwu"] = pair["atwu"]
        memory = measure_memory(list(results), vocabulary, arguments, f"{name} memory")
        for side, r in results.items():
            numbers = (f"{r['seconds']:.3f}", f"{r['stdev']:.3f}", f"{r['tokens_per_second']:.0f}")
            print(line.format(name, side, *numbers, f"{memory[side] / 1e6:.0f}"))
        summary[f"time_ratio_{name}"] = results["plain"]["seconds"] / results["grad_diff"]["seconds"]
        summary[f"memory_ratio_{name}"] = memory["grad_diff"] / memory["plain"]
    print(
        f"plain / ours: {summary['time_ratio_16k']:.2f}x at 16k, {summary['time_ratio_128k']:.2f}x at 128k; "
        f"memory {summary['memory_ratio_128k']:.2f} at 128k; atwu / grad_diff: {summary['atwu_over_graddiff']:.3f}"
    )
    if arguments.json:
        print(json.dumps({key: round(value, 4) for key, value in sorted(summary.items())}))


if __name__ == "__main__":
    main()
