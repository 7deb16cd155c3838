"""Check and measure atwu on one CUDA device in a few minutes: tests, training steps, growth, 4-bit weights.

    pip install -e '.[lora,quantize]' pytest                                # the tests need the installed package
    python scripts/gpu_check.py --out results --open-unlearning CHECKOUT
    python scripts/gpu_check.py --out results --device cpu --tiny           # rehearsal with scratch shapes

Models have random weights in bfloat16 and rows have random ids, as long as TOFU rows (`benchmarks/step_implementations.py`):
nothing is downloaded. `plain` is transformers' model with its own loss, `open-unlearning` calls the `compute_loss` of that
project's trainers from a checkout, with the copy of the original model that they keep, and `atwu` is our step. The
implementations share one model and one optimizer and alternate on the same batches, in varying order.

Trained are `all` weights (AdamW with bfloat16 moments), `gradients` (forward and backward pass of all weights, no optimizer),
or `lora` (rank 16, AdamW). Useful FLOPs of a step, with N the matrix weights of the decoder layers, T the tokens of all rows
without padding, V x H the output layer, A the counted (answer) tokens, L layers, D the width of all heads, l a row's length:

    k (2 N T + 2 V H A) + 6 L D sum(l^2),   k = 3 for all weights, 2 where only adapters are trained

Padding, logits of prompts, recomputed activations and the original model's forward pass are not useful, so all
implementations of a method are measured against the same number; the share is that of the H100's dense bfloat16 peak, 989
TFLOP/s. Each part runs in its own process with a time limit, and its JSON file is rewritten after every step.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import itertools
import multiprocessing
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from device_steps import EVERY, OURS, THEIRS, Cell, Results, add_shapes, build, free, measure  # noqa: E402

GROWING = (EVERY[0], OURS[0], OURS[3])
PARTS: dict[str, tuple[float, tuple[Cell, ...]]] = {
    "machine": (30, ()),
    "steps-8b": (
        110,
        (
            Cell("8b", "gradients", 8, EVERY, seconds=10),
            Cell("8b", "gradients", 16, GROWING, seconds=5),
            Cell("8b", "gradients", 16, (*THEIRS[1:], *OURS[1:]), checkpointing=True, seconds=6),
        ),
    ),
    "memory-8b": (
        60,
        (
            Cell("8b", "all", 8, (*OURS, *THEIRS), seconds=6),
            Cell("8b", "all", 16, (OURS[0], OURS[3], THEIRS[0]), checkpointing=True, seconds=5),
        ),
    ),
    "lora-8b": (60, (Cell("8b", "lora", 8, EVERY, seconds=8),)),
    "steps-1b": (
        90,
        (
            Cell("1b", "all", 8, EVERY, seconds=4),
            Cell("1b", "all", 32, EVERY, seconds=6),
            Cell("1b", "lora", 8, EVERY, seconds=3),
        ),
    ),
    "growth": (
        80,
        (
            *(Cell("1b", "gradients", rows, GROWING, seconds=2) for rows in (4, 8, 16, 64)),
            *(Cell("1b", "gradients", 8, GROWING, length=factor, seconds=2) for factor in (4.0, 8.0)),
            *(Cell(f"1b-{thousands}k", "gradients", 8, GROWING, seconds=2) for thousands in (32, 256)),
        ),
    ),
    "trainer": (40, ()),
    "four-bit": (60, (Cell("8b", "lora-4bit", 8, GROWING, seconds=5),)),
}
"""Time limit in seconds of each part after the tests, and its cells."""
TESTS_SECONDS = 80.0


def measure_machine(results: Results, options: argparse.Namespace) -> None:
    """Record names and versions, and the speed of matrix products and copies."""
    import torch

    names = ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "triton", "numpy")
    versions = {name: importlib.metadata.version(name) for name in names if importlib.util.find_spec(name)}
    results.put(python=platform.python_version(), versions=versions, command=sys.argv)
    cuda, size = options.device == "cuda", 256 if options.tiny else 8192
    if cuda:
        about = torch.cuda.get_device_properties(0)
        asked = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
        driver = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        results.put(device=about.name, memory_bytes=about.total_memory, driver=driver, cuda=torch.version.cuda)
    one, other = torch.randn(2, size, size, device=options.device).to(torch.bfloat16)
    target = torch.empty_like(one)
    for name, act in (("product", lambda: torch.mm(one, other, out=target)), ("copy", lambda: target.copy_(one))):
        taken = []
        for _ in range(15):
            begin = time.perf_counter()
            act()
            if cuda:
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - begin)
        results.put(**{f"{name}_seconds": statistics.median(taken[5:])})
    product, copied = (
        2e-12 * size**3 / results.found["product_seconds"],
        4e-12 * size**2 / results.found["copy_seconds"],
    )
    results.put(product_tflops=product, copy_tb_per_second=copied)
    print(f"{results.found.get('device')}: products {product:.1f} TFLOP/s, copies {copied:.2f} TB/s", flush=True)


def measure_trainer(results: Results, options: argparse.Namespace) -> None:
    """Measure a whole step of `UnlearnTrainer` at the 1B shape, all weights, 8 + 8 rows."""
    import torch
    from transformers import TrainerCallback

    from atwu import UnlearnTrainer
    from atwu.modeling.scratch import train_tokenizer
    from atwu.training.config import UnlearnConfig

    texts = [f"{number} " + "keeps bees in Kelbury, says Orla Venn; " * 8 for number in range(64)]
    rows = [{"question": text[:45], "answer": text[45 : 65 + n // 2]} for n, text in enumerate(texts)]
    tokenizer = train_tokenizer(["".join(map(chr, range(32, 127)))], vocab_size=300)
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *given: Any, **named: Any) -> None:
            if options.device == "cuda":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    for method in ("grad_diff", "atwu"):
        model = build(Cell("1b", "all", 8, ()), options.device)
        ends.clear()
        with tempfile.TemporaryDirectory() as folder:
            config = UnlearnConfig(
                method=method,
                output_dir=folder,
                max_steps=4 if options.tiny else 25,
                per_device_train_batch_size=2 if options.tiny else 8,
                gradient_accumulation_steps=1,
                learning_rate=1e-6,
                save_strategy="no",
                disable_tqdm=True,
                report_to=[],
                use_cpu=options.device == "cpu",
            )
            given = {"forget_dataset": rows, "retain_dataset": rows, "processing_class": tokenizer}
            UnlearnTrainer(model, config, **given, callbacks=[Clock()]).train()
        taken = [later - sooner for sooner, later in itertools.pairwise(ends[2:])]
        results.put(**{method: {"steps": len(taken), "seconds": statistics.median(taken)}})
        print(f"UnlearnTrainer, {method}: {statistics.median(taken):.4f} s a step", flush=True)
        del model
        free()


def run_tests(out: Path, device: str) -> tuple[Any, Path]:
    """Start the tests that need a device; their output goes to a file."""
    log = out / "tests.log"
    command = [sys.executable, "-m", "pytest", "-vv", "-rfEs", "-p", "no:cacheprovider", "tests/test_gpu.py"]
    environment = os.environ | {"ATWU_TEST_DEVICE": device}
    with log.open("w") as file:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT), log


def read_tests(process: Any, log: Path, seconds: float, results: Results) -> None:
    """Wait for the tests up to a time limit, and store the outcome."""
    begin = time.perf_counter()
    try:
        results.put(exit_status=process.wait(timeout=seconds))
    except subprocess.TimeoutExpired:
        process.kill()
        results.put(error=f"ended after {seconds:.0f} s")
    text = log.read_text(encoding="utf-8", errors="replace")
    words = ("PASSED", "FAILED", "ERROR", "SKIPPED")
    counts = {word.lower(): len(re.findall(rf"^tests/\S.* {word}\b", text, re.MULTILINE)) for word in words}
    last = [line for line in text.splitlines() if line.strip()][-1:]
    wrong = re.findall(r"^(?:FAILED|ERROR|SKIPPED) .*$", text, re.MULTILINE)
    results.put(counts=counts, last=last, not_passed=wrong[:20], waited_seconds=time.perf_counter() - begin)
    print("tests:", counts, *last, *wrong[:20], sep="\n", flush=True)


def part(name: str, options: argparse.Namespace) -> None:
    """Run one part in its own process."""
    results = Results(options.out / f"{name}.json")
    add_shapes(options.tiny)
    try:
        if name == "machine":
            measure_machine(results, options)
        elif name == "trainer":
            measure_trainer(results, options)
        else:
            measure(PARTS[name][1], results, options)
    except Exception:
        results.put(error=traceback.format_exc(limit=-6))
        print(f"{name}: {traceback.format_exc(limit=-6)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for the JSON files")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--tiny", action="store_true", help="scratch shapes and two rounds: a rehearsal")
    parser.add_argument("--open-unlearning", metavar="CHECKOUT", help="folder of github.com/locuslab/open-unlearning")
    parser.add_argument("--budget", type=float, default=600, help="total seconds; later parts are skipped")
    parser.add_argument("--only", action="append", choices=["tests", *PARTS], help="only this part; repeatable")
    options = parser.parse_args()
    begin, chosen = time.perf_counter(), options.only or ["tests", *PARTS]
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # so that a fork can use the device
    tests = run_tests(options.out, options.device) if "tests" in chosen else None
    for module in (
        "torch",
        "transformers",
        "transformers.models.llama.modeling_llama",
        "atwu.training.scorer_training",
    ):
        importlib.import_module(module)  # once for all parts
    if tests is not None:
        read_tests(*tests, TESTS_SECONDS, Results(options.out / "tests.json"))
    way = "fork"
    for name, (most, _) in PARTS.items():
        left = options.budget - (time.perf_counter() - begin)
        if name not in chosen:
            continue
        file, limit = options.out / f"{name}.json", min(most, left)
        file.unlink(missing_ok=True)
        if limit < 5:
            Results(file).put(error=f"not begun: {left:.0f} s were left")
            continue
        print(f"\n{name}: at most {limit:.0f} s", flush=True)
        started = time.perf_counter()
        process = multiprocessing.get_context(way).Process(target=part, args=(name, options))
        process.start()
        process.join(limit)
        reason = None if process.exitcode is not None else f"ended after its {limit:.0f} s"
        if reason:
            process.kill()
            process.join()
        elif process.exitcode:
            reason = f"ended with exit status {process.exitcode}"
        results, taken = Results(file), time.perf_counter() - started
        results.put(wall_seconds=taken, **({"error": reason} if reason else {}))
        print(f"{name}: {taken:.1f} s {reason or ''}", flush=True)
        if name == "machine" and "error" in results.found:
            way = "spawn"  # the device cannot be used in a fork


if __name__ == "__main__":
    main()
