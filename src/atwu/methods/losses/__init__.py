"""Loss formulas as pure functions of per-token log-probabilities, independent of model, batch and trainer."""
