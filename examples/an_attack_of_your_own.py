"""A custom attack in one file: does noise on the weights bring back what was unlearned?

`python examples/an_attack_of_your_own.py evaluate --metrics noise ...` adds this attack. Installed packages register it as a
metric: group `atwu.metrics`, `noise = "module:NoiseAttack"`.
"""

from contextlib import contextmanager
from typing import ClassVar

import torch

from atwu import MetricSetting, register_metric
from atwu.evaluation.columns import FORGET
from atwu.evaluation.metrics.weight_attacks import WeightAttack, attack_columns
from atwu.modeling.layers import restored


@contextmanager
def noise_added(model, share, seed):
    """Add normal noise to each weight matrix, with `share` times its standard deviation, and restore the model on leaving."""
    generator = torch.Generator().manual_seed(seed)
    with restored(model), torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                noise = torch.randn(weight.shape, generator=generator)
                weight += (share * weight.std() * noise.to(weight.device)).to(weight.dtype)
        yield


@register_metric
class NoiseAttack(WeightAttack):
    name, about = "noise", "Noise attack: forget rows after noise was added to the weights"
    settings = (
        MetricSetting("noise_share", float, 0.1, "Noise, as a share of a matrix's standard deviation.", least=0),
    )
    uses = ("max_new_tokens", "paraphrases", "seed")
    words: ClassVar = {"noise": "noise"}
    columns = attack_columns(words)

    def attacks(self):
        config, rows = self.session.config, self.session.sets[FORGET]
        return {"noise": (noise_added(self.session.model, config.noise_share, config.seed), range(len(rows)))}


if __name__ == "__main__":
    from atwu.cli import main

    main()
