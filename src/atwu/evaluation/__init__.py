"""Evaluation metrics for any checkpoint, independent of the trainer."""
