"""What can be set about a training run: one list for Python, YAML and the command line. Reading it needs no torch.

The configurations of `atwu.training.config` have these fields beside those of transformers' `TrainingArguments`, whose
defaults are repeated here where people look for them. `group` says under which heading the command line shows a field;
without one it is shown on request only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

BATCH_LAYOUTS = ("auto", "packed", "padded")
QUANTIZATIONS = ("4bit", "8bit")
REFERENCE_MODES = ("auto", "cache", "model", "adapters")


def training_option(default: Any, help: str, *, group: str = "", choices: Sequence[str] = ()) -> Any:
    """A field with what the command line and the documentation say about it."""
    return field(default=default, metadata={"help": help, "group": group, "choices": tuple(choices)})


@dataclass(kw_only=True)
class TrainingOptions:
    """Shared by every trainer of this package, with the training defaults of the papers."""

    output_dir: str | None = training_option(None, "Folder for checkpoints of this trainer.")
    learning_rate: float = training_option(1e-5, "Peak learning rate of the model.", group="Training")
    num_train_epochs: float = training_option(5, "Passes over the rows.", group="Training")
    max_steps: int = training_option(-1, "Optimizer steps instead of epochs.", group="Training")
    per_device_train_batch_size: int = training_option(
        8, "Rows per step and device; of a pair, forget rows.", group="Training"
    )
    gradient_accumulation_steps: int = training_option(1, "Batches per optimizer step.", group="Training")
    dataloader_drop_last: bool = training_option(
        False,
        "Leave out rows at an epoch's end that fill no whole optimizer step, as published code does; where all rows are less "
        "than a step they are one.",
    )
    warmup_steps: float = training_option(0, "Warm-up: steps, or share of the run if below 1.", group="Training")
    lr_scheduler_type: str = training_option("linear", "Course of the learning rate: linear, cosine, constant, ...")
    weight_decay: float = training_option(0.01, "Weight decay of the model's optimizer.")
    seed: int = training_option(42, "Decides every random draw of the run.", group="Training")
    max_length: int = training_option(
        512, "Longest row in tokens; longer answers are cut and counted.", group="Training"
    )
    system: str | None = training_option(
        None, "System turn put before conversations that have none, as the model was trained with.", group="Training"
    )
    bf16: bool = training_option(
        False, "Compute in bfloat16 where that is safe, with float32 weights.", group="Machine"
    )
    activation_checkpointing: bool | None = training_option(
        None, "Gradient checkpointing: less memory for activations, a third more time.", group="Machine"
    )
    use_cpu: bool = training_option(False, "Stay on the CPU.", group="Machine")
    fsdp: bool | None = training_option(
        None, "Shard weights, gradients and optimizer state over the processes (FSDP 2)."
    )
    layout: str = training_option(
        "auto", "Rows in the forward pass: packed end to end, padded, or auto (measured best).", choices=BATCH_LAYOUTS
    )
    lora_r: int = training_option(
        0, "Rank of LoRA adapters to train instead of the weights; 0 trains the weights.", group="Adapters"
    )
    lora_alpha: float | None = training_option(None, "LoRA's scale is lora_alpha / lora_r; default: twice lora_r.")
    lora_targets: str | None = training_option(
        None, "Linear layers or experts with adapters, such as q_proj,v_proj; default: all of the decoder but routers."
    )
    lora_dropout: float = training_option(0.0, "Dropout in front of the adapters.")
    quantize: str | None = training_option(
        None, "Load the weights under the adapters as 4bit or 8bit, on a GPU.", group="Adapters", choices=QUANTIZATIONS
    )
    save_adapter: bool = training_option(
        False, "Write the adapters alone, not the model with them merged in.", group="Adapters"
    )
    logging_steps: float = training_option(1, "Log every this many optimizer steps.")
    report_to: str | list[str] | None = training_option("none", "Loggers, e.g. wandb or tensorboard.")
    save_strategy: str = training_option("epoch", "When to write a checkpoint to resume from: epoch, steps or no.")
    save_steps: float = training_option(500, "Optimizer steps between checkpoints, with save_strategy steps.")
    save_total_limit: int | None = training_option(
        2,
        "How many checkpoints to keep while running, each three times the trained weights on disk; with 2, a damaged one "
        "costs the steps since the one before it, with 1 all of them.",
    )
    push_to_hub: bool = training_option(False, "Upload the finished folder to the Hub.")
    disable_tqdm: bool | None = training_option(None, "Show no progress.")
    remove_unused_columns: bool = training_option(False, "Leave at false: rows are token batches.")
    logging_nan_inf_filter: bool = training_option(False, "Leave at false: a non-finite loss stops the run.")


@dataclass(kw_only=True)
class UnlearnOptions(TrainingOptions):
    """Unlearning. The numbers and settings of a method's parts are in `component_options`, and are given by their own names."""

    method: str = training_option("atwu", "Method from `atwu methods`.", group="Method")
    weighting: str | Callable[..., Any] | None = training_option(
        None, "Token weighting instead of the method's; a*b multiplies two, a+b averages ranks.", group="Method"
    )
    forget_loss: str | Callable[..., Any] | None = training_option(
        None, "Forget loss instead of the method's.", group="Method"
    )
    retain_loss: str | None = training_option(None, "Retain loss instead of the method's.", group="Method")
    preserve: str | None = training_option(
        None,
        "Keep the answer tokens that the weighting spares: kl (close to the original model), nll or none.",
        group="Method",
        choices=("kl", "nll", "none"),
    )
    configuration: str = training_option(
        "ours",
        "Settings that are not given: ours (measured best), authors (published code), paper (its text).",
        group="Method",
        choices=("ours", "authors", "paper"),
    )
    forget_words: str | None = training_option(
        None, "File of secret words, one per line: labels answers that lack forget_spans."
    )
    reference: str = training_option(
        "auto",
        "Starting model's numbers: cache (on disk), model (a second one), adapters (off), auto.",
        choices=REFERENCE_MODES,
    )
    sam_radius: float = training_option(
        0.0,
        "Sharpness-aware: take the forget loss where it is highest within this distance of the weights (L2 over all that are "
        "trained), so that relearning brings back less; 0 is off.",
    )
    weight_noise: float = training_option(
        0.0,
        "Take the forget loss at weights with normal noise of this deviation, relative to the root mean square of each tensor, "
        "so that rounding brings back less; 0 is off.",
    )
    cache_dir: str | None = training_option(None, "Folder of caches; default: ATWU_CACHE or ~/.cache/atwu.")
    component_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "Numbers and settings of the method's parts by name."}
    )

    learning_rate: float = training_option(2e-5, "Peak learning rate of the model.", group="Training")
    num_train_epochs: float = training_option(10, "Passes over the forget set.", group="Training")
    gradient_accumulation_steps: int = training_option(4, "Batches per optimizer step.", group="Training")
    warmup_steps: float = training_option(0.1, "Warm-up: steps, or share of the run if below 1.", group="Training")
