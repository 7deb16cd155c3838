"""Options of training runs, for Python, YAML and the command line. Importing this module does not need torch.

The configurations of `atwu.training.config` have these fields in addition to those of transformers' `TrainingArguments`, whose
defaults are repeated here for documentation. Of several types, `HfArgumentParser` takes the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

QUANTIZATIONS = ("4bit", "8bit")
REFERENCE_MODES = ("auto", "cache", "model", "adapters")

# Bounds are in the type, since `HfArgumentParser` passes all metadata to argparse.
PositiveInt = Annotated[int, ("least", 1)]
NonNegativeInt = Annotated[int, ("least", 0)]
NonNegativeFloat = Annotated[float, ("least", 0)]
PositiveFloat = Annotated[float, ("above", 0)]
Share = Annotated[float, ("least", 0), ("most", 1)]
# transformers seeds NumPy, which takes no larger number.
SeedInt = Annotated[int, ("least", 0), ("most", 2**32 - 1)]


FURTHER_FLAGS = ("optim", "fp16", "run_name", "hub_model_id")
"""Fields of `TrainingArguments` that have a flag although no class here declares them; all others are given as JSON."""
UPDATE_OPTIONS = ("sam_radius", "weight_noise", "rectify_gradient", "collapse_components", "clean_change")
"""Options of unlearning that change the updates of any method, or all of them together."""


def training_option(default: Any, help: str, *, choices: Sequence[str] = ()) -> Any:
    metadata: dict[str, Any] = {"help": help}
    if choices:
        metadata["choices"] = tuple(choices)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class TrainingOptions:
    """Options of every trainer of this package, with the training defaults of the papers."""

    output_dir: str | None = training_option(None, "Folder for the checkpoints of the trainer.")
    learning_rate: NonNegativeFloat = training_option(1e-5, "Peak learning rate of the model.")
    num_train_epochs: float = training_option(5, "Number of training epochs.")
    max_steps: int = training_option(-1, "Number of optimizer steps; overrides the number of epochs.")
    per_device_train_batch_size: PositiveInt = training_option(
        8,
        "Rows per forward pass and device; in unlearning, forget rows, each paired with a retain row.",
    )
    gradient_accumulation_steps: PositiveInt = training_option(1, "Forward passes per optimizer step.")
    dataloader_drop_last: bool = training_option(
        False,
        "Drop the last rows of an epoch if they do not fill an optimizer step, as published code does. An epoch with "
        "fewer rows than one step is kept.",
    )
    warmup_steps: NonNegativeFloat = training_option(
        0, "Learning rate warmup in optimizer steps; a value below 1 is a share of all steps."
    )
    lr_scheduler_type: str = training_option(
        "linear", "Learning rate schedule of transformers, such as linear, cosine or constant."
    )
    weight_decay: NonNegativeFloat = training_option(0.01, "Weight decay of the model's optimizer.")
    max_grad_norm: NonNegativeFloat = training_option(1.0, "Gradient clipping norm; 0 disables it.")
    seed: SeedInt = training_option(42, "Seed of all random draws.")
    max_length: Annotated[int, ("least", 8)] = training_option(
        512, "Maximum row length in tokens; longer answers are truncated with a warning."
    )
    system: str | None = training_option(
        None,
        "System prompt for conversations without one; use the one that the model was trained with. Default: none.",
    )
    bf16: bool = training_option(False, "Mixed precision: compute in bfloat16 and keep float32 weights.")
    activation_checkpointing: bool | None = training_option(
        None, "Recompute activations in the backward pass: less memory, about a third more time."
    )
    use_cpu: bool = training_option(False, "Train on the CPU even if a GPU is available.")
    fsdp: bool | None = training_option(
        None, "Shard weights, gradients and optimizer state over processes (FSDP 2). Default: no."
    )
    lora_r: NonNegativeInt = training_option(0, "LoRA rank; 0 trains all weights.")
    lora_alpha: float | None = training_option(
        None, "LoRA alpha: updates are scaled by lora_alpha / lora_r. Default: 2 x lora_r."
    )
    lora_targets: str | None = training_option(
        None, "Linear layers or experts to adapt, such as q_proj,v_proj. Default: all of the decoder except routers."
    )
    lora_dropout: Share = training_option(0.0, "Dropout probability of LoRA.")
    quantize: str | None = training_option(
        None,
        "Quantize the frozen base weights under LoRA with bitsandbytes; needs a CUDA device.",
        choices=QUANTIZATIONS,
    )
    save_adapter: bool = training_option(False, "Save only the LoRA adapters instead of the merged model.")
    logging_steps: NonNegativeFloat = training_option(1, "Optimizer steps between two log entries.")
    report_to: list[str] | str | None = training_option("none", "Loggers, such as wandb or tensorboard.")
    save_strategy: str = training_option("epoch", "When to write checkpoints: epoch, steps or no.")
    save_steps: PositiveFloat = training_option(500, "Optimizer steps between checkpoints if save_strategy is steps.")
    save_total_limit: NonNegativeInt | None = training_option(
        2,
        "Maximum number of checkpoints to keep; each is three times as large as the trained weights. If the last one is "
        "damaged, a run resumes from the one before it; with a limit of 1 it starts again.",
    )
    push_to_hub: bool = training_option(False, "Upload the finished output folder to the Hub.")
    disable_tqdm: bool | None = training_option(None, "Disable progress bars. Default: show them.")
    # transformers' defaults are true: it would drop all columns of our batches, and log another number for a loss that is not
    # finite.
    remove_unused_columns: bool = training_option(False, "Must stay false: rows are batches of tokens.")
    logging_nan_inf_filter: bool = training_option(False, "Must stay false: a non-finite loss stops the run.")


@dataclass(kw_only=True)
class UnlearnOptions(TrainingOptions):
    """Options of unlearning. Options of a method's components are in `component_options`, and can be given by their
    own names."""

    method: str = training_option("atwu", "Unlearning method, see `atwu methods`.")
    weighting: str | None = training_option(
        None,
        "Token weighting instead of the method's; A*B multiplies two weightings, A+B averages their ranks.",
    )
    forget_loss: str | None = training_option(None, "Forget loss instead of the method's.")
    retain_loss: str | None = training_option(None, "Retain loss instead of the method's.")
    preserve: str | None = training_option(
        None,
        "Preserve loss on forget-answer tokens of low weight: kl (to the original model), nll or none.",
        choices=("kl", "nll", "none"),
    )
    replacement: str | None = training_option(
        None,
        "What is said instead: refusal (--refusal-sentence), alternative (column alternate of the forget rows) or none.",
        choices=("refusal", "alternative", "none"),
    )
    forms: str = training_option(
        "none",
        "Forms of each question to train on: auto, none, syntax (cleft sentence, relative clause, passive), or names such as "
        "question,blank, also together; retain rows are paired by form.",
    )
    pairing: str = training_option(
        "random",
        "Retain rows of a forget row: random, or closest (every other draw is one of the 8 with the most similar questions).",
        choices=("random", "closest"),
    )
    retain_per_forget: PositiveInt = training_option(1, "Retain rows drawn for each forget row of a batch.")
    configuration: str = training_option(
        "ours",
        "Values of unset options: ours (best in our experiments), authors (published code) or paper (its text).",
        choices=("ours", "authors", "paper"),
    )
    forget_leaks: bool = training_option(
        False,
        "Unlearn what checks during an adaptive run find: if an answer in a form that is not trained on states a fact, the row "
        "in that form is a forget row from then on.",
    )
    further_forget: str | None = training_option(
        None,
        "Source of rows that state the same facts differently, unlearned, too; each replaces the form with its prompt.",
    )
    further_retain: str | None = training_option(
        None, "Source of further retain rows; each replaces the form with its prompt, as with further_forget."
    )
    forget_words: str | None = training_option(
        None, "Text file of words, one per line, to label in answers without forget_spans."
    )
    reference: str = training_option(
        "auto",
        "Outputs of the reference model: cache (computed before training, on disk), model (a second copy in memory), "
        "adapters (this model with its adapters disabled), or auto.",
        choices=REFERENCE_MODES,
    )
    sam_radius: NonNegativeFloat = training_option(
        0.0,
        "SAM, for robustness to relearning: the forget loss is evaluated at the weights within this L2 distance where it "
        "is highest; 0 disables it.",
    )
    weight_noise: NonNegativeFloat = training_option(
        0.0,
        "Weight noise, for robustness to quantization: the forget loss is evaluated at weights with Gaussian noise of this "
        "standard deviation, relative to the root mean square of each tensor; 0 disables it.",
    )
    rectify_gradient: Share = training_option(
        0.0,
        "GRU: remove the part of the forget gradient that opposes a moving average of the retain gradient, in which the "
        "current step has this weight (GRU: 0.8; PCGrad: 1); 0 disables it.",
    )
    collapse_components: NonNegativeInt = training_option(
        0,
        "RepSelect, for robustness to relearning: number of leading components of the forget gradient of each weight matrix "
        "(published: 512 of 4096) that are divided by the square of their size relative to the last one; 0 disables it.",
    )
    clean_change: NonNegativeFloat = training_option(
        0.0,
        "SAGE, against damage: after training, the weight change along each direction of the inputs of retain rows is divided "
        "by 1 + this value x energy of the direction / mean energy; 0 disables it.",
    )
    cache_dir: str | None = training_option(
        None, "Cache folder. Default: the environment variable ATWU_CACHE, else ~/.cache/atwu."
    )
    component_options: dict[str, Any] | str | None = field(
        default_factory=dict, metadata={"help": "Options of the components of the method, by name; or their JSON."}
    )

    # ATWU on TOFU with the 1B model: 10 epochs with four batches of eight rows a step (ATWU paper).
    learning_rate: NonNegativeFloat = training_option(2e-5, "Peak learning rate of the model.")
    num_train_epochs: float = training_option(10, "Epochs over the forget set.")
    gradient_accumulation_steps: PositiveInt = training_option(4, "Forward passes per optimizer step.")
    warmup_steps: NonNegativeFloat = training_option(
        0.1, "Learning rate warmup in optimizer steps; a value below 1 is a share of all steps."
    )
