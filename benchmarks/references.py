"""Measure the cost of a reference model: memory and time of training steps, relative to GradDiff.

Each case is an `UnlearnTrainer` run of a few steps in its own process; reference values come from the cache (filled by an
earlier process) or from a second model. Memory is the peak resident size above that of a process with all libraries loaded
(on CUDA: the allocator's peak). Model, rows and lengths are those of step.py.

    python benchmarks/references.py --vocabulary 32768
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time

from step_implementations import LLAMA, SHAPES, Setting, build_batches, build_model, elsewhere, one_word_tokenizer

ROWS, STEPS = 8, 6
SIDES = {
    "grad_diff": {"method": "grad_diff"},
    "npo": {"method": "npo"},
    "grad_diff, KL retain": {"method": "grad_diff", "retain_loss": "kl"},
    "grad_diff, JS retain": {"method": "grad_diff", "retain_loss": "js"},
    "undial": {"method": "undial"},
    "undial, KL retain": {"method": "undial", "retain_loss": "kl"},
    "rmu": {"method": "rmu"},
    "grad_diff, activation retain": {"method": "grad_diff", "retain_loss": "activation"},
}


def rows_of(batches):
    """Return a set of rows that have no text, since only their lengths matter."""
    from atwu.data.encode import EncodedRow
    from atwu.training.row_sets import RowSet

    rows = []
    for batch in batches:
        for ids, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True):
            size = int(mask.sum())
            tokens, counted = tuple(ids[:size].tolist()), tuple(labels[:size].tolist())
            rows.append(EncodedRow(tokens, counted, None, (None,) * size, True))
    return RowSet(rows, ())


def worker(options, vocabulary: int, device: str, cache: str, steps: int) -> tuple[int, float]:
    """Return the peak in bytes, and seconds per step."""
    import torch
    from transformers import TrainerCallback

    from atwu import UnlearnConfig, UnlearnTrainer
    from atwu.modeling.device import peak_memory
    from atwu.training.training_rows import UnlearningRows

    begun: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            begun.append(time.perf_counter())

    where = torch.device(device)
    bare = peak_memory(where)
    SHAPES["references"] = LLAMA | {"intermediate_size": 1408, "vocab_size": vocabulary}
    setting = Setting("references", device, "float32", STEPS, ROWS, checkout=None)
    batches = build_batches(setting)
    config = UnlearnConfig(
        output_dir=cache + "/unused",
        save_strategy="no",
        disable_tqdm=True,
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=1,
        max_steps=steps,
        cache_dir=cache,
        use_cpu=device == "cpu",
        **options,
    )
    forget, retain = map(rows_of, zip(*batches, strict=True))
    trainer = UnlearnTrainer(
        build_model(setting),
        config,
        forget_dataset=UnlearningRows(forget, retain, None),
        processing_class=one_word_tokenizer(),
        callbacks=[Clock()],
    )
    trainer.train()
    seconds = [end - start for start, end in zip(begun, [*begun[1:], time.perf_counter()], strict=True)]
    peak = peak_memory(where) - (0 if device == "cuda" else bare)
    return peak, statistics.median(seconds[1:]) if steps > 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--vocabulary", type=int, default=32_768)
    arguments = parser.parse_args()
    # makes glibc map larger tensors separately and return them when freed; otherwise its reserve would be counted
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 18)
    print("| method | reference | peak MB | / grad_diff | s/step | / grad_diff |\n|---|---|---|---|---|---|")
    base: tuple[int, float] | None = None
    with tempfile.TemporaryDirectory() as cache:
        for name, options in SIDES.items():
            modes = ("cache",) if base is None else ("cache", "model")
            for mode in modes:
                asked = ({**options, "reference": mode}, arguments.vocabulary, arguments.device, cache)
                elsewhere(worker, *asked, 1)  # fills the cache
                peak, seconds = elsewhere(worker, *asked, STEPS)
                base = base or (peak, seconds)
                cells = (f"{peak / 1e6:.0f}", f"{peak / base[0]:.2f}", f"{seconds:.3f}", f"{seconds / base[1]:.2f}")
                print(f"| {name} | {mode if len(modes) > 1 else 'none'} | {' | '.join(cells)} |", flush=True)
    print(f"vocabulary {arguments.vocabulary}, {ROWS} rows a step, {arguments.device}", file=sys.stderr)


if __name__ == "__main__":
    main()
