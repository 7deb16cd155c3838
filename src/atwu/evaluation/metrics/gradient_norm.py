"""Gradient norm of each row, a membership score: gradients are smaller on training data.

Needs one backward pass per row, so it is the slowest membership attack. Definition of open-unlearning: the mean over
parameter tensors of each tensor's norm, so a small tensor has the same weight as a large one.
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
    """Mean of the 2-norms of single tensors; not the norm of all tensors together."""
    import torch

    return float(torch.stack([_norm(gradient).cpu() for gradient in gradients]).mean())


def gradient_norms(model: nn.Module, rows: Sequence[EncodedRow], *, progress: str | None = None) -> list[float]:
    """Return `mean_of_norms` of dL/d(theta) for each row, with L the mean negative log-likelihood of the answer tokens.

    As in open-unlearning, the terminal token is not counted. Frozen parameters are included; integer (quantized) ones
    are not, and tied ones count once. Tensors that a row does not reach, such as idle experts, are left out of its
    mean. Each gradient is freed once its norm is taken, so memory is that of a forward pass with activations.

    Args:
        model: Causal language model, run in eval mode; gradients, `requires_grad` and train/eval mode are restored.
    """
    import torch

    from atwu._progress import progress_bar
    from atwu.data.pairing import collate_rows
    from atwu.modeling.forward import forward_tokens

    device = next(model.parameters()).device
    results = []
    with _collecting(model) as norms, torch.enable_grad():
        for row in progress_bar(
            rows, total=len(rows), desc=progress, unit="row", shown=progress is not None, leave=False
        ):
            text = row.text_labels if set(row.text_labels) - {IGNORE_INDEX} else row.labels
            tensors = collate_rows([dataclasses.replace(row, labels=text, token_labels=None)])
            (out,) = forward_tokens(model, [{name: tensor.to(device) for name, tensor in tensors.items()}])
            (-out.logps[out.mask].mean()).backward()
            results.append(mean_of_norms(norms))  # the norm of a norm is itself
            norms.clear()
    return results


class GradientNorm(Metric):
    name = "gradient_norm"
    about = "Membership inference by gradient norm"
    cost = "one backward pass per row"
    needs = (FORGET, HOLDOUT)
    needs_plain_weights = True
    attack = True
    columns = (score_column("gradient_norm", mean_of_norms),)

    def prepare(self) -> None:
        self._norms = {
            split: gradient_norms(
                self.session.model,
                self.session.encoded(split),
                progress=f"gradients of {split}" if self.session.progress else None,
            )
            for split in (FORGET, HOLDOUT)
        }

    def record(self) -> None:
        """Record the norms; `membership` derives the attack AUC from them."""
        for split, norms in self._norms.items():
            self.record_column(split, "mia_gradient_norm", norms)


@contextmanager
def _collecting(model: nn.Module) -> Iterator[list[Tensor]]:
    """Yield a list that receives the norm of each parameter's gradient in a backward pass; gradients are not kept."""
    from atwu.modeling.layers import eval_mode

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

    norm: Tensor = torch.linalg.vector_norm(gradient.detach(), dtype=torch.promote_types(gradient.dtype, torch.float32))
    return norm
