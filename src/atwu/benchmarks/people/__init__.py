"""The embedded benchmark of invented people."""
