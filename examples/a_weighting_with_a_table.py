"""A weighting that is computed once, before training, and an NPO with a beta per row, available in all commands.

    python examples/a_weighting_with_a_table.py unlearn --method patient_npo --model target ...
In Python call `register()` first.
"""

import torch.nn.functional as F

import atwu
from atwu.cli import main


class Unasked(atwu.FixedWeighting):
    """Surprise of each answer token to the original model that is not asked the question, with mean 1 in a row."""

    formula = "-log π0(token | no question), mean 1 in the row"
    reads_original = True  # the original model must be at hand before training
    is_score = False  # `atwu evaluate` has no original model

    def precompute(self, context):
        for logps in context.ref_logps_asked(lambda question: ""):
            yield logps / min(logps.mean(), -1e-6)  # both are negative


class PatientNPO(atwu.ForgetLoss):
    """NPO that goes further on rows that the original model knows well: beta is smaller there."""

    formula = "-(2/βᵢ) log σ(-βᵢ r), βᵢ = β (1 - mean of log π0), r = Σ w log π/π0"
    reduction = "sequences"  # one value per row
    original = ("logps",)  # gives terms.ref_logps
    beta: float = atwu.number(
        0.1, symbol="β", search=atwu.Range(0.05, 0.5), positive=True, help="smallest beta of a row"
    )

    def values(self, terms, weights):
        tokens = terms.mask.sum(dim=1).clamp(min=1)
        beta = self.beta * (1 - (terms.ref_logps * terms.mask).sum(dim=1) / tokens)
        ratio = (weights * (terms.logps - terms.ref_logps) * terms.mask).sum(dim=1)
        return -2 / beta * F.logsigmoid(-beta * ratio)


def register():
    atwu.register_weighting("unasked", Unasked)
    atwu.register_forget_loss("patient_npo", PatientNPO)
    method = atwu.Method(
        title="Patient NPO",
        weighting="unasked",
        forget_loss="patient_npo",
        retain_loss="nll",
        cite="your paper",
        defaults={"forget_weight": 0.5, "beta": 0.1},
    )
    atwu.register_method("patient_npo", method)


if __name__ == "__main__":
    register()
    main()
