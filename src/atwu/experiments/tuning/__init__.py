"""Hyperparameter search, by the same rules and with the same budget for all methods."""
