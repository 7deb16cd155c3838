"""Every script with options starts: what it imports is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("scripts/*.py")]
    if "ArgumentParser(" in path.read_text(encoding="utf-8") or path.name == "__main__.py"
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_starts(script: str) -> None:
    done = subprocess.run([sys.executable, script, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage:" in done.stdout
