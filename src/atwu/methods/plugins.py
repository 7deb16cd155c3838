"""Installed packages that add to the tables.

A package may register through an entry point of the group `atwu.methods` whose value is a function without arguments
that calls the functions of `atwu.methods.method_registry`; it is called before the tables are first read.
"""

from __future__ import annotations

import importlib.metadata
import logging

logger = logging.getLogger(__name__)

METHOD_ENTRY_POINTS = "atwu.methods"
_loaded = False


def load_plugins() -> None:
    """Let installed packages register, once; one that fails is named in a warning and left out."""
    global _loaded
    if _loaded:
        return
    _loaded = True  # before the first call: registering a method looks its parts up
    for point in importlib.metadata.entry_points(group=METHOD_ENTRY_POINTS):
        try:
            point.load()()
        except Exception as error:
            logger.warning("entry point %s = %s failed and was left out: %s", point.name, point.value, error)
