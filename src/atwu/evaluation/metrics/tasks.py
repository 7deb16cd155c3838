"""General benchmarks through lm-evaluation-harness: MMLU, any other task it knows, or a user's own task file.

Takes a loaded model and leaves it unchanged. Prompts use no chat template, as in the ATWU paper. The harness truncates
prompts longer than the model's context at the beginning; truncated prompts are counted and logged.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from atwu._extras import require
from atwu._names import did_you_mean
from atwu.evaluation.columns import TASKS, Column, Direction
from atwu.evaluation.metric import Metric, MetricSetting

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from atwu.evaluation.result import MetricValue

_LOGGER = logging.getLogger(__name__)
_EXTRA = "lm-eval"
DEGRADED_POINTS = 2.0
"""Drop in accuracy below the original model, in percentage points, that counts as degraded (ATWU paper, on MMLU)."""
_NORMAL = 1.96
"""Quantile of the normal distribution: the harness gives standard errors, and intervals here have 95 %."""
_HAZARDOUS = "wmdp"
"""Tasks with this prefix ask for knowledge that is to be unlearned: lower is better."""
_SHARES = ("acc", "exact_match")
"""Metrics that are reported in percent."""
_BATCH = 16
"""Prompts per forward pass."""
_BOOTSTRAPS = 1000  # only for metrics that are not means; the harness's default of 100,000 takes minutes


def harness(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tasks: Sequence[str],
    *,
    task_folder: str | Path | None = None,
    limit: int | None = None,
) -> dict[str, MetricValue]:
    """Run tasks of lm-evaluation-harness.

    A task downloads its rows from the Hugging Face Hub unless they are cached or its file names local ones
    (`dataset_path: json` with `data_files`). The model's train/eval mode, the tokenizer and the random states are
    restored.

    Args:
        tasks: Names of tasks, groups (`mmlu`) or tags. Tags, and groups without their own score, give one score per
        task.
        task_folder: Folder with the user's own task files (`*.yaml`); they take precedence over built-in tasks.
        limit: Number of rows per task, for a quick check; MMLU has 57 tasks.

    Returns:
        Name -> value of the first metric that the harness lists for the task, in the order of `tasks`, accuracies in
        percent. A group has the rows of all its tasks. No interval if the harness gives no standard error.
    """
    evaluator = require("lm_eval.evaluator", extra=_EXTRA)
    adapter = require("lm_eval.models.huggingface", extra=_EXTRA).HFLM
    with ExitStack() as stack:
        clipped = stack.enter_context(_quiet(evaluator))
        stack.enter_context(_as_before(model))
        manager = _task_manager(tasks, task_folder)
        names: dict[str, None] = {}
        for name in tasks:
            if name in manager.all_tags:
                names |= dict.fromkeys(sorted(manager.task_index[name].tags))
            else:
                names[name] = None
        results = evaluator.simple_evaluate(
            # A copy, since the adapter changes its padding token.
            adapter(pretrained=model, tokenizer=copy.deepcopy(tokenizer), backend="causal", batch_size=_BATCH),
            tasks=list(names),
            task_manager=manager,
            limit=limit,
            # As the ATWU authors run MMLU; their number of prompts per pass is the same, too.
            apply_chat_template=False,
            log_samples=False,
            bootstrap_iters=_BOOTSTRAPS,
        )
    if clipped.count:
        _LOGGER.warning("%d prompts were longer than the model's context and were truncated.", clipped.count)
    return {name: _score(name, results) for name in _names_with_score(names, results)}


def _worse(task: str, now: float, before: float | None) -> str | None:
    if before is None or task.startswith(_HAZARDOUS) or now >= before - DEGRADED_POINTS:
        return None
    return f"{task} {now:.1f} is {before - now:.1f} points below the original model: degraded."


class Tasks(Metric):
    name = "tasks"
    about = "General benchmarks through lm-evaluation-harness, such as MMLU (--task)"
    needs = (TASKS,)
    default = True
    settings = (
        MetricSetting(
            "tasks", str, (), "Task of lm-evaluation-harness, such as mmlu.", many=True, compared=False, flag="task"
        ),
        MetricSetting("task_folder", str, None, "Folder with your own task files.", compared=False),
        MetricSetting("task_limit", int, None, "Maximum number of rows per task.", least=1),
    )
    columns = (
        Column(
            "{task}",
            harness,
            "{task}",
            "main metric of this lm-evaluation-harness task; accuracies in percent",
            sets=(TASKS,),
            range=(None, None),
            digits=1,
            lost=_worse,
        ),
    )

    @classmethod
    def check(cls, config: SimpleNamespace) -> None:
        if config.tasks:
            require("lm_eval", extra=_EXTRA)

    def read(self) -> None:
        """Run the harness on the unchanged model; unknown tasks fail before anything is generated."""
        config = self.session.config
        self._scores = harness(
            self.session.model,
            self.session.tokenizer,
            config.tasks,
            task_folder=config.task_folder or None,
            limit=config.task_limit,
        )

    def record(self) -> None:
        self.session.task_values = self._scores


def _task_manager(tasks: Sequence[str], task_folder: str | Path | None) -> Any:
    """Return the harness's task index; its 14,000 built-in tasks are read (seconds) only if the folder lacks a task."""
    manager_class = require("lm_eval.tasks", extra=_EXTRA).TaskManager
    own: list[str] = []
    inside, path = "", None
    if task_folder is not None:
        folder = Path(task_folder)
        if not folder.is_dir():
            raise ValueError(f"task_folder {str(folder)!r} is not a folder; give the folder with the task files.")
        path = str(folder)
        manager = manager_class(include_path=path, include_defaults=False)
        if set(tasks) <= set(manager.all_subtasks):
            return manager
        own = manager.all_tasks
        inside = f" {folder} has {', '.join(own) or 'no task'} (only valid .yaml files are read)."
    manager = manager_class(include_path=path)
    for name in tasks:
        if name not in manager.all_tasks:
            hint = did_you_mean(name, [*own, *manager.all_tasks])
            raise ValueError(f"unknown lm-evaluation-harness task {name!r}.{hint}{inside}")
    return manager


def _names_with_score(names: Iterable[str], results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names; groups without their own score are replaced by their members."""
    for name in names:
        if _metric_keys(results["results"].get(name, {})):
            yield name
        else:
            yield from _names_with_score(results["group_subtasks"].get(name, ()), results)


def _metric_keys(values: Mapping[str, Any]) -> list[str]:
    """Return the keys `metric,filter` of a task's values."""
    return [key for key in values if "," in key and not key.partition(",")[0].endswith("_stderr")]


def _score(name: str, results: Mapping[str, Any]) -> MetricValue:
    from atwu.evaluation.result import MetricValue

    values = results["results"][name]
    # The harness lists the main metric of a task first.
    key = _metric_keys(values)[0]
    metric, _, answer_filter = key.partition(",")
    scale = 1.0
    direction: Direction = "up"
    if metric.startswith(_SHARES):
        scale = 100.0
    if _lower_is_better(name, metric, results):
        direction = "down"
    value, stderr = scale * float(values[key]), values.get(f"{metric}_stderr,{answer_filter}")
    low, high = None, None
    if isinstance(stderr, int | float):  # the harness writes "N/A" for metrics without one
        half = scale * _NORMAL * float(stderr)
        low, high = value - half, value + half
    return MetricValue(value, int(values["sample_len"]), direction, low=low, high=high, digits=1)


def _lower_is_better(name: str, metric: str, results: Mapping[str, Any]) -> bool:
    """Return the harness's direction of a task, lower for hazardous knowledge; of a group if it is that of all its tasks."""
    if name.startswith(_HAZARDOUS):
        return True
    inside = results["group_subtasks"].get(name)
    if inside:
        return all(_lower_is_better(task, metric, results) for task in inside)
    return results["higher_is_better"].get(name, {}).get(metric) is False


class _Clipped(logging.Handler):
    """Counts the harness's warnings about truncated prompts and drops all other records."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.count += "exceeds model's maximum length" in text or "Left truncation applied" in text


@contextmanager
def _quiet(evaluator: Any) -> Iterator[_Clipped]:
    """Silence the harness's log, and its call of git, which fails outside a repository."""
    logger, handler = logging.getLogger("lm_eval"), _Clipped()
    before = logger.handlers, logger.propagate, logger.level
    git = evaluator.get_git_commit_hash
    try:
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)
        evaluator.get_git_commit_hash = lambda: None
        yield handler
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])
        evaluator.get_git_commit_hash = git


@contextmanager
def _as_before(model: PreTrainedModel) -> Iterator[None]:
    """Restore train/eval modes and random states, which the harness changes."""
    import torch

    from atwu.modeling.layers import restored_modes

    # The harness seeds all generators, which would change draws behind it.
    python, arrays = random.getstate(), np.random.get_state()
    devices = [model.device] * (model.device.type == "cuda")
    try:
        with restored_modes(model), torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
