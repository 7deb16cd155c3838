"""`evidence.json` as it is declared."""

from __future__ import annotations

from pathlib import Path

from atwu._reading import adapter_of, read_declared
from atwu.request.evidence import SCHEMA, Evidence

DECLARED = adapter_of(Evidence)


def read_evidence(path: Path) -> Evidence:
    """What `Evidence.write` wrote."""
    return read_declared(path, Evidence, SCHEMA, what="evidence", made_by="atwu evidence")
