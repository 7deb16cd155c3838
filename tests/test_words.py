"""`scripts/check_words.py` finds the phrases that the glossary replaces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/check_words.py"
WORDS = '"retain set": ["rows to keep", "--oldflag"]\n'


def check(root: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/words.yaml").write_text(WORDS)
    (tmp_path / "README.md").write_text("The retain set: browse to keeper.\n")
    return tmp_path


def test_text_in_the_terms_of_the_glossary_passes(root: Path) -> None:
    assert check(root) == (0, [])


@pytest.mark.parametrize(
    "text",
    ["Rows to keep.", "# all rows\n# to keep", 'x = "rows to "\n    f"keep"', "rows\n    to keep", "> rows to\n> keep"],
)
def test_a_phrase_is_found_across_line_breaks(root: Path, text: str) -> None:
    (root / "src/module.py").write_text(f"import re\n{text}\n")
    code, (line,) = check(root)
    assert code == 1
    assert line.startswith("src/module.py:2: 'rows to keep'")
    assert "retain set" in line


def test_replaced_flags_are_found_in_documents(root: Path) -> None:
    (root / "docs/page.md").write_text("`--oldflag 3` but not `--oldflags` or `old--oldflag`\n")
    code, lines = check(root)
    assert (code, [line.partition(" ")[0] for line in lines]) == (1, ["docs/page.md:1:"])
