"""Gradient norm of single rows, a membership score: what a model was trained on pulls less at its weights.

One backward pass per row, the slowest of the attacks. Definition of open-unlearning: the mean over parameter tensors of
each tensor's own norm, so that a small tensor counts as much as a large one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from atwu.data.collate import collate_rows
from atwu.data.encode import EncodedRow
from atwu.modeling.forward import forward_tokens
from atwu.modeling.modes import evaluating


def mean_of_norms(gradients: Iterable[Tensor]) -> float:
    """Mean of the 2-norms of single tensors; not the norm of all of them together.

    Args:
        gradients: tensors of any shape, at least one.
    """
    return float(torch.stack([_norm(gradient).cpu() for gradient in gradients]).mean())


def gradient_norms(model: nn.Module, rows: Sequence[EncodedRow], *, progress: str | None = None) -> list[float]:
    """`mean_of_norms` of dL/d(theta) for every row, L the mean negative log-likelihood of its counted tokens.

    The terminal token counts; so do frozen parameters, but not integer ones (quantised) and none twice (tied). A tensor the
    row does not reach, such as an idle expert, is left out of the row's mean. Only norms are kept: each gradient is freed as
    soon as it is there, so the pass needs the memory of a forward pass with activations, not of a second model.

    Args:
        model: causal language model, run in eval mode; its gradients, `requires_grad` and train/eval state are put back.
        rows: encoded rows, taken one at a time.
        progress: label of a progress bar, or None for none.

    Returns:
        One value >= 0 per row, in order; higher = less likely a member.
    """
    device = next(model.parameters()).device
    results = []
    with _collecting(model) as norms, torch.enable_grad():
        for row in tqdm(rows, desc=progress, unit="row", disable=progress is None):
            tensors = collate_rows([dataclasses.replace(row, token_labels=None)])
            (out,) = forward_tokens(model, [{name: tensor.to(device) for name, tensor in tensors.items()}])
            (-out.logps[out.mask].mean()).backward()
            results.append(mean_of_norms(norms))  # the norm of a norm is itself
            norms.clear()
    return results


@contextmanager
def _collecting(model: nn.Module) -> Iterator[list[Tensor]]:
    """A list to which every backward pass adds the norm of each parameter's gradient instead of keeping the gradient."""
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
        with evaluating(model):
            yield norms
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, (required, gradient) in zip(parameters, before, strict=True):
            parameter.requires_grad_(required)
            parameter.grad = gradient


def _norm(gradient: Tensor) -> Tensor:
    dtype = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    norm: Tensor = torch.linalg.vector_norm(gradient.detach(), dtype=dtype)
    return norm
