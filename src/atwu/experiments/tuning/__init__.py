"""Search for the numbers of a method: by the same rules and with the same budget for all."""
