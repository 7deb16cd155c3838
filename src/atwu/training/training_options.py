"""Options of training runs, for Python, YAML and the command line. Importing this module does not need torch.

The configurations of `atwu.training.config` have these fields in addition to those of transformers'
`TrainingArguments`, whose
defaults are repeated here for documentation. `group` is the heading on the command line; options without one are listed
only
with --help-all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

BATCH_LAYOUTS = ("auto", "packed", "padded")
QUANTIZATIONS = ("4bit", "8bit")
REFERENCE_MODES = ("auto", "cache", "model", "adapters")


def training_option(default: Any, help: str, *, group: str = "", choices: Sequence[str] = ()) -> Any:
    """Define an option with its help text."""
    return field(default=default, metadata={"help": help, "group": group, "choices": tuple(choices)})


@dataclass(kw_only=True)
class TrainingOptions:
    """Options of every trainer of this package, with the training defaults of the papers."""

    output_dir: str | None = training_option(None, "Folder for checkpoints of the trainer.")
    learning_rate: float = training_option(1e-5, "Peak learning rate of the model.", group="Training")
    num_train_epochs: float = training_option(5, "Number of epochs.", group="Training")
    max_steps: int = training_option(-1, "Number of optimizer steps, overrides epochs.", group="Training")
    per_device_train_batch_size: int = training_option(
        8, "Rows per step and device (of pairs: forget rows).", group="Training"
    )
    gradient_accumulation_steps: int = training_option(1, "Gradient accumulation steps.", group="Training")
    dataloader_drop_last: bool = training_option(
        False,
        "Drop rows at the end of an epoch that do not fill an optimizer step, as published code does; if all rows "
        "are fewer than one step, they form one.",
    )
    warmup_steps: float = training_option(0, "Warm-up: steps, or share of the run if below 1.", group="Training")
    lr_scheduler_type: str = training_option("linear", "Learning rate schedule: linear, cosine, constant, ...")
    weight_decay: float = training_option(0.01, "Weight decay of the model's optimizer.")
    seed: int = training_option(42, "Seed of all random draws.", group="Training")
    max_length: int = training_option(
        512, "Maximum length of a row in tokens; longer answers are truncated and counted.", group="Training"
    )
    system: str | None = training_option(
        None, "System prompt for conversations without one, as the model was trained with.", group="Training"
    )
    bf16: bool = training_option(False, "Mixed precision: compute in bfloat16, keep float32 weights.", group="Machine")
    activation_checkpointing: bool | None = training_option(
        None, "Activation checkpointing: less memory, about a third more time.", group="Machine"
    )
    use_cpu: bool = training_option(False, "Use the CPU.", group="Machine")
    fsdp: bool | None = training_option(None, "Shard weights, gradients and optimizer state over processes (FSDP 2).")
    layout: str = training_option(
        "auto",
        "Batch layout of the forward pass: packed, padded, or auto (the faster one).",
        choices=BATCH_LAYOUTS,
    )
    lora_r: int = training_option(0, "LoRA rank; 0 trains all weights.", group="Adapters")
    lora_alpha: float | None = training_option(
        None, ("LoRA alpha; the scale is lora_alpha / lora_r. Default: twice lora_r.")
    )
    lora_targets: str | None = training_option(
        None, "Linear layers or experts to adapt, such as q_proj,v_proj; default: all decoder layers except routers."
    )
    lora_dropout: float = training_option(0.0, "LoRA dropout.")
    quantize: str | None = training_option(
        None, "Load the base weights under LoRA as 4bit or 8bit, on a GPU.", group="Adapters", choices=QUANTIZATIONS
    )
    save_adapter: bool = training_option(False, "Save only the adapters instead of the merged model.", group="Adapters")
    logging_steps: float = training_option(1, "Log every this many optimizer steps.")
    report_to: str | list[str] | None = training_option("none", "Loggers, e.g. wandb or tensorboard.")
    save_strategy: str = training_option("epoch", "When to write checkpoints: epoch, steps or no.")
    save_steps: float = training_option(500, "Optimizer steps between checkpoints, with save_strategy steps.")
    save_total_limit: int | None = training_option(
        2,
        "Maximum number of checkpoints, each three times the trained weights in size. With 2, a damaged one costs "
        "the steps since the one before it; with 1, all steps.",
    )
    push_to_hub: bool = training_option(False, "Upload the finished folder to the Hub.")
    disable_tqdm: bool | None = training_option(None, "Disable progress bars.")
    remove_unused_columns: bool = training_option(False, "Keep false: rows are token batches.")
    logging_nan_inf_filter: bool = training_option(False, "Keep false: a non-finite loss stops the run.")


@dataclass(kw_only=True)
class UnlearnOptions(TrainingOptions):
    """Options of unlearning. Options of a method's components are in `component_options`, and can be given by their
    own names."""

    method: str = training_option("atwu", "Method, see `atwu methods`.", group="Method")
    weighting: str | Callable[..., Any] | None = training_option(
        None, "Token weighting, replaces the method's; a*b multiplies two, a+b averages ranks.", group="Method"
    )
    forget_loss: str | Callable[..., Any] | None = training_option(
        None, "Forget loss, replaces the method's.", group="Method"
    )
    retain_loss: str | None = training_option(None, "Retain loss, replaces the method's.", group="Method")
    preserve: str | None = training_option(
        None,
        "Preserve loss on the answer tokens that the weighting spares: kl (to the original model), nll or none.",
        group="Method",
        choices=("kl", "nll", "none"),
    )
    forms: str = training_option(
        "none",
        "Forms of each question to train on: auto, none, or names such as question,blank; retain rows are paired by form.",
        group="Method",
    )
    configuration: str = training_option(
        "ours",
        "Values of unset options: ours (best in our experiments), authors (published code), paper (its text).",
        group="Method",
        choices=("ours", "authors", "paper"),
    )
    forget_words: str | None = training_option(
        None, "File of words to label, one per line, in answers that have no forget_spans."
    )
    reference: str = training_option(
        "auto",
        "Source of reference model values: cache (on disk), model (second copy), adapters (disabled), auto.",
        choices=REFERENCE_MODES,
    )
    sam_radius: float = training_option(
        0.0,
        "SAM radius: evaluate the forget loss where it is highest within this distance of the weights (L2 over all "
        "trained weights), for robustness to relearning; 0 disables it.",
    )
    weight_noise: float = training_option(
        0.0,
        "Standard deviation of weight noise at which the forget loss is evaluated, relative to the root mean square "
        "of each tensor, for robustness to quantization; 0 disables it.",
    )
    cache_dir: str | None = training_option(None, "Cache folder; default: ATWU_CACHE or ~/.cache/atwu.")
    component_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "Options of the method's components, by name."}
    )

    learning_rate: float = training_option(2e-5, "Peak learning rate of the model.", group="Training")
    num_train_epochs: float = training_option(10, "Epochs over the forget set.", group="Training")
    gradient_accumulation_steps: int = training_option(4, "Gradient accumulation steps.", group="Training")
    warmup_steps: float = training_option(0.1, "Warm-up: steps, or share of the run if below 1.", group="Training")
