"""Unlearning requests: from a model and a forget set to an unlearned model with a verdict and evidence."""
