"""Losses: formulas as pure functions of tensors, and the components that declare their hyperparameters and inputs."""
