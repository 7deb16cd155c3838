"""Gradient norm of single rows, a membership score: what a model was trained on pulls less at its weights.

One backward pass per row, the slowest of the attacks. Definition of open-unlearning: the mean over parameter tensors of
each tensor's own norm, so that a small tensor counts as much as a large one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from atwu.data.schema import IGNORE_INDEX
from atwu.evaluation.columns import FORGET, HOLDOUT
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.membership import score_column

if TYPE_CHECKING:
    from torch import Tensor, nn

    from atwu.data.encode import EncodedRow


def mean_of_norms(gradients: Iterable[Tensor]) -> float:
    """Mean of the 2-norms of single tensors; not the norm of all of them together."""
    import torch

    return float(torch.stack([_norm(gradient).cpu() for gradient in gradients]).mean())


def gradient_norms(model: nn.Module, rows: Sequence[EncodedRow], *, progress: str | None = None) -> list[float]:
    """`mean_of_norms` of dL/d(theta) for every row, L the mean negative log-likelihood of the tokens of its answer.

    The terminal token does not count, as in open-unlearning; frozen parameters do, but not integer ones (quantized) and
    none twice (tied). A tensor the row does not reach, such as an idle expert, is left out of the row's mean. Only norms
    are kept: each gradient is freed as soon as it is there, so the pass needs the memory of a forward pass with
    activations, not of a second model.

    Args:
        model: causal language model, run in eval mode; its gradients, `requires_grad` and train/eval state are put back.

    Returns:
        One value >= 0 per row, in order; higher = less likely a member.
    """
    import torch

    from atwu._progress import bar_of
    from atwu.data.collate import collate_rows
    from atwu.modeling.forward import forward_tokens

    device = next(model.parameters()).device
    results = []
    with _collecting(model) as norms, torch.enable_grad():
        for row in bar_of(rows, total=len(rows), desc=progress, unit="row", shown=progress is not None, leave=False):
            tensors = collate_rows([_without_terminal(row)])
            (out,) = forward_tokens(model, [{name: tensor.to(device) for name, tensor in tensors.items()}])
            (-out.logps[out.mask].mean()).backward()
            results.append(mean_of_norms(norms))  # the norm of a norm is itself
            norms.clear()
    return results


def _without_terminal(row: EncodedRow) -> EncodedRow:
    """The row with labels on its answer's text alone, or as it is where there is no text."""
    text = row.text_labels
    return dataclasses.replace(row, labels=text if set(text) - {IGNORE_INDEX} else row.labels, token_labels=None)


class GradientNorm(Metric):
    """The norm of the loss gradient on the rows of the forget set and of the holdout."""

    name = "gradient_norm"
    about = "membership by gradient norm; a backward pass per row"
    needs = (FORGET, HOLDOUT)
    needs_plain_weights = True
    attack = True
    columns = (score_column("gradient_norm", mean_of_norms),)

    def prepare(self) -> None:
        """Take the gradients."""
        self._norms = {
            split: gradient_norms(
                self.session.network,
                self.session.encoded(split),
                progress=f"gradients of {split}" if self.session.progress else None,
            )
            for split in (FORGET, HOLDOUT)
        }

    def record(self) -> None:
        """Record them; the attack's area under the curve is derived like that of the others."""
        for split, norms in self._norms.items():
            self.keep(split, "mia_gradient_norm", norms)


@contextmanager
def _collecting(model: nn.Module) -> Iterator[list[Tensor]]:
    """A list to which every backward pass adds the norm of each parameter's gradient instead of keeping the gradient."""
    from atwu.modeling.modes import eval_mode

    parameters = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    before = [(parameter.requires_grad, parameter.grad) for parameter in parameters]
    norms: list[Tensor] = []

    def collect(parameter: Tensor) -> None:
        assert parameter.grad is not None
        norms.append(_norm(parameter.grad))
        parameter.grad = None

    hooks = []
    try:
        for parameter in parameters:
            parameter.grad = None
            parameter.requires_grad_(True)
            hooks.append(parameter.register_post_accumulate_grad_hook(collect))
        with eval_mode(model):
            yield norms
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, (required, gradient) in zip(parameters, before, strict=True):
            parameter.requires_grad_(required)
            parameter.grad = gradient


def _norm(gradient: Tensor) -> Tensor:
    import torch

    dtype = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    norm: Tensor = torch.linalg.vector_norm(gradient.detach(), dtype=dtype)
    return norm
