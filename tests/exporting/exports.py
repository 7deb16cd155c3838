"""Make and read exports in tests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from atwu.exporting.export_run import Exported, export


def exported(run: Path, form: str, output: Path, **more: object) -> Exported:
    return export(run, form, output=output, **more)


def record(folder: Path) -> dict[str, object]:
    """Return the record of an export after checking its checksums."""
    found = json.loads((folder / "export.json").read_text())
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert set(found["files"]) == files - {"export.json"}
    for name, facts in found["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"]
        assert (folder / name).stat().st_size == facts["bytes"]
    return found
