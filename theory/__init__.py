"""The recovery theorem of the ATWU paper, in the form proved in docs/theory.md, on problems small enough to solve exactly."""
