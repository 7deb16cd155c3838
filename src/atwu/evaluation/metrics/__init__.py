"""One file per metric or attack, with its formula, inputs, settings, columns and warnings; see
`atwu.evaluation.registry`."""
