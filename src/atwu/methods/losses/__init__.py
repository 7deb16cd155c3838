"""Loss formulas as pure functions on per-token log-probabilities. They know no model, batch or trainer."""
