"""A custom token weighting and forget loss with a hyperparameter, available in all commands.

    python examples/a_method_of_your_own.py methods hinge
    python examples/a_method_of_your_own.py unlearn --method hinge --tau 2 --model target ...

In a package: an entry point of the group `atwu.methods`, `hinge = "module:register"`.
"""

import atwu
from atwu.cli import main


class Later(atwu.Weighting):
    """Weight that grows along the answer, since key tokens tend to come late."""

    formula = "t / n"

    def weights(self, seen):
        return seen.mask.cumsum(dim=1) / seen.mask.sum(dim=1, keepdim=True).clamp(min=1)


class Hinge(atwu.ForgetLoss):
    """Gradient ascent that stops for a token at p = exp(-τ)."""

    formula = "w max(0, log p + τ)"
    tau: float = atwu.number(3.0, symbol="τ", search=atwu.Range(1.0, 6.0), help="surprisal above which loss is 0")

    def values(self, terms, weights):
        return weights * (terms.logps + self.tau).relu()


def register():
    atwu.register_weighting("later", Later)
    atwu.register_forget_loss("hinge", Hinge)
    atwu.register_method("hinge", atwu.Method("Hinge", "later", "hinge", "nll", "your paper"))


if __name__ == "__main__":
    register()
    main()
