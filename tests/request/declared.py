"""`evidence.json` as it is declared."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from atwu._reading import read_declared
from atwu.request.evidence import SCHEMA, Evidence

DECLARED = TypeAdapter(Evidence)


def read_evidence(path: Path) -> Evidence:
    """What `Evidence.write` wrote."""
    return read_declared(path, DECLARED, SCHEMA, what="evidence", made_by="atwu evidence")
