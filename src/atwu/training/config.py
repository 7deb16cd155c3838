"""Run configurations. Python, YAML and the command line share these fields and their help texts.

Both extend transformers' `TrainingArguments`; only defaults that differ are repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import TrainingArguments

from atwu.data.render import check_system
from atwu.methods.recipe import Recipe, lookup, recipe
from atwu.modeling.adapters import Lora
from atwu.modeling.load import QUANTIZATIONS

FOLLOW_FORGET_WEIGHT = "forget_weight"
"""Value of `scorer_gamma` that means: whatever the forget weight is."""

_AUTHORS: Mapping[str, Any] = {
    "hidden_position": "own",
    "scorer_bias": True,
    "detach_saturation": True,
    "budget": "ste",
    "lambda_budget": 10.0,
    "scorer_gamma": "1.0",
    "scorer_schedule": "linear",
    "score_scale": 2.0,
    "legacy": True,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {**_AUTHORS, "hidden_position": "pred", "score_scale": 1.0, "legacy": False},
    "authors": _AUTHORS,
    "paper": {
        "hidden_position": "own",
        "scorer_bias": False,
        "detach_saturation": False,
        "budget": "soft",
        "lambda_budget": 15.0,
        "scorer_gamma": FOLLOW_FORGET_WEIGHT,
        "scorer_schedule": "constant",
        "score_scale": 1.0,
        "legacy": False,
    },
}
"""`authors` follows the published code, `paper` its text to the letter (both with losses pooled over the whole optimizer
step); `default` is `authors` with the corrected JensUn, unscaled scores, and the scorer on the predicting state, which found
the secret words better wherever it was measured (docs/people.md, docs/tofu-small.md)."""

_SCORER_OPTIONS: Mapping[str, Any] = {
    "scorer_procedure": "alternate",
    "scorer_pretrain": False,
    "scorer_from": None,
    "scorer_min_updates": 0,
    "scorer_prior": "none",
}
"""Options that mean nothing without a scorer, with the values that say nothing."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "preset": tuple(PRESETS),
    "hidden_position": ("own", "pred"),
    "budget": ("ste", "soft"),
    "scorer_schedule": ("linear", "constant"),
    "scorer_objective": ("matched", "ga"),
    "scorer_procedure": ("alternate", "joint", "frozen"),
    "scorer_prior": ("none", "rarity"),
    "reference": ("auto", "cache", "model", "adapters"),
    "layout": ("auto", "packed", "padded"),
    "quantize": QUANTIZATIONS,
}


@dataclass(kw_only=True)
class TokenTrainingConfig(TrainingArguments):
    """Fields shared by every trainer of this package, and the training defaults of the papers."""

    output_dir: str | None = field(default=None, metadata={"help": "Folder for checkpoints of this trainer."})
    per_device_train_batch_size: int = field(default=8, metadata={"help": "Forget rows per step and device."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay of the model's optimizer."})
    logging_steps: float = field(default=1, metadata={"help": "Log every this many optimizer steps."})
    report_to: str | list[str] | None = field(default="none", metadata={"help": "Loggers, e.g. wandb or tensorboard."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to write a checkpoint to resume from."})
    save_total_limit: int | None = field(default=1, metadata={"help": "How many checkpoints to keep while running."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "Leave at false: rows are token batches."})
    logging_nan_inf_filter: bool = field(
        default=False, metadata={"help": "Leave at false: a non-finite loss stops the run."}
    )
    max_length: int = field(
        default=512, metadata={"help": "Longest row in tokens; longer answers are cut and counted."}
    )
    system: str | None = field(
        default=None,
        metadata={"help": "System turn put before conversations that have none, as the model was trained with."},
    )
    layout: str = field(
        default="auto",
        metadata={"help": "Rows in the forward pass: packed end to end, padded, or auto (measured best)."},
    )
    lora_r: int = field(
        default=0, metadata={"help": "Rank of LoRA adapters to train instead of the weights; 0 trains the weights."}
    )
    lora_alpha: float | None = field(
        default=None, metadata={"help": "LoRA's scale is lora_alpha / lora_r; default: twice lora_r."}
    )
    lora_targets: str | None = field(
        default=None,
        metadata={"help": "Linear layers with adapters, such as q_proj,v_proj; default: all those of the decoder."},
    )
    lora_dropout: float = field(default=0.0, metadata={"help": "Dropout in front of the adapters."})
    quantize: str | None = field(
        default=None, metadata={"help": "Load the weights under the adapters as 4bit or 8bit, on a GPU."}
    )
    save_adapter: bool = field(
        default=False, metadata={"help": "Write the adapters alone, not the model with them merged in."}
    )

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        self._check_lora()
        check_system(self.system)
        if self.max_length < 8:
            raise ValueError(f"max_length must be at least 8 tokens, got {self.max_length}.")
        if self.save_only_model:
            raise ValueError(
                "save_only_model leaves nothing to resume from; use save_strategy='no' for no checkpoints."
            )
        # transformers would switch the bar off together with its own log lines.
        self.disable_tqdm = bool(self.disable_tqdm)
        super().__post_init__()
        self.dataloader_pin_memory &= torch.cuda.is_available()
        # Several devices in one process (DataParallel) would replicate the scorer; one process per device is the way.
        self._n_gpu = min(self.n_gpu, 1)

    def lora(self) -> Lora | None:
        """The adapters to train, or None for all weights.

        Raises:
            ValueError: numbers or names that cannot work.
        """
        if self.lora_r == 0:
            return None
        targets = None
        if self.lora_targets is not None:
            targets = tuple(name.strip() for name in self.lora_targets.split(","))
            if not all(targets):
                raise ValueError(
                    f"lora_targets must be names separated by commas, such as q_proj,v_proj; got {self.lora_targets!r}."
                )
        return Lora(self.lora_r, alpha=self.lora_alpha, targets=targets, dropout=self.lora_dropout)

    def _check_lora(self) -> None:
        if self.lora() is not None:
            return
        unset = {"lora_alpha": None, "lora_targets": None, "lora_dropout": 0.0, "quantize": None, "save_adapter": False}
        for name, default in unset.items():
            if getattr(self, name) != default:
                raise ValueError(f"{name} belongs to training with adapters; give their rank too: lora_r (say 16).")


@dataclass(kw_only=True)
class FinetuneConfig(TokenTrainingConfig):
    """Supervised fine-tuning on answer tokens, from a checkpoint or from scratch."""

    learning_rate: float = field(default=1e-5, metadata={"help": "Peak learning rate."})
    num_train_epochs: float = field(default=5, metadata={"help": "Passes over the data."})


@dataclass(kw_only=True)
class UnlearnConfig(TokenTrainingConfig):
    """One unlearning run.

    Method: `method` names a row of the table (`atwu methods`); `weighting`, `forget_loss` and `retain_loss` replace its
    parts; unset numbers take the method's published values. Scorer: fields from `hidden_position` on matter only to methods
    with learned weights; those left unset come from `preset`.
    """

    method: str = field(default="atwu", metadata={"help": "Method from `atwu methods`."})
    weighting: str | None = field(
        default=None,
        metadata={"help": "Token weighting instead of the method's; a*b multiplies two, a+b averages ranks."},
    )
    forget_loss: str | None = field(default=None, metadata={"help": "Forget loss instead of the method's."})
    retain_loss: str | None = field(default=None, metadata={"help": "Retain loss instead of the method's."})
    forget_weight: float | None = field(default=None, metadata={"help": "gamma: larger forgets more."})
    retain_weight: float | None = field(default=None, metadata={"help": "alpha: larger keeps more."})
    beta: float | None = field(
        default=None, metadata={"help": "Strength of the forget loss's nonlinearity: larger lets go earlier."}
    )
    beta1: float | None = field(default=None, metadata={"help": "SatImp's saturation exponent."})
    beta2: float | None = field(default=None, metadata={"help": "Importance exponent."})
    delta: float | None = field(default=None, metadata={"help": "SimNPO's margin: larger forgets further."})
    temperature: float | None = field(default=None, metadata={"help": "Temperature of entropy weights."})
    steering_coeff: float | None = field(default=None, metadata={"help": "RMU's length of the steering vector."})
    layer: int | None = field(default=None, metadata={"help": "RMU's decoder layer, counted from 0."})
    refusal: str = field(default="No idea", metadata={"help": "What JensUn wants to hear instead of an answer."})
    legacy: bool | None = field(
        default=None, metadata={"help": "JensUn as published: both refusal tokens everywhere, prompts included."}
    )

    reference: str = field(
        default="auto",
        metadata={"help": "Starting model's numbers: cache (on disk), model (a second one), adapters (off), auto."},
    )
    cache_dir: str | None = field(
        default=None, metadata={"help": "Folder of caches; default: ATWU_CACHE or ~/.cache/atwu."}
    )
    auxiliary_forget: str | None = field(
        default=None, metadata={"help": "SU-LLM's model fine-tuned on the forget set; default: trained and cached."}
    )
    auxiliary_retain: str | None = field(
        default=None, metadata={"help": "SU-LLM's model fine-tuned on the retain set; default: trained and cached."}
    )
    noun_finder: str = field(
        default="en_core_web_sm", metadata={"help": "Who finds nouns: a spaCy model, or simple (capitals and numbers)."}
    )
    forget_words: str | None = field(
        default=None, metadata={"help": "File of secret words, one per line: labels answers that lack forget_spans."}
    )

    preset: str = field(default="default", metadata={"help": "Scorer settings: default, authors or paper."})
    detach_saturation: bool | None = field(
        default=None,
        metadata={"help": "Treat the saturation factor as a constant; without it beta 7 forgets far less."},
    )
    hidden_position: str | None = field(
        default=None, metadata={"help": "State that scores a token: pred (predicts it) or own (has read it)."}
    )
    scorer_bias: bool | None = field(default=None, metadata={"help": "Learn a bias in the scorer."})
    scorer_procedure: str = field(
        default="alternate",
        metadata={"help": "alternate (every n_s steps), joint (in the model's own optimizer), frozen."},
    )
    scorer_pretrain: bool = field(
        default=False, metadata={"help": "First train the scorer for one epoch on the starting model."}
    )
    scorer_from: str | None = field(
        default=None, metadata={"help": "Start from the scorer of this finished run on the same base model."}
    )
    scorer_min_updates: int = field(
        default=0, metadata={"help": "At least this many scorer updates in all, for small forget sets."}
    )
    scorer_prior: str = field(
        default="none", metadata={"help": "What scores start from: none (1/2 each) or rarity among retain answers."}
    )
    scorer_prior_strength: float = field(default=1.0, metadata={"help": "Factor on the prior's log odds."})
    score_scale: float | None = field(
        default=None, metadata={"help": "Factor on scores in ATWU-SimNPO; 2 starts like SimNPO."}
    )
    scorer_every: int = field(default=5, metadata={"help": "n_s: scorer update every this many optimizer steps."})
    scorer_learning_rate: float = field(default=0.05, metadata={"help": "Learning rate of the scorer's SGD."})
    scorer_momentum: float = field(default=0.9, metadata={"help": "Momentum of the scorer's SGD."})
    scorer_weight_decay: float = field(default=1e-4, metadata={"help": "Weight decay of the scorer's SGD."})
    scorer_max_grad_norm: float = field(default=1.0, metadata={"help": "Gradient clipping of the scorer; 0 is off."})
    scorer_schedule: str | None = field(default=None, metadata={"help": "linear (to 0 over the run) or constant."})
    scorer_objective: str = field(
        default="matched", metadata={"help": "Forget term of the scorer: matched (the method's loss) or ga."}
    )
    scorer_gamma: str | None = field(
        default=None, metadata={"help": "Factor on the scorer's forget term: a number, or forget_weight."}
    )
    budget: str | None = field(
        default=None, metadata={"help": "ste (share of tokens above 1/2, per row) or soft (mean score)."}
    )
    rho: float = field(default=0.2, metadata={"help": "Budget: share of answer tokens that may carry the secret."})
    lambda_budget: float | None = field(default=None, metadata={"help": "Strength of the budget."})
    lambda_entropy: float = field(default=1.0, metadata={"help": "Strength of the push of scores to 0 or 1."})
    lambda_l2: float = field(default=1.0, metadata={"help": "Strength of the pull of the scorer's weights to 0."})

    learning_rate: float = field(default=2e-5, metadata={"help": "Peak learning rate of the model."})
    num_train_epochs: float = field(default=10, metadata={"help": "Passes over the forget set."})
    gradient_accumulation_steps: int = field(default=4, metadata={"help": "Batches per optimizer step."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warm-up: steps, or share of the run if below 1."})

    def __post_init__(self) -> None:
        given_scale = self.score_scale
        for name, value in lookup("preset", self.preset, PRESETS).items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        if given_scale is not None and not self._scales_scores():
            raise ValueError(f"score_scale multiplies learned scores in SimNPO; method {self.method!r} has none.")
        self.scorer_gamma = str(self.scorer_gamma)
        self._check_steering(self.recipe())
        self._check_scorer()
        super().__post_init__()

    def _scales_scores(self) -> bool:
        plain = recipe(
            self.method, weighting=self.weighting, forget_loss=self.forget_loss, retain_loss=self.retain_loss
        )
        return plain.needs_scorer and "score_scale" in plain.values

    def recipe(self) -> Recipe:
        """The method with every part and number decided."""
        return recipe(
            self.method,
            weighting=self.weighting,
            forget_loss=self.forget_loss,
            retain_loss=self.retain_loss,
            detach_saturation=bool(self.detach_saturation),
            legacy=bool(self.legacy),
            forget_weight=self.forget_weight,
            retain_weight=self.retain_weight,
            beta=self.beta,
            beta1=self.beta1,
            beta2=self.beta2,
            delta=self.delta,
            temperature=self.temperature,
            steering_coeff=self.steering_coeff,
            layer=self.layer,
            score_scale=self.score_scale if self._scales_scores() else None,
        )

    def _check_steering(self, recipe: Recipe) -> None:
        adapters = self.lora() if recipe.forgetter.steers else None
        if adapters is None or adapters.targets is None:
            return
        if others := [name for name in adapters.targets if name.rpartition(".")[2] != "down_proj"]:
            raise ValueError(
                f"forget loss {recipe.forget_loss!r} trains down_proj of three layers and nothing else; it leaves no use "
                f"for adapters on {', '.join(others)}. Leave lora_targets out."
            )

    def scorer_factor(self) -> float:
        """Factor on the forget term of the scorer's objective."""
        if self.scorer_gamma == FOLLOW_FORGET_WEIGHT:
            return self.recipe().values["forget_weight"]
        return float(str(self.scorer_gamma))

    def _check_scorer(self) -> None:
        if not 0 < self.rho < 1:
            raise ValueError(f"rho is a share of tokens, between 0 and 1, got {self.rho}.")
        for name, unused in _SCORER_OPTIONS.items():
            if getattr(self, name) != unused and not self.recipe().needs_scorer:
                raise ValueError(f"{name} is for methods with learned weights; {self.method!r} has none.")
        if self.scorer_from is not None and self.scorer_prior != "none":
            raise ValueError(
                "a scorer of an earlier run brings its own prior; give scorer_from or scorer_prior, not both."
            )
        if self.scorer_min_updates < 0:
            raise ValueError(f"scorer_min_updates must be 0 or more, got {self.scorer_min_updates}.")
        if self.scorer_procedure == "frozen" and not (
            self.scorer_from or self.scorer_pretrain or (self.scorer_prior != "none" and self.scorer_prior_strength > 0)
        ):
            raise ValueError("a frozen scorer needs a start: scorer_from, scorer_pretrain or scorer_prior.")
        if self.scorer_procedure == "joint" and self.scorer_min_updates:
            raise ValueError(
                "the joint procedure updates the scorer at every step; scorer_min_updates has no place in it."
            )
        if self.scorer_procedure == "joint" and self.fp16:
            raise ValueError("the joint procedure does not scale its gradient for fp16; use bf16.")
        if self.scorer_every < 1:
            raise ValueError(f"scorer_every counts optimizer steps and must be at least 1, got {self.scorer_every}.")
        rates = ("scorer_learning_rate", "scorer_momentum", "scorer_weight_decay", "scorer_max_grad_norm")
        for name in (*rates, "lambda_budget", "lambda_entropy", "lambda_l2", "scorer_prior_strength"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number >= 0, got {getattr(self, name)}.")
        try:
            if not 0 <= self.scorer_factor() < float("inf"):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"scorer_gamma must be a finite number >= 0 or 'forget_weight', got {self.scorer_gamma!r}."
            ) from None


def check_choices(config: object, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a field whose value is not one of its choices.

    Raises:
        ValueError: naming the field, the choices and the value.
    """
    for name, allowed in choices.items():
        value = getattr(config, name, None)
        if value is not None and value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}.")
