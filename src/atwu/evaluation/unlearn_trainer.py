"""The trainer that also measures: `trainer.evaluate()` and `eval_strategy` give the numbers of `atwu evaluate`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import nn
from transformers.trainer_utils import speed_metrics

from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET, HOLDOUT, OVERALL, RETAIN
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.evaluate_config import EvaluateConfig
from atwu.evaluation.formatting import measured_numbers
from atwu.evaluation.registry import selected_metrics
from atwu.evaluation.result import EvalResult
from atwu.modeling.single_pass import unwrap
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import LoadedModel
from atwu.training.method_trainer import MethodTrainer
from atwu.training.training_rows import RowsInput, UnlearningRows, text_rows

TRAINER_METRICS = ("memorization", "rouge")
"""What is measured unless something else is asked for."""
_WHILE_SHARDED = "a sharded model cannot be measured while it trains; save it, and use atwu.evaluate."
ONE_SET = "rows"
"""What rows without a name are called."""


class UnlearnTrainer(MethodTrainer):
    """Unlearn a forget set while keeping a retain set, and measure both.

    `evaluate()` measures with the metrics of `atwu.evaluate` and logs what it finds; so does training with `eval_strategy`. Its
    numbers are called `eval_SET_METRIC`, or `eval_METRIC` where `eval_dataset` is one set.

    Args:
        model: what unlearns, as `atwu.training.method_trainer.MethodTrainer` takes it.
        args: the run's configuration.
        forget_dataset: rows to remove, of any kind that it takes.
        retain_dataset: rows to keep, likewise.
        eval_dataset: rows to measure, of any kind that `forget_dataset` takes, or several sets by name; `forget`, `retain` and
            `holdout` are what they are for `atwu.evaluate`, others should be kept. By default the forget and retain rows.
        eval_metrics: names of metrics (`atwu evaluate --list`), or "all" for all whose rows are given.
        eval_config: settings of the metrics; by default those of `args` for length and system turn.
        options: everything else that `atwu.training.method_trainer.MethodTrainer` takes.

    Raises:
        TypeError: arguments of transformers' `Trainer` that mean something else here; names the right one.
        ValueError: rows that cannot be used, unknown metrics, or metrics whose rows are missing.
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
        if "compute_metrics" in options:
            raise TypeError("UnlearnTrainer takes eval_metrics instead of compute_metrics; register_metric adds one.")
        given = None if eval_dataset is None else _sets(eval_dataset)
        if given is not None:
            selected_metrics(eval_metrics, sets=given, weights=True)
        self.eval_metrics, self.eval_config, self._retain = eval_metrics, eval_config, retain_dataset
        self.eval_result: EvalResult | None = None
        """All that the last `evaluate` found: intervals, values of rows, answers."""
        super().__init__(
            model,
            args,
            forget_dataset=forget_dataset,
            retain_dataset=retain_dataset,
            eval_dataset=given or {},
            **options,
        )
        if self.sharded and self.args.eval_strategy != "no":
            raise ValueError(_WHILE_SHARDED)
        if given is None and self.args.eval_strategy != "no":
            self._own_sets()  # rows that cannot be measured are refused now

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: Any = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Measure the model as it is now, and log it.

        Args:
            eval_dataset: rows instead of the trainer's, of the same kinds; the name of one of its sets; or sets by name.
            ignore_keys: has no use here.
            metric_key_prefix: what every name starts with.

        Returns:
            Name -> number; further facts are in `eval_result`.

        Raises:
            ValueError: rows or metrics as for `atwu.evaluate`; or weights that are spread over processes.
        """
        if self.sharded:
            raise ValueError(_WHILE_SHARDED)
        known: Mapping[str, Sequence[Example]] = cast(Any, self.eval_dataset) or self._own_sets()
        if isinstance(eval_dataset, str) and eval_dataset in known:
            sets: Mapping[str, Sequence[Example]] = {eval_dataset: known[eval_dataset]}
        else:
            sets = known if eval_dataset is None else _sets(eval_dataset)
        begun = time.time()
        roles = {name: rows for name, rows in sets.items() if name in (FORGET, RETAIN, HOLDOUT)}
        result = evaluate(
            unwrap(cast(nn.Module, self.model)),
            self.processing_class,
            **cast(Any, roles),
            extra_retain={name: rows for name, rows in sets.items() if name not in roles},
            metrics=self.eval_metrics,
            config=self.eval_config or EvaluateConfig(system=self.args.system, max_length=self.args.max_length),
            scorer=self.scorer,
            progress=not self.args.disable_tqdm and self.is_world_process_zero(),
        )
        self.eval_result = result
        numbers = {f"{metric_key_prefix}_{name}": value for name, value in _flat(result).items()}
        numbers |= speed_metrics(metric_key_prefix, begun, num_samples=sum(map(len, sets.values())))
        self.log(numbers)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, numbers)
        return numbers

    def _own_sets(self) -> dict[str, Sequence[Example]]:
        """What the trainer forgets and keeps, also where its method does not look at rows to keep."""
        sets: dict[str, Any] = dict(self.sets)
        if self._retain is not None:
            sets.setdefault(RETAIN, self._retain)
        return _sets(sets)


def _sets(given: Any) -> dict[str, Sequence[Example]]:
    named = given if isinstance(given, Mapping) else {ONE_SET: given}
    return {name: text_rows(rows, what=name).examples or () for name, rows in named.items()}


def _flat(result: EvalResult) -> dict[str, float]:
    """Every number of a result by one name; that of its set is left out where there is one set without a name."""
    return {
        name if split in (ONE_SET, OVERALL) else f"{split}_{name}": cast(float, value.value)
        for split, name, value in measured_numbers(result)
    }
