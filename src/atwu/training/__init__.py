"""Configs and trainers."""
