"""Studies (comparisons of methods) and hyperparameter searches: plan, run and compare many runs."""
