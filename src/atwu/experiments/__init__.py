"""Studies and searches: many runs, planned, run and compared."""
