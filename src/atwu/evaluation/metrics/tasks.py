"""General abilities by lm-evaluation-harness: MMLU, any other task it knows, or a user's own task file.

Takes a model that is already loaded and leaves it as it was. Prompts carry no chat template, as in the ATWU paper.
A prompt longer than the model's context loses its beginning (the harness's habit); this is counted and logged.
"""

from __future__ import annotations

import copy
import difflib
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atwu._extras import require
from atwu.evaluation.columns import TASKS, Column
from atwu.evaluation.metric import Metric
from atwu.evaluation.metric_settings import MetricSetting

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from atwu.evaluation.evaluate_config import EvaluateConfig
    from atwu.evaluation.result import MetricValue

_LOGGER = logging.getLogger(__name__)
_EXTRA = "lm-eval"
DEGRADED_POINTS = 2.0
"""Points of accuracy below the starting model that count as degraded (ATWU paper, on MMLU)."""
_NORMAL = 1.96
_SHARES = ("acc", "exact_match")
"""Metrics that are printed in percent."""
_BATCH = 16
"""Prompts per forward pass."""
_BOOTSTRAPS = 1000  # only for metrics that are no means; the harness's own 100,000 take minutes


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
    (`dataset_path: json` with `data_files`); nothing else is fetched. The model's train/eval state, the tokenizer and
    the states of the random generators are as before afterwards.

    Args:
        tasks: names of tasks, groups (`mmlu`) or tags. A group without a score of its own and a tag give one score
            per task in them.
        task_folder: folder with the user's own task files (`*.yaml`); they win over built-in ones of the same name.
        limit: only the first rows of every single task, for a quick look; MMLU has 57 tasks.

    Returns:
        Name -> headline number, in the order of `tasks`: the first metric the harness lists for the task, accuracies in
        percent. A group has the rows of all its tasks. No interval where the harness gives no standard error.

    Raises:
        ImportError: without the extra `lm-eval`.
        ValueError: for an unknown task (the text names close ones), or a folder that is none.
        RuntimeError: on a process of a distributed run that the harness gives no result to.
    """
    evaluator = require("lm_eval.evaluator", extra=_EXTRA)
    adapter = require("lm_eval.models.huggingface", extra=_EXTRA).HFLM
    with ExitStack() as stack:
        clipped = stack.enter_context(_quiet(evaluator))
        stack.enter_context(_as_before(model))
        manager = _task_manager(tasks, None if task_folder is None else Path(task_folder))
        names = _without_tags(tasks, manager)
        results = evaluator.simple_evaluate(
            # A copy, for the adapter sets its padding token.
            adapter(pretrained=model, tokenizer=copy.deepcopy(tokenizer), backend="causal", batch_size=_BATCH),
            tasks=names,
            task_manager=manager,
            limit=limit,
            apply_chat_template=False,
            log_samples=False,
            bootstrap_iters=_BOOTSTRAPS,
        )
    if results is None:
        raise RuntimeError("lm-evaluation-harness gave this process no result; run it in a single process.")
    if clipped.count:
        _LOGGER.warning("%d prompts were longer than the model's context and lost their beginning.", clipped.count)
    return {name: _score(name, results) for name in _scored(names, results)}


def _worse(task: str, now: float, before: float | None) -> str | None:
    if before is None or now >= before - DEGRADED_POINTS:
        return None
    return f"{task} {now:.1f} is {before - now:.1f} points below the starting model: degraded."


class Tasks(Metric):
    """The headline number of every task, accuracies in percent; the interval follows from the harness's standard error."""

    name = "tasks"
    about = "general tasks through lm-evaluation-harness, such as MMLU"
    needs = (TASKS,)
    default = True
    settings = (
        MetricSetting("tasks", str, (), "Tasks of lm-evaluation-harness, such as mmlu.", compared=False, flag="task"),
        MetricSetting("task_folder", str, None, "Folder with task files of your own.", compared=False),
        MetricSetting("task_limit", int, None, "At most this many rows of each task.", least=1),
    )
    columns = (
        Column(
            "{task}",
            harness,
            "{task}",
            "headline number of this task of lm-evaluation-harness; accuracies in percent",
            sets=(TASKS,),
            range=(None, None),
            digits=1,
            lost=_worse,
        ),
    )

    @classmethod
    def check(cls, config: EvaluateConfig) -> None:
        """The harness, where there is a task for it."""
        if config.tasks:
            require("lm_eval", extra=_EXTRA)

    def read(self) -> None:
        """Run the harness on the model as it is; unknown tasks are refused before anything is generated."""
        config = self.session.config
        self._found = harness(
            self.session.network,
            self.session.tokenizer,  # type: ignore[arg-type]
            config.tasks,
            task_folder=Path(config.task_folder) if config.task_folder else None,
            limit=config.task_limit,
        )

    def record(self) -> None:
        """Record the accuracies."""
        self.session.extra[TASKS] = self._found


def _task_manager(tasks: Sequence[str], folder: Path | None) -> Any:
    """The harness's index of tasks; its own 14,000 are read (seconds) only when the folder does not have all asked for."""
    manager_class = require("lm_eval.tasks", extra=_EXTRA).TaskManager
    own: list[str] = []
    if folder is not None:
        if not folder.is_dir():
            raise ValueError(f"task_folder {str(folder)!r} is not a folder; give the one that holds the task files.")
        manager = manager_class(include_path=str(folder), include_defaults=False)
        if set(tasks) <= set(manager.all_subtasks):
            return manager
        own = manager.all_tasks
    manager = manager_class(include_path=None if folder is None else str(folder))
    known = manager.all_tasks
    for name in tasks:
        if name in known:
            continue
        near = list(dict.fromkeys(difflib.get_close_matches(name, own) + difflib.get_close_matches(name, known)))
        text = f"task {name!r} is not known to lm-evaluation-harness; close: {', '.join(near) or 'none'}."
        if folder is not None:
            text += f" {folder} has {', '.join(own) or 'no task'} (only .yaml files are read, and broken ones skipped)."
        raise ValueError(text)
    return manager


def _without_tags(tasks: Sequence[str], manager: Any) -> list[str]:
    """Tags replaced by their tasks, each name once."""
    tags = set(manager.all_tags)
    names = [[name] if name not in tags else sorted(manager.task_index[name].tags) for name in tasks]
    return list(dict.fromkeys(name for group in names for name in group))


def _scored(names: Sequence[str], results: Mapping[str, Any]) -> Iterator[str]:
    """The names, with groups that have no score of their own replaced by what is in them."""
    for name in names:
        if _metric_keys(results["results"].get(name, {})):
            yield name
        else:
            yield from _scored(results["group_subtasks"].get(name, ()), results)


def _metric_keys(found: Mapping[str, Any]) -> list[str]:
    """Keys `metric,filter` of a task's numbers."""
    return [key for key in found if "," in key and not key.partition(",")[0].endswith("_stderr")]


def _score(name: str, results: Mapping[str, Any]) -> MetricValue:
    from atwu.evaluation.result import MetricValue

    found = results["results"][name]
    key = _metric_keys(found)[0]
    metric, _, answer_filter = key.partition(",")
    scale = 100.0 if metric.startswith(_SHARES) else 1.0
    value, stderr = scale * float(found[key]), found.get(f"{metric}_stderr,{answer_filter}")
    half = scale * _NORMAL * float(stderr) if isinstance(stderr, int | float) else None
    return MetricValue(
        value=value,
        n=int(found["sample_len"]),
        direction="down" if _lower_is_better(name, metric, results) else "up",
        low=None if half is None else value - half,
        high=None if half is None else value + half,
        digits=1,
    )


def _lower_is_better(name: str, metric: str, results: Mapping[str, Any]) -> bool:
    """Of a task as the harness says; of a group as all its tasks agree, for the harness forgets groups within groups."""
    if inside := results["group_subtasks"].get(name):
        return all(_lower_is_better(task, metric, results) for task in inside)
    return results["higher_is_better"].get(name, {}).get(metric) is False


class _Clipped(logging.Handler):
    """Counts the harness's warnings about prompts that were too long, and drops every other record."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.count += "exceeds model's maximum length" in text or "Left truncation applied" in text


@contextmanager
def _quiet(evaluator: Any) -> Iterator[_Clipped]:
    """The harness without its log, and without its call of git, which complains outside a repository."""
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
    """Put back the modes of the modules and the random generators, which the harness sets for good."""
    import torch

    from atwu.modeling.modes import restored_modes

    python, arrays = random.getstate(), np.random.get_state()
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with restored_modes(model), torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
