"""Token weightings: how much each token of a forget answer counts."""
