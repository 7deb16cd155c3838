"""Default values of a request, for its functions and its flags alike; the command line reads them without loading the rest."""

AUTO = "auto"
"""Value of `retain`: self-generated answers to the shipped general questions."""
DEFAULT_HOLDOUT = "people:small:holdout"
"""Default source of holdout rows: invented people that no model was trained on."""
MAX_RETAIN_INCREASE = 0.15
"""Default of the largest accepted increase of the retain loss, in nats/token."""
