"""LUNAR: move forget rows towards where questions stand that the model refuses (Shen et al. 2025, arXiv 2502.07218).

`c r` is added to the output of one decoder layer, r being the mean state at the end of refused questions minus that of the
forget questions. Only the layer's `down_proj` learns it, so its inputs, and the layers below, stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import Range, number
from atwu.methods.component_inputs import LossInputs
from atwu.methods.losses.divergence import WeightedDistance
from atwu.methods.losses.representation import layer_option, squared_distance

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs

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


class Redirection(WeightedDistance):
    """`|h - (h0 + c r)|^2 / d` at every token of question and answer but the first; see the module.

    The published code counts the questions alone, forget and retain rows in one mean, and trains on stored states.
    """

    formula = "w |h - h0 - c r|² / d at one layer"
    needs = ("reference_activations", "refused_questions")
    all_positions = True
    reads_head = False
    redirect_coeff: float = number(
        2.0,
        symbol="c",
        search=Range(0.5, 4.0),
        help="LUNAR: multiple of the refusal direction that is added; larger redirects further",
    )
    layer: int = layer_option()

    def reads_layer(self, layers: int) -> int:
        return min(self.layer, layers - 1)

    def trained_layers(self, layers: int) -> tuple[int, ...]:
        return (self.reads_layer(layers),)

    def distance(self, out: TokenOutputs, inputs: LossInputs) -> Tensor:
        states, start = out.layer_states, inputs.reference.forget_layer
        if states is None or start is None or inputs.refusal_direction is None:
            raise ValueError("forget loss 'redirection' needs the states of the original model and refusal_direction.")
        target = start.to(states) + self.redirect_coeff * inputs.refusal_direction.to(states)
        return out.to_grid(squared_distance(states, target))
