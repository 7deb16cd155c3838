"""Judges: check whether an answer states a fact, and which of two answers is better."""
