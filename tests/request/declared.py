"""The declared schema of `evidence.json`."""

from __future__ import annotations

from pathlib import Path

from atwu._file_reading import read_declared, type_adapter
from atwu.request.evidence import EVIDENCE_SCHEMA, Evidence

DECLARED = type_adapter(Evidence)


def read_evidence(path: Path) -> Evidence:
    """What `Evidence.write` wrote."""
    return read_declared(path, Evidence, EVIDENCE_SCHEMA, what="evidence", made_by="atwu evidence")
