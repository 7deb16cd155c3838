"""The panel of `evaluate`: groups of metrics that share passes over the model, and the table of them."""
