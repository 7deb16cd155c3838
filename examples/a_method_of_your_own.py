"""A token weighting and a forget loss of one's own, with a hyperparameter; everything else follows.

    python examples/a_method_of_your_own.py methods hinge
    python examples/a_method_of_your_own.py unlearn --method hinge --tau 2 --model target ...

From a package: an entry point of the group `atwu.methods`, `hinge = "module:register"`."""

import atwu
from atwu.cli import main


class Remembered(atwu.Weighting):
    """Weight 1 where a token is more likely than not."""

    formula = "1 where p > 1/2"

    def weights(self, seen):
        return (seen.logps.detach().exp() > 0.5).to(seen.logps.dtype)


class Hinge(atwu.ForgetLoss):
    """Gradient ascent that lets go of a token at p = exp(-τ)."""

    formula = "w max(0, log p + τ)"
    tau: float = atwu.number(3.0, symbol="τ", search=atwu.Range(1.0, 6.0), help="surprise at which a token is let go")

    def values(self, terms, weights):
        return weights * (terms.logps + self.tau).relu()


def register():
    atwu.register_weighting("remembered", Remembered)
    atwu.register_forget_loss("hinge", Hinge)
    atwu.register_method("hinge", atwu.Method("Hinge", "remembered", "hinge", "nll", "your paper"))


if __name__ == "__main__":
    register()
    main()
