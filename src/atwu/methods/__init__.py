"""Methods: a token weighting x a forget loss x a retain loss, and the loss of one micro-batch."""
