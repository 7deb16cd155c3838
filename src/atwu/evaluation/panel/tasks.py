"""General abilities, through lm-evaluation-harness."""

from __future__ import annotations

from pathlib import Path

from atwu.evaluation.general import harness
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import TASKS
from atwu.evaluation.result import MetricValue

_NORMAL = 1.96
_SHARES = ("acc", "exact_match")
"""Metrics that are printed in percent."""


class Tasks(Group):
    """The headline number of every task, accuracies in percent; the interval follows from the harness's standard error."""

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
        shown = {}
        for task, score in self._found.items():
            scale = 100.0 if score.metric.startswith(_SHARES) else 1.0
            half = None if score.stderr is None else scale * _NORMAL * score.stderr
            value = scale * score.value
            shown[task] = MetricValue(
                value=value,
                n=score.n,
                direction="down" if score.higher_is_better is False else "up",
                low=None if half is None else value - half,
                high=None if half is None else value + half,
                digits=1,
            )
        self.session.extra[TASKS] = shown
