"""FLAT: widen an f-divergence between a template answer and the forget answer, without retain rows (Wang et al. 2025c).

The variational form of the divergence weighs learning the template against unlearning the answer by how probable each is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from atwu.methods.component import ForgetLoss, setting
from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.reduction import row_means

if TYPE_CHECKING:
    from torch import Tensor

DIVERGENCES = ("total_variation", "kl", "jensen_shannon", "pearson")


class FLAT(ForgetLoss):
    """`-g(template) + f*(g(forget))`, with the g and the conjugate f* of a divergence (arXiv 2410.11143).

    It rises with the mean token probability of the forget answer, each scaled by its weight, and falls with that of the
    template.

    The published code averages probabilities over the whole batch, prompt and padding included (as 0), before it applies g
    and f*; here each answer has its own mean, over its own tokens.
    """

    formula = "f*(g(mean w p)) - g(mean p of alternate)"
    reduction = "sequences"
    needs = ("alternates", "text")
    f_divergence: str = setting("total_variation", choices=DIVERGENCES, help="divergence that FLAT widens")

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        import torch.nn.functional as F

        assert terms.alternate_logps is not None
        assert terms.alternate_mask is not None
        forget = row_means(weights * terms.logps.exp(), terms.mask)
        template = row_means(terms.alternate_logps.exp(), terms.alternate_mask)
        if self.f_divergence == "total_variation":
            return (forget.tanh() - template.tanh()) / 2
        if self.f_divergence == "kl":
            return (forget - 1).exp() - template
        if self.f_divergence == "pearson":
            return forget.square() / 4 + forget - template
        return F.softplus(forget) + F.softplus(-template) - 2 * math.log(2)
