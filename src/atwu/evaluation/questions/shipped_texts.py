"""Texts that models are asked (`wordings.yaml`): adversarial questions in several wordings, and open-ended instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml

_SHIPPED: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))

SYNONYMS: Mapping[str, str] = _SHIPPED.pop("synonyms")
"""Lower-case word -> another way to say it, of the same grammatical form."""
FAMILY_TEMPLATES: Mapping[str, Sequence[str]] = _SHIPPED
"""Kind -> texts."""
SUBJECT_PRONOUN = "this person"
"""What the subject is called after an introduction."""
