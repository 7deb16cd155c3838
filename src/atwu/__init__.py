"""atwu: machine unlearning for language models, with evaluation of forgetting and of retained utility.

Names are loaded on first use, so that `import atwu` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES = {
    "atwu.data.schema": "Example",
    "atwu.benchmarks.base": "Benchmark LoadedRows",
    "atwu.benchmarks.catalog": "BenchmarkEntry register_benchmark",
    "atwu.benchmarks.sources": "OwnRows load_benchmark load_rows",
    "atwu.methods.method_table": "METHODS Method",
    "atwu.methods.component": "Weighting FixedWeighting ForgetLoss RetainLoss Range number setting",
    "atwu.methods.component_inputs": "LossInputs LossTerms WeightingContext PrecomputeContext",
    "atwu.methods.component_registry": "register_weighting register_forget_loss register_retain_loss",
    "atwu.methods.recipe": "register_method",
    "atwu.data.labelled_words": "label_words",
    "atwu.methods.objective": "UnlearningLoss unlearning_loss",
    "atwu.methods.weightings.token_scorer": "TokenScorer",
    "atwu.training.config": "UnlearnConfig FinetuneConfig",
    "atwu.evaluation.unlearn_trainer": "UnlearnTrainer",
    "atwu.training.token_trainer": "FinetuneTrainer",
    "atwu.request.asking.ask": "ask",
    "atwu.request.asking.ask_result": "AskResult",
    "atwu.request.unlearn": "unlearn",
    "atwu.exporting.export_run": "export",
    "atwu.evaluation.evaluate": "Evaluation evaluate",
    "atwu.evaluation.registry": "EvaluateConfig register_metric",
    "atwu.evaluation.result": "EvalResult read_result",
    "atwu.report.read_records": "read_records",
    "atwu.report.heatmap": "heat_map",
    "atwu.evaluation.metric": "Metric MetricSetting",
    "atwu.evaluation.columns": "Column",
}
# Also imported below, for type checkers and completion; importing the names here would load torch for every command.
_EXPORTS = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    __version__: str
    from atwu.benchmarks.base import Benchmark as Benchmark
    from atwu.benchmarks.base import LoadedRows as LoadedRows
    from atwu.benchmarks.catalog import BenchmarkEntry as BenchmarkEntry
    from atwu.benchmarks.catalog import register_benchmark as register_benchmark
    from atwu.benchmarks.sources import OwnRows as OwnRows
    from atwu.benchmarks.sources import load_benchmark as load_benchmark
    from atwu.benchmarks.sources import load_rows as load_rows
    from atwu.data.labelled_words import label_words as label_words
    from atwu.data.schema import Example as Example
    from atwu.evaluation.columns import Column as Column
    from atwu.evaluation.evaluate import Evaluation as Evaluation
    from atwu.evaluation.evaluate import evaluate as evaluate
    from atwu.evaluation.metric import Metric as Metric
    from atwu.evaluation.metric import MetricSetting as MetricSetting
    from atwu.evaluation.registry import EvaluateConfig as EvaluateConfig
    from atwu.evaluation.registry import register_metric as register_metric
    from atwu.evaluation.result import EvalResult as EvalResult
    from atwu.evaluation.result import read_result as read_result
    from atwu.evaluation.unlearn_trainer import UnlearnTrainer as UnlearnTrainer
    from atwu.exporting.export_run import export as export
    from atwu.methods.component import FixedWeighting as FixedWeighting
    from atwu.methods.component import ForgetLoss as ForgetLoss
    from atwu.methods.component import Range as Range
    from atwu.methods.component import RetainLoss as RetainLoss
    from atwu.methods.component import Weighting as Weighting
    from atwu.methods.component import number as number
    from atwu.methods.component import setting as setting
    from atwu.methods.component_inputs import LossInputs as LossInputs
    from atwu.methods.component_inputs import LossTerms as LossTerms
    from atwu.methods.component_inputs import PrecomputeContext as PrecomputeContext
    from atwu.methods.component_inputs import WeightingContext as WeightingContext
    from atwu.methods.component_registry import register_forget_loss as register_forget_loss
    from atwu.methods.component_registry import register_retain_loss as register_retain_loss
    from atwu.methods.component_registry import register_weighting as register_weighting
    from atwu.methods.method_table import METHODS as METHODS
    from atwu.methods.method_table import Method as Method
    from atwu.methods.objective import UnlearningLoss as UnlearningLoss
    from atwu.methods.objective import unlearning_loss as unlearning_loss
    from atwu.methods.recipe import register_method as register_method
    from atwu.methods.weightings.token_scorer import TokenScorer as TokenScorer
    from atwu.report.heatmap import heat_map as heat_map
    from atwu.report.read_records import read_records as read_records
    from atwu.request.asking.ask import ask as ask
    from atwu.request.asking.ask_result import AskResult as AskResult
    from atwu.request.unlearn import unlearn as unlearn
    from atwu.training.config import FinetuneConfig as FinetuneConfig
    from atwu.training.config import UnlearnConfig as UnlearnConfig
    from atwu.training.token_trainer import FinetuneTrainer as FinetuneTrainer

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("atwu")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'atwu' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
