"""Metrics on any checkpoint, without the trainer."""
