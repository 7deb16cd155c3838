"""Errors a caller may want to catch."""


class NonFiniteLossError(RuntimeError):
    """The loss became NaN or infinite; the model of the last checkpoint is intact."""
