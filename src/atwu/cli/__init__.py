"""The command line. Nothing imports from here; heavy imports wait until a command runs."""

from __future__ import annotations

import sys


def main() -> None:
    from atwu._command import install_handlers, set_program

    install_handlers()  # before anything that takes time to import
    set_program(sys.argv[0])
    from atwu.cli.app import run

    run()
