"""Benchmarks: which rows to remove, which to keep, and which to measure on; and rows by the name of their source."""
