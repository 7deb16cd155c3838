"""Rows from any source, encoded, paired and padded."""
