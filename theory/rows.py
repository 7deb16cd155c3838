"""Results of the study as plain values, for JSON and tables."""

from __future__ import annotations

from dataclasses import dataclass

from theory.claims import Claim
from theory.saturation import Objective


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A forget token: its probability under the memorized and the retain-only model, c, and V."""

    token: str
    private: bool
    memorised: float
    retain_only: float
    conflict: float
    penalised: float


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """The best support at one budget: its tokens, number of private tokens, V, certified lead, increase of L_r."""

    k: int
    tokens: tuple[str, ...]
    private: int
    recovered: bool
    penalised: float
    lead: float | None
    rise: float


@dataclass(frozen=True, slots=True)
class RelaxedRow:
    """The minimizing scores at lambda_H and lambda_rho, which are multiples of their thresholds.

    `guaranteed`: both multiples are at least 1, so the theorem guarantees binary and tight scores.
    """

    forget_loss: str
    k: int
    entropy: float
    budget: float
    scores: tuple[float, ...]
    binary: bool
    tight: bool
    guaranteed: bool


@dataclass(frozen=True, slots=True)
class SearchRow:
    """Gradient searches over model and scores: how many ended binary, tight, and at the global minimum; distance to it."""

    entropy: float
    budget: float
    starts: int
    binary: int
    tight: int
    best: int
    distance: float
    from_half: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NeededRow:
    """Largest lambda_H, as a multiple of its threshold, at which a fractional score is optimal on one edge, for each loss."""

    ridge: float
    satga: float
    satga_plus: float


@dataclass(frozen=True, slots=True)
class Curves:
    """Data of the figure besides the tables.

    Attributes:
        rises: for each k, the smallest and largest increase of L_r over all supports of k tokens.
        multiples: the multiples of the thresholds on both axes of `phases`.
        phases: by budget, then entropy: 0 binary and tight, 1 binary but not tight, 2 fractional.
        side: scores along an edge, from 0 to 1.
        satga, satga_plus: the value functions at `side` minus that at 0, in units of C.
    """

    rises: tuple[tuple[float, float], ...]
    multiples: tuple[float, ...]
    phases: tuple[tuple[int, ...], ...]
    side: tuple[float, ...]
    satga: tuple[float, ...]
    satga_plus: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TheoryResult:
    """All results of `make theory`."""

    objective: Objective
    seed: int
    oracle_budget: float
    tokens: tuple[TokenRow, ...]
    budgets: tuple[BudgetRow, ...]
    overlapping_tokens: tuple[TokenRow, ...]
    overlapping_budgets: tuple[BudgetRow, ...]
    relaxed: tuple[RelaxedRow, ...]
    searches: tuple[SearchRow, ...]
    needed: tuple[NeededRow, ...]
    curves: Curves
    claims: tuple[Claim, ...]

    @property
    def agrees(self) -> bool:
        """Whether all measurements agree with the theory."""
        return all(claim.agrees for claim in self.claims)
