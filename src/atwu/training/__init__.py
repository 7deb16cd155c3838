"""Training: configurations, trainers, checkpoints and output folders."""
