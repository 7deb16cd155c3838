"""Activation patching: run a model with the output of one decoder layer replaced by that of another model.

States are replaced where a counted token is predicted; all other positions keep the model's own. Both models read the same
rows in the same batches.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from atwu._progress import progress_bar
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.evaluation.teacher_forced import token_batches
from atwu.modeling.batches import Layout, TokenBatch, lay_out
from atwu.modeling.layers import decoder_layers, eval_mode, replaced_forward, tap, unwrap
from atwu.modeling.single_pass import fast_path_support, run_pass


@torch.no_grad()
def layer_outputs(model: nn.Module, rows: Sequence[EncodedRow], *, batch_tokens: int = 4096) -> list[Tensor]:
    """Return the outputs of all decoder layers where counted tokens are predicted.

    Returns:
        One tensor per batch, on the CPU, shape (layers, counted tokens, hidden).
    """
    inner, logps, states = unwrap(model), _pass_over(model), []
    with eval_mode(model):
        for _, arranged in _batches(model, rows, batch_tokens):
            outputs: list[Tensor] = []
            with contextlib.ExitStack() as stack:
                for layer in range(len(decoder_layers(inner))):
                    stack.enter_context(tap(inner, layer, outputs, stop=False))
                logps(arranged)
            states.append(torch.stack([output[arranged.predicting[0]].cpu() for output in outputs]))
    return states


@torch.no_grad()
def patched_drops(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    sources: Sequence[Sequence[Tensor]],
    *,
    batch_tokens: int = 4096,
    progress: str | None = None,
) -> FloatArray:
    """Return how far patching each layer lowers the mean log-probability of a row's counted tokens.

    Args:
        rows: Rows with at least one counted token.
        sources: For each source model, its `layer_outputs` on the same rows with the same `batch_tokens`.

    Returns:
        Drops in nats per token, shape (sources, rows, layers).
    """
    layers, logps = list(decoder_layers(unwrap(model))), _pass_over(model)
    drops = np.empty((len(sources), len(rows), len(layers)))
    outputs: list[Any] = []
    shown = progress_bar(total=len(rows), desc=progress, unit="row", shown=progress is not None, leave=False)
    with eval_mode(model), shown as bar:
        for number, (batch, arranged) in enumerate(_batches(model, rows, batch_tokens)):
            sizes = [len(rows[index].counted(rows[index].labels)) for index in batch]
            # One pass without patches serves all layers and sources.
            outputs.clear()
            with contextlib.ExitStack() as stack:
                for module in layers:
                    stack.callback(module.register_forward_hook(lambda *passed: outputs.append(passed[-1])).remove)
                plain = _row_means(logps(arranged), sizes)
            for layer, place in itertools.product(range(len(layers)), range(len(sources))):
                patched = _patch_output(outputs[layer], arranged.predicting[0], sources[place][number][layer])
                # Layers up to this one give what was recorded, so that nothing of them is computed again.
                with contextlib.ExitStack() as stack:
                    for module, output in zip(layers, [*outputs[:layer], patched], strict=False):
                        stack.enter_context(replaced_forward(module, lambda *args, output=output, **options: output))
                    drops[place, batch, layer] = plain - _row_means(logps(arranged), sizes)
            bar.update(len(batch))
    return drops


def _batches(model: nn.Module, rows: Sequence[EncodedRow], batch_tokens: int) -> Iterator[tuple[list[int], Layout]]:
    for batch, tensors in token_batches(model, rows, batch_tokens):
        yield batch, lay_out([TokenBatch.of(tensors)], packed=False)


def _pass_over(model: nn.Module) -> Callable[[Layout], Tensor]:
    """Return a function that computes the log-probability of every counted token, row by row."""
    fast_paths = fast_path_support(model, next(model.parameters()).device)  # its trial passes must not be tapped
    return lambda arranged: run_pass(model, arranged, fast_paths).head.logps


def _row_means(logps: Tensor, sizes: list[int]) -> FloatArray:
    return np.array([float(row.mean()) for row in logps.double().cpu().split(sizes)])


def _patch_output(output: Any, where: Tensor, states: Tensor) -> Any:
    # Layers of some models return further values beside their states.
    further: tuple[Any, ...] | None = None
    if isinstance(output, tuple | list):
        output, *rest = output
        further = tuple(rest)
    changed = output.flatten(0, 1).index_copy(0, where, states.to(output)).view_as(output)
    if further is None:
        return changed
    return (changed, *further)
