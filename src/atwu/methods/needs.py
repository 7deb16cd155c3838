"""What a method may need besides forget rows, in words."""

from __future__ import annotations

from collections.abc import Mapping

NEEDS: Mapping[str, str] = {
    "retain": "retain rows (--retain)",
    "labels": "secret tokens: forget_spans in the forget rows, or --forget-words",
    "scorer": "a token scorer, learned on the way (--scorer-..., --configuration)",
    "starting_logps": "log-probabilities of the starting model, read before training",
    "reference_logps": "log-probabilities of the starting model (--reference)",
    "reference_distributions": "next-token distributions of the starting model (--reference)",
    "reference_activations": "one layer's outputs of the starting model (--reference)",
    "alternates": "alternate answers: of the rows, else refusals drawn for every epoch",
    "auxiliary_models": "two auxiliary models (--auxiliary-forget, --auxiliary-retain), else trained and cached",
    "text": "forget rows as text, not as token ids",
    "retain_text": "retain rows as text, not as token ids",
    "noun_finder": "a noun finder (--noun-finder: a spaCy model, or simple)",
    "refusal": "a refusal to aim at (--refusal), and the tokenizer for it",
}
"""What a method may need besides forget rows."""
