"""Methods (token weighting x forget loss x retain loss) and the loss of one micro-batch."""
