"""Compare the memory estimate of `atwu plan` with measured memory: peak resident size of a separate process, on a CPU.

The models are randomly initialized Llamas of three sizes with SmolLM2's tokenizer; the middle one has SmolLM2's shape. Each
run takes three steps of eight forget and eight retain rows.

    python benchmarks/memory.py
    python benchmarks/memory.py --large 24 80    # estimates for well-known models on cards of 24 and 80 GB
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from step_implementations import elsewhere

SHAPES: dict[str, dict[str, int]] = {
    "42M": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 14, "num_attention_heads": 6},
    "135M": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9},
    "362M": {"hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 15},
}
LARGE: dict[str, dict[str, Any]] = {
    "Qwen3-0.6B": {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    },
    "Llama-3.2-1B": {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
    },
    "Qwen3-4B": {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
    },
    "Llama-3.1-8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
}
"""Shapes of published models; all have eight key-value heads."""
VOCABULARY = {"qwen3": 151_936, "llama": 128_256}
MEMORY_STRATEGIES: dict[str, dict[str, Any]] = {
    "full fine-tuning": {},
    "activation checkpointing": {"activation_checkpointing": True},
    "LoRA": {"lora_r": 16},
    "LoRA, checkpointing": {"lora_r": 16, "activation_checkpointing": True},
    "npo, kl": {"method": "npo", "retain_loss": "kl"},
}


def make(shape: str, folder: Path) -> Path:
    """Create a randomly initialized model of that shape."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from atwu.modeling.load import load_tokenizer

    place = folder / shape
    if not place.is_dir():
        torch.manual_seed(0)
        sizes = SHAPES[shape]
        heads = sizes["num_attention_heads"] // 3
        config = LlamaConfig(**sizes, num_key_value_heads=heads, vocab_size=49_152, tie_word_embeddings=True)
        LlamaForCausalLM(config).save_pretrained(place)
        load_tokenizer("smollm2").save_pretrained(place)
    return place


def estimate(shape: str, folder: Path, options: dict[str, Any]) -> Any:
    """Return the estimate of `atwu plan`."""
    from atwu.modeling.load import load_tokenizer
    from atwu.training.config import UnlearnConfig
    from atwu.training.load_to_train import ModelSource
    from atwu.training.memory_estimate import longest_batch, measure_footprint, memory
    from atwu.training.training_rows import unlearning_rows

    source, config = ModelSource(model=str(folder / shape)), UnlearnConfig(**options)
    rows = unlearning_rows(*ROWS, config, tokenizer=load_tokenizer(str(folder / shape)))
    return memory(measure_footprint(source, config, longest_batch(rows, config), device="cpu"), config, device="cpu")


def large(sizes: list[float]) -> None:
    """Print estimates for models that are not downloaded."""
    from transformers import AutoConfig

    from atwu.modeling.load import load_tokenizer
    from atwu.request.auto_settings import strategy_estimates
    from atwu.training.config import UnlearnConfig
    from atwu.training.load_to_train import ModelSource
    from atwu.training.memory_estimate import longest_batch
    from atwu.training.training_rows import unlearning_rows

    def shaped(shape: dict[str, Any]) -> ModelSource:
        class Shaped(ModelSource):
            def architecture(self) -> Any:
                known = {"num_key_value_heads": 8, "tie_word_embeddings": True, "dtype": "bfloat16"} | shape
                return AutoConfig.for_model(vocab_size=VOCABULARY[shape["model_type"]], **known)

        return Shaped(scratch="tofu2m")

    config = UnlearnConfig(use_cpu=True)
    batch = longest_batch(unlearning_rows(*ROWS, config, tokenizer=load_tokenizer("smollm2")), config)
    print(
        f"bfloat16 weights, {batch.input_ids.numel():,} tokens a batch; fits on: {', '.join(f'{size:g} GB' for size in sizes)}"
    )
    for name, shape in LARGE.items():
        for each in strategy_estimates(shaped(shape), {}, batch, device="cuda", free=max(sizes) * 1e9):
            fits = "  ".join("yes" if each.memory.peak <= 0.9e9 * size else "no " for size in sizes)
            print(f"{name:13} {each.strategy.description:36} {each.memory.peak / 1e9:6.1f} GB  {fits}")


ROWS = ("people:small:forget", "people:small:retain")


def measured(shape: str, folder: Path, options: dict[str, Any]) -> int:
    """Return the measured peak of a run in bytes."""
    import torch

    torch.set_num_threads(1)
    from atwu.modeling.device import peak_memory
    from atwu.modeling.load import quiet_transformers
    from atwu.training.config import UnlearnConfig
    from atwu.training.unlearn_run import ModelSource, run_unlearn

    quiet_transformers()
    with tempfile.TemporaryDirectory() as out:
        source, config = ModelSource(model=str(folder / shape)), UnlearnConfig(**options)
        run_unlearn(source, config, forget=ROWS[0], retain=ROWS[1], output=f"{out}/run")
    return peak_memory(torch.device("cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8, help="forget rows of a step; as many retain rows")
    parser.add_argument("--only", choices=SHAPES, help="one size")
    parser.add_argument("--large", type=float, nargs="+", metavar="GB", help="print estimates for well-known models")
    arguments = parser.parse_args()
    if arguments.large:
        large(arguments.large)
        return
    common = {
        "use_cpu": True,
        "max_steps": 3,
        "per_device_train_batch_size": arguments.rows,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-5,
        "save_strategy": "no",
    }
    print(f"{'':6} {'':24} {'estimated':>9} {'measured':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for shape in [arguments.only] if arguments.only else SHAPES:
            make(shape, Path(folder))
            for name, options in MEMORY_STRATEGIES.items():
                settings = common | options
                estimated = estimate(shape, Path(folder), settings).peak
                peak = elsewhere(measured, shape, Path(folder), settings)
                print(
                    f"{shape:6} {name:24} {estimated / 1e9:6.2f} GB {peak / 1e9:6.2f} GB {estimated / peak:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
