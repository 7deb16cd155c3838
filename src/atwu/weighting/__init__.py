"""Token weightings: how much each token of a forget answer counts."""

from atwu.weighting.scorer import TokenScorer

__all__ = ["TokenScorer"]
