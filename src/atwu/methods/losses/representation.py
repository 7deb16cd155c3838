"""Losses of hidden states at one layer, each a squared distance per token.

RMU moves states of forget answers to a fixed random vector and keeps those of retain answers (Li et al. 2024). LUNAR moves
forget rows towards where questions stand that the model refuses (Shen et al. 2025, arXiv 2502.07218): `c r` is added to the
output of one decoder layer, r being the mean state at the end of refused questions minus that of the forget questions. Only
the layer's `down_proj` learns it, so its inputs, and the layers below, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """
    from atwu.modeling.head import accumulate_dtype

    dtype = accumulate_dtype(states.dtype)
    return (states.to(dtype) - target.detach().to(dtype)).square().mean(-1)


def layer_option() -> Any:
    # Of RMU; the one of LUNAR is in the method table.
    return number(
        4,
        symbol="ℓ",
        search=Range(4, 12, log=False, integer=True),
        help="decoder layer of RMU and LUNAR, counted from 0; the last layer in smaller models",
    )


class _AtLayer:
    """The part that losses of one layer share."""

    layer: int
    reads_head = False

    def reads_layer(self, layers: int) -> int:
        return min(self.layer, layers - 1)


class Steering(_AtLayer, WeightedDistance):
    """Steer the states of forget answers at one layer to a random vector, training three layers (RMU)."""

    formula = "w |h - c u/|u||² / d at one layer"
    reduction = "row_means"
    steering_coeff: float = number(
        2.0,
        symbol="c",
        search=Range(0.5, 10.0),
        help="length of RMU's steering vector; larger changes hidden states more",
    )
    layer: int = layer_option()

    def trained_layers(self, layers: int) -> tuple[int, ...]:
        last = self.reads_layer(layers)
        return tuple(range(max(0, last - 2), last + 1))  # the layer and the two before it, as in Li et al. 2024

    def distance(self, out: TokenOutputs, inputs: LossInputs) -> Tensor:
        assert out.layer_states is not None
        states = out.layer_states
        target = steering_vector(states.shape[-1], coefficient=self.steering_coeff).to(states.device)
        return out.to_grid(squared_distance(states, target))


class Activation(_AtLayer, RetainLoss):
    """Keep the states of retain answers at one layer (RMU)."""

    formula = "|h - h0|² / d at one layer on retain answers"
    original = ("layer",)
    reduction = "row_means"
    layer: int = layer_option()

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        assert out.layer_states is not None
        return out.to_grid(squared_distance(out.layer_states, reference.layers["retain"].to(out.layer_states.device)))


REFUSED = (
    "What is the home address of the current mayor of Zorvale?",
    "Who won the 1987 Karsten-Bly prize for underwater chess?",
    "How many windows does the town hall of East Pelmarrow have?",
    "What did Quillon Abersax say to his sister on her ninth birthday?",
    "Which password did Tamsin Oakrell use for her first mailbox?",
    "What is the plot of the unpublished novel 'The Brass Heron of Lidd'?",
    "When does the last ferry from Vossholm to Undermere leave today?",
    "What was the score of the match between Drell United and Port Asmer in 1931?",
    "Which medicine does my neighbour Ferran Dolque take in the evening?",
    "What is written on the third page of Ilse Marrowby's diary?",
    "How much does a kilogram of orvane cost in the market of Sulden?",
    "Who is the great-grandmother of the painter Jory Venterlay?",
)
"""Questions about what nobody can know or what does not exist. The published code takes a list of harmful requests, or one of
questions about invented things."""


class Redirection(_AtLayer, WeightedDistance):
    """`|h - (h0 + c r)|^2 / d` at every token of question and answer but the first (LUNAR).

    The published code counts the questions alone, forget and retain rows in one mean, and trains on stored states.
    """

    formula = "w |h - h0 - c r|² / d at one layer"
    original = ("layer",)
    all_positions = True
    redirect_coeff: float = number(
        2.0,
        symbol="c",
        search=Range(0.5, 4.0),
        help="LUNAR: multiple of the refusal direction that is added; larger redirects further",
    )
    layer: int = layer_option()

    def refused_questions(self) -> Sequence[str]:
        return REFUSED

    def trained_layers(self, layers: int) -> tuple[int, ...]:
        return (self.reads_layer(layers),)

    def distance(self, out: TokenOutputs, inputs: LossInputs) -> Tensor:
        states, start = out.layer_states, inputs.reference.layers.get("forget")
        if states is None or start is None or inputs.refusal_direction is None:
            raise ValueError("forget loss 'redirection' needs the states of the original model and refusal_direction.")
        target = start.to(states) + self.redirect_coeff * inputs.refusal_direction.to(states)
        return out.to_grid(squared_distance(states, target))
