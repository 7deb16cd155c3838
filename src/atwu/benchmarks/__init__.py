"""Benchmarks: forget, retain and holdout sets with their evaluation rows, and loading of rows by source name."""
