"""atwu: make a language model forget, keep the rest, and measure both.

Names are loaded on first use, so that `import atwu` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "atwu.data.schema": "Example",
    "atwu.benchmarks.sources": "load_rows",
    "atwu.methods.table": "METHODS Method",
    "atwu.methods.part": "Weighting FixedWeighting ForgetLoss RetainLoss",
    "atwu.methods.seen": "LossTerms TokensSeen BeforeTraining",
    "atwu.methods.options": "Range number setting",
    "atwu.methods.registry": "register_method register_weighting register_forget_loss register_retain_loss",
    "atwu.data.secret_words": "label_words",
    "atwu.methods.objective": "UnlearningLoss",
    "atwu.methods.unlearning_loss": "unlearning_loss",
    "atwu.methods.weightings.scorer": "TokenScorer",
    "atwu.training.config": "UnlearnConfig FinetuneConfig",
    "atwu.evaluation.trainer": "UnlearnTrainer",
    "atwu.training.finetune": "FinetuneTrainer",
    "atwu.request.run": "unlearn",
    "atwu.shipping.run": "export",
    "atwu.evaluation.run": "evaluate",
    "atwu.evaluation.config": "EvaluateConfig",
    "atwu.evaluation.result": "EvalResult read_result",
    "atwu.report.records": "read_records",
    "atwu.report.score_rows": "heat_map",
    "atwu.evaluation.metric": "Metric",
    "atwu.evaluation.columns": "Column",
    "atwu.evaluation.settings": "Setting",
    "atwu.evaluation.panel": "register_metric",
}
_EXPORTS = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from atwu.benchmarks.sources import load_rows as load_rows
    from atwu.data.schema import Example as Example
    from atwu.data.secret_words import label_words as label_words
    from atwu.evaluation.columns import Column as Column
    from atwu.evaluation.config import EvaluateConfig as EvaluateConfig
    from atwu.evaluation.metric import Metric as Metric
    from atwu.evaluation.panel import register_metric as register_metric
    from atwu.evaluation.result import EvalResult as EvalResult
    from atwu.evaluation.result import read_result as read_result
    from atwu.evaluation.run import evaluate as evaluate
    from atwu.evaluation.settings import Setting as Setting
    from atwu.evaluation.trainer import UnlearnTrainer as UnlearnTrainer
    from atwu.methods.objective import UnlearningLoss as UnlearningLoss
    from atwu.methods.options import Range as Range
    from atwu.methods.options import number as number
    from atwu.methods.options import setting as setting
    from atwu.methods.part import FixedWeighting as FixedWeighting
    from atwu.methods.part import ForgetLoss as ForgetLoss
    from atwu.methods.part import RetainLoss as RetainLoss
    from atwu.methods.part import Weighting as Weighting
    from atwu.methods.registry import register_forget_loss as register_forget_loss
    from atwu.methods.registry import register_method as register_method
    from atwu.methods.registry import register_retain_loss as register_retain_loss
    from atwu.methods.registry import register_weighting as register_weighting
    from atwu.methods.seen import BeforeTraining as BeforeTraining
    from atwu.methods.seen import LossTerms as LossTerms
    from atwu.methods.seen import TokensSeen as TokensSeen
    from atwu.methods.table import METHODS as METHODS
    from atwu.methods.table import Method as Method
    from atwu.methods.unlearning_loss import unlearning_loss as unlearning_loss
    from atwu.methods.weightings.scorer import TokenScorer as TokenScorer
    from atwu.report.records import read_records as read_records
    from atwu.report.score_rows import heat_map as heat_map
    from atwu.request.run import unlearn as unlearn
    from atwu.shipping.run import export as export
    from atwu.training.config import FinetuneConfig as FinetuneConfig
    from atwu.training.config import UnlearnConfig as UnlearnConfig
    from atwu.training.finetune import FinetuneTrainer as FinetuneTrainer

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'atwu' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
