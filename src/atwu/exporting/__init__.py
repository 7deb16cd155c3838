"""A finished run as something to hand on: written in another format, read back, and measured as it is."""
