"""Export of a finished run to another format, with a check that it still has forgotten."""
