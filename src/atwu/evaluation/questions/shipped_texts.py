"""Shipped texts (`shipped_texts.yaml`): templates of adversarial questions, open-ended instructions, synonyms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml

_SHIPPED: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))

SYNONYMS: Mapping[str, str] = _SHIPPED.pop("synonyms")
"""Lower-case word -> synonym of the same grammatical form."""
FAMILY_TEMPLATES: Mapping[str, Sequence[str]] = _SHIPPED
"""Kind -> texts."""
SUBJECT_PRONOUN = "this person"
"""How the question refers to a subject that was introduced before it."""
