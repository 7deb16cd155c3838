"""RMU: move hidden states of forget answers to a fixed random vector, keep those of retain answers (Li et al. 2024).

Both losses are a squared distance per token; the caller chooses the layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atwu.methods.component import Range, RetainLoss, number
from atwu.methods.component_inputs import LossInputs
from atwu.methods.losses.divergence import WeightedDistance

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference


def steering_vector(size: int, *, coefficient: float) -> Tensor:
    """Return the target of forget states: `c u / |u|`, u uniform on [0, 1) in each coordinate.

    It uses its own generator with seed 0, so it is equal in every run, process and machine and affects no other draw.

    Args:
        size: length of a hidden state.
        coefficient: length c of the vector; larger changes states more.

    Returns:
        Shape (size,), float32, on the CPU.
    """
    import torch

    generator = torch.Generator(device="cpu").manual_seed(0)
    u = torch.rand(size, generator=generator, dtype=torch.float32, device="cpu").double()
    # In float64, so that the order of summation does not affect the float32 result.
    return (coefficient * u / u.square().sum().sqrt()).float()


def squared_distance(states: Tensor, target: Tensor) -> Tensor:
    """`|h - t|^2 / d`: squared difference averaged over the hidden axis, in float32 (float64 for float64 states).

    Args:
        states: hidden states of the current model, shape (tokens, hidden).
        target: no gradient; the steering vector, shape (hidden,), or the states of the original model, shape
            (tokens, hidden).

    Returns:
        Shape (tokens,).
    """
    import torch

    dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
    return (states.to(dtype) - target.detach().to(dtype)).square().mean(-1)


def layer_option() -> Any:
    """Return the option of losses that read one layer."""
    return number(
        4,
        symbol="ℓ",
        search=Range(4, 12, log=False, integer=True),
        help="decoder layer of RMU and LUNAR, counted from 0; the last layer in smaller models",
    )


class Steering(WeightedDistance):
    """Steer the states of forget answers at one layer to a random vector, training three layers (RMU)."""

    formula = "w |h - c u/|u||² / d at one layer"
    reduction = "row_means"
    reads_head = False
    steering_coeff: float = number(
        2.0,
        symbol="c",
        search=Range(0.5, 10.0),
        help="length of RMU's steering vector; larger changes hidden states more",
    )
    layer: int = layer_option()

    def reads_layer(self, layers: int) -> int:
        return min(self.layer, layers - 1)

    def trained_layers(self, layers: int) -> tuple[int, ...]:
        last = self.reads_layer(layers)
        return tuple(range(max(0, last - 2), last + 1))

    def distance(self, out: TokenOutputs, inputs: LossInputs) -> Tensor:
        assert out.layer_states is not None
        states = out.layer_states
        target = steering_vector(states.shape[-1], coefficient=self.steering_coeff).to(states.device)
        return out.to_grid(squared_distance(states, target))


class Activation(RetainLoss):
    """Keep the states of retain answers at one layer (RMU)."""

    formula = "|h - h0|² / d at one layer on retain answers"
    needs = ("retain", "reference_activations")
    reduction = "row_means"
    reads_head = False
    layer: int = layer_option()

    def reads_layer(self, layers: int) -> int:
        return min(self.layer, layers - 1)

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        assert out.layer_states is not None
        if reference.retain_layer is None:
            raise ValueError("retain loss 'activation' needs the reference of the original model, which is missing.")
        return out.to_grid(squared_distance(out.layer_states, reference.retain_layer.to(out.layer_states.device)))
