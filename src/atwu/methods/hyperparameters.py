"""The numbers that methods take: what each means, its default, and where to search for it. No torch is needed to read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Where a number is searched."""

    low: float
    high: float
    log: bool = True
    """Draw its logarithm uniformly rather than the number itself."""
    integer: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            kind = "logarithmic range needs 0 < low <= high" if self.log else "range needs low <= high"
            raise ValueError(f"a {kind}, got {self.low} to {self.high}.")

    def clip(self, value: float) -> float:
        """The closest number inside."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.integer else float(inside)


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """A number that some methods take."""

    help: str
    default: float
    search: Range | None
    """Where to search if the method names no range of its own; None for one that is not searched."""
    positive: bool = False
    """0 makes no sense."""


HYPERPARAMETERS: dict[str, Hyperparameter] = {
    "forget_weight": Hyperparameter("gamma: factor on the forget loss; larger forgets more", 1.0, Range(0.1, 5.0)),
    "retain_weight": Hyperparameter("alpha: factor on the retain loss; larger keeps more", 1.0, Range(0.1, 5.0)),
    "beta": Hyperparameter(
        "strength of the forget loss's own nonlinearity; larger lets go of a forgotten answer earlier "
        "(UNDIAL: takes more off the memorised token)",
        1.0,
        Range(0.1, 10.0),
    ),
    "beta1": Hyperparameter("SatImp's saturation exponent", 5.0, Range(1.0, 10.0, log=False)),
    "beta2": Hyperparameter("importance exponent; larger concentrates on unlikely tokens", 1.0, Range(0.1, 5.0)),
    "delta": Hyperparameter(
        "SimNPO's margin: forget until the mean loss of an answer exceeds it", 0.0, Range(0.0, 2.0, log=False)
    ),
    # Another scale is another forget_weight, beta and delta, which are searched already.
    "score_scale": Hyperparameter("factor on learned scores in SimNPO; 2 starts like plain SimNPO", 1.0, None, True),
    "temperature": Hyperparameter("temperature of the entropy weights; large is uniform", 1.0, Range(0.1, 4.0), True),
    "steering_coeff": Hyperparameter(
        "RMU's length of the steering vector; larger scrambles more", 2.0, Range(0.5, 10.0)
    ),
    "layer": Hyperparameter(
        "RMU's decoder layer, from 0; a smaller model's last one", 4, Range(4, 12, log=False, integer=True)
    ),
}

SCORER_SEARCH: dict[str, Range] = {"scorer_learning_rate": Range(0.01, 0.5)}
"""Searched along with them where scores are learned; options of the run, not of the method."""
