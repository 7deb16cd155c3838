"""Add the verdict of a request to the model card of its result, its metrics as the Hub's model index."""

from __future__ import annotations

from pathlib import Path

from atwu.request.verdict import RequestVerdict
from atwu.request.verdict_metrics import SET_NAMES


def add_verdict(folder: Path, verdict: RequestVerdict, *, name: str) -> None:
    """Add a verdict to `README.md` of a finished run; questions and answers are left out, since cards are published.

    Args:
        folder: folder of the run.
        name: name of the model in the index.
    """
    from huggingface_hub import EvalResult, ModelCard

    card = ModelCard.load(folder / "README.md")
    card.data.model_name = name
    card.data.eval_results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=each.set,
            dataset_name=SET_NAMES[each.set],
            metric_type=each.metric.replace(" ", "_"),
            metric_name=each.metric,
            metric_value=round(each.after, 4),
        )
        for each in verdict.metrics
        if each.after is not None
    ]
    card.text = f"{card.text.rstrip()}\n\n## Verdict: {verdict.outcome}\n\n{verdict.reason}\n"
    card.save(folder / "README.md")
