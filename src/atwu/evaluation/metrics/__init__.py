"""One file per metric or attack, which owns its formula, needs, settings, columns and warnings; see
`atwu.evaluation.registry`.
"""
