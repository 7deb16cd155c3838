"""The command line. Nothing imports from here; heavy imports wait until a command runs."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `atwu` command."""
    from atwu._interrupts import install_handlers

    install_handlers()  # before anything that takes time to import
    from atwu.cli.app import run

    run()
