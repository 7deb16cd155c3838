"""The built-in benchmark of fictitious people, which needs no download."""
