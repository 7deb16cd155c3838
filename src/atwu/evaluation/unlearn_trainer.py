"""`UnlearnTrainer`: training with evaluation; `trainer.evaluate()` returns the values of `atwu evaluate`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import nn
from transformers.trainer_utils import speed_metrics

from atwu.data.schema import Example
from atwu.evaluation.columns import OVERALL, RETAIN
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.registry import EvaluateConfig, selected_metrics
from atwu.evaluation.result import EvalResult, measured_numbers
from atwu.modeling.layers import unwrap
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import LoadedModel
from atwu.training.method_trainer import MethodTrainer
from atwu.training.row_sets import RowsInput, text_rows
from atwu.training.training_rows import UnlearningRows

TRAINER_METRICS = ("memorization", "rouge")
_SHARDED_ERROR = "a sharded model cannot be evaluated while it trains; save it and use atwu.evaluate."
ONE_SET = "rows"
"""Name of a single unnamed set, left out of the names that are logged."""


class UnlearnTrainer(MethodTrainer):
    """Unlearn a forget set while preserving a retain set, and evaluate both.

    `evaluate()` computes metrics of `atwu.evaluate` and logs them; training with `eval_strategy` does the same. Logged
    names are `eval_SET_METRIC`, or `eval_METRIC` if `eval_dataset` is a single set.

    Args:
        model: Model to unlearn, as for `atwu.training.method_trainer.MethodTrainer`.
        args: Configuration of the run.
        forget_dataset: Forget set, of any accepted kind.
        retain_dataset: Retain set, likewise.
        eval_dataset: Rows to evaluate, of the same kinds, or several sets by name. `forget`, `retain` and `holdout`
            have the same meaning as in `atwu.evaluate`; other sets are retain sets. Default: forget and retain sets.
        eval_metrics: Metric names (`atwu evaluate --list`), or "all" for every metric whose sets are given.
        eval_config: Evaluation settings; by default length and system prompt of `args`.
        options: Further arguments of `atwu.training.method_trainer.MethodTrainer`.

    Raises:
        TypeError: Arguments of transformers' `Trainer` with another meaning here; the message names the right one.
        ValueError: Unusable rows, unknown metrics, or metrics whose sets are missing.
    """

    def __init__(
        self,
        model: str | nn.Module | LoadedModel,
        args: UnlearnConfig | None = None,
        *,
        forget_dataset: RowsInput | UnlearningRows | None = None,
        retain_dataset: RowsInput | None = None,
        eval_dataset: RowsInput | Mapping[str, RowsInput] | None = None,
        eval_metrics: Sequence[str] | str = TRAINER_METRICS,
        eval_config: EvaluateConfig | None = None,
        **options: Any,
    ) -> None:
        sets: dict[str, Sequence[Example]] = {}
        if eval_dataset is not None:
            sets = _sets(eval_dataset)
            # A metric whose sets are missing fails now, and not at the first evaluation.
            selected_metrics(eval_metrics, sets=sets, weights=True)
        self.eval_metrics, self.eval_config, self._retain = eval_metrics, eval_config, retain_dataset
        self.eval_result: EvalResult | None = None
        """Full result of the last `evaluate()`: intervals, row values, answers."""
        super().__init__(
            model,
            args,
            forget_dataset=forget_dataset,
            retain_dataset=retain_dataset,
            eval_dataset=sets,
            **options,
        )
        # Before training, since the first evaluation may be hours away.
        if self.sharded and self.args.eval_strategy != "no":
            raise ValueError(_SHARDED_ERROR)
        if self.args.eval_strategy != "no" and not sets:
            self._default_sets()  # unusable rows fail now

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: Any = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate the model in its current state and log the values.

        Args:
            eval_dataset: Rows instead of the trainer's, of the same kinds; the name of one of its sets; or sets by
                name.
            ignore_keys: Ignored; part of transformers' signature.
            metric_key_prefix: Prefix of every name.

        Returns:
            Name -> value; the full result is in `eval_result`.

        Raises:
            ValueError: Rows or metrics as for `atwu.evaluate`; or weights that are sharded over processes.
        """
        if self.sharded:
            raise ValueError(_SHARDED_ERROR)
        known: Mapping[str, Sequence[Example]] = cast(Any, self.eval_dataset) or self._default_sets()
        sets = known
        if isinstance(eval_dataset, str) and eval_dataset in known:
            sets = {eval_dataset: known[eval_dataset]}
        elif eval_dataset is not None:
            sets = _sets(eval_dataset)
        begun = time.time()
        result = evaluate(
            unwrap(cast(nn.Module, self.model)),
            sets,
            Evaluation(
                metrics=self.eval_metrics,
                settings=self.eval_config or EvaluateConfig(system=self.args.system, max_length=self.args.max_length),
                scorer=self.scorer,
                progress=not self.args.disable_tqdm and self.is_world_process_zero(),
            ),
            tokenizer=self.processing_class,
        )
        self.eval_result = result
        numbers: dict[str, float] = {}
        for split, metric, value in measured_numbers(result):
            name = f"{metric_key_prefix}_{split}_{metric}"
            if split in (ONE_SET, OVERALL):
                name = f"{metric_key_prefix}_{metric}"
            numbers[name] = cast(float, value.value)
        numbers |= speed_metrics(metric_key_prefix, begun, num_samples=sum(map(len, sets.values())))
        self.log(numbers)
        # As `Trainer.evaluate` ends: callbacks such as early stopping and the best model read the numbers here.
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, numbers)
        return numbers

    def _default_sets(self) -> dict[str, Sequence[Example]]:
        """Return the trainer's forget and retain sets, also if the method uses no retain set."""
        sets: dict[str, Any] = dict(self.sets)
        if self._retain is not None:
            sets.setdefault(RETAIN, self._retain)
        return _sets(sets)


def _sets(source: Any) -> dict[str, Sequence[Example]]:
    named = source
    if not isinstance(source, Mapping):
        named = {ONE_SET: source}
    return {name: text_rows(rows, what=name).rows for name, rows in named.items()}
