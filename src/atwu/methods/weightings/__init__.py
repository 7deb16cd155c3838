"""Token weightings: the weight of each token of a forget answer in the loss."""
