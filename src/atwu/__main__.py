"""`python -m atwu`: the same as the `atwu` command."""

from __future__ import annotations

from atwu.cli import main

main()
