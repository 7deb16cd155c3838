"""Load methods and components from installed packages.

A package declares an entry point in the group `atwu.methods`. Its value is a function without arguments that calls the
functions of `atwu.methods.method_registry`; it is called before the tables are first read.
"""

from __future__ import annotations

import importlib.metadata
import logging

logger = logging.getLogger(__name__)

METHOD_ENTRY_POINTS = "atwu.methods"
_loaded = False


def load_plugins() -> None:
    """Call the entry points of installed packages, once; log a warning for each that fails."""
    global _loaded
    if _loaded:
        return
    _loaded = True  # set before the calls: registering a method calls load_plugins again
    for point in importlib.metadata.entry_points(group=METHOD_ENTRY_POINTS):
        try:
            point.load()()
        except Exception as error:
            logger.warning("entry point %s = %s failed and was skipped: %s", point.name, point.value, error)
