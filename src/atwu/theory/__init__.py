"""The recovery theorem of the ATWU paper, in the form proved in docs/theory.md, on problems small enough to solve exactly."""

from atwu.theory.claims import Claim
from atwu.theory.conflicts import Conflict, Separation, conflict, separation
from atwu.theory.instances import overlapping_problem, random_problem, separated_problem
from atwu.theory.minima import Minimum, minimum, retain_minimum
from atwu.theory.problem import ToyProblem
from atwu.theory.relaxed import Regulariser, Thresholds, thresholds
from atwu.theory.rows import TheoryResult
from atwu.theory.saturation import Objective
from atwu.theory.study import study
from atwu.theory.supports import SupportTable, choose, enumerate_supports, exchange_margin

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
