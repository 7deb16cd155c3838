"""The built-in benchmark of fictitious people."""
