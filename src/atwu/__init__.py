"""atwu: make a language model forget, and prove it.

Names are loaded on first use, so that `import atwu` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Example": "atwu.data.schema",
    "load_rows": "atwu.data.sources",
    "METHODS": "atwu.methods",
    "Method": "atwu.methods",
    "Weighting": "atwu.parts",
    "ForgetLoss": "atwu.parts",
    "RetainLoss": "atwu.parts",
    "LossTerms": "atwu.parts",
    "register_method": "atwu.registry",
    "register_weighting": "atwu.registry",
    "register_forget_loss": "atwu.registry",
    "register_retain_loss": "atwu.registry",
    "label_words": "atwu.weighting.words",
    "label_with": "atwu.weighting.words",
    "unlearning_loss": "atwu.objective",
    "UnlearningLoss": "atwu.objective",
    "TokenScorer": "atwu.weighting.scorer",
    "UnlearnConfig": "atwu.training.config",
    "UnlearnTrainer": "atwu.training.trainer",
    "FinetuneConfig": "atwu.training.config",
    "FinetuneTrainer": "atwu.training.finetune",
    "evaluate": "atwu.evaluation.run",
    "EvaluateConfig": "atwu.evaluation.panel.config",
    "EvalResult": "atwu.evaluation.result",
    "read_result": "atwu.evaluation.result",
}

if TYPE_CHECKING:
    from atwu.data.schema import Example as Example
    from atwu.data.sources import load_rows as load_rows
    from atwu.evaluation.panel.config import EvaluateConfig as EvaluateConfig
    from atwu.evaluation.result import EvalResult as EvalResult
    from atwu.evaluation.result import read_result as read_result
    from atwu.evaluation.run import evaluate as evaluate
    from atwu.methods import METHODS as METHODS
    from atwu.methods import Method as Method
    from atwu.objective import UnlearningLoss as UnlearningLoss
    from atwu.objective import unlearning_loss as unlearning_loss
    from atwu.parts import ForgetLoss as ForgetLoss
    from atwu.parts import LossTerms as LossTerms
    from atwu.parts import RetainLoss as RetainLoss
    from atwu.parts import Weighting as Weighting
    from atwu.registry import register_forget_loss as register_forget_loss
    from atwu.registry import register_method as register_method
    from atwu.registry import register_retain_loss as register_retain_loss
    from atwu.registry import register_weighting as register_weighting
    from atwu.training.config import FinetuneConfig as FinetuneConfig
    from atwu.training.config import UnlearnConfig as UnlearnConfig
    from atwu.training.finetune import FinetuneTrainer as FinetuneTrainer
    from atwu.training.trainer import UnlearnTrainer as UnlearnTrainer
    from atwu.weighting.scorer import TokenScorer as TokenScorer
    from atwu.weighting.words import label_with as label_with
    from atwu.weighting.words import label_words as label_words

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'atwu' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
