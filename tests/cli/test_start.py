"""Commands start quickly: what is slow to import waits until it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = """
import sys
sys.argv = ["atwu", *{arguments!r}]
from atwu.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("imported:", *(name for name in {names!r} if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("arguments", "kept_out"),
    [
        (["--help"], ("torch", "transformers", "numpy", "nltk", "optuna", "matplotlib", "pandas")),
        (["compare", "--help"], ("torch", "transformers", "numpy", "nltk", "pandas")),
        (["tune", "--help"], ("torch", "transformers", "numpy", "optuna")),
        (["methods", "atwu"], ("transformers", "nltk", "scipy")),
    ],
)
def test_help_and_tables_import_nothing_heavy(arguments, kept_out):
    script = ASK.format(arguments=arguments, names=kept_out)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("imported:")
