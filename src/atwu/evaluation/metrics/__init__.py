"""Metrics and attacks, one file each, with formula, inputs, settings, columns and warnings; see `atwu.evaluation.registry`."""
