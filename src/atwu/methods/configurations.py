"""Whole configurations of how a method is run: as published, or with what was measured better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "ours": {},
    "authors": {"hidden_position": "own", "score_scale": 2.0, "legacy": True},
    "paper": {
        "hidden_position": "own",
        "scorer_bias": False,
        "detach_saturation": False,
        "budget": "soft",
        "lambda_budget": 15.0,
        "scorer_gamma": "forget_weight",
        "scorer_schedule": "constant",
    },
}
"""Option -> value, where the options' own defaults are departed from. `authors` follows the published code, `paper` its text
to the letter (both with losses pooled over the whole optimizer step); `ours` has the corrected JensUn, unscaled scores, and
the scorer on the predicting state, which found the secret words better wherever it was measured (docs/people.md,
docs/tofu-small.md)."""
