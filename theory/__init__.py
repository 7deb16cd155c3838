"""The recovery theorem of the ATWU paper, in the form proved in theory/README.md, on problems small enough to solve exactly."""
