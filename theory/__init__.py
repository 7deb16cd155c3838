"""The recovery theorem of the ATWU paper, in the form proved in docs/theory.md, on problems small enough to solve exactly."""

from theory.claims import Claim
from theory.conflicts import Conflict, Separation, conflict, separation
from theory.instances import overlapping_problem, random_problem, separated_problem
from theory.minima import Minimum, minimum, retain_minimum
from theory.problem import ToyProblem
from theory.relaxed import Regulariser, Thresholds, thresholds
from theory.rows import TheoryResult
from theory.saturation import Objective
from theory.study import study
from theory.supports import SupportTable, choose, enumerate_supports, exchange_margin

__all__ = [
    "Claim",
    "Conflict",
    "Minimum",
    "Objective",
    "Regulariser",
    "Separation",
    "SupportTable",
    "TheoryResult",
    "Thresholds",
    "ToyProblem",
    "choose",
    "conflict",
    "enumerate_supports",
    "exchange_margin",
    "minimum",
    "overlapping_problem",
    "random_problem",
    "retain_minimum",
    "separated_problem",
    "separation",
    "study",
    "thresholds",
]
