"""Import optional packages, with an error that names the pip command; modules of packages that are slow to import; entry
points of other packages.

Call `require` inside the function that needs the package, not at module level, so that `import atwu` stays fast.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import logging
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


def require(module: str, *, extra: str) -> Any:
    """Import an optional module.

    Args:
        extra: the extra of this package that installs it, such as `probe`.
    """
    command = f"pip install 'atwu[{extra}]'"
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        # A package that is there may fail to import one of its own: then it is not what is missing.
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package:
            raise ImportError(f"{package} is required here but is not installed; run: {command}") from error
        raise ImportError(f"{module} is installed but cannot be imported ({error}); try: {command}") from error


@contextlib.contextmanager
def without_init(package: str, *parts: str) -> Iterator[None]:
    """Import modules of a package without its `__init__`, which may import far more than they need.

    Afterwards the package is imported anew, and wholly, by whoever needs it.

    Args:
        package: an installed package that was not imported yet; nothing is done for one that was.
        parts: its subpackages whose `__init__` is left out, too.
    """
    if package in sys.modules:
        yield
        return
    folders: list[str] = []
    spec = importlib.util.find_spec(package)
    if spec is not None:
        folders = list(spec.submodule_search_locations or ())
    for name in ("", *parts):
        empty = types.ModuleType(f"{package}.{name}".strip("."))
        empty.__path__ = [str(Path(folder, name)) for folder in folders]
        sys.modules[empty.__name__] = empty
    try:
        yield
    finally:
        # Or whoever imports the package next would get the empty ones.
        for module in list(sys.modules):
            if module.partition(".")[0] == package:
                del sys.modules[module]


def load_entry_points(group: str, register: Callable[[Any], object]) -> None:
    """Pass what the entry points of installed packages name to `register`; warn about those that fail, and skip them."""
    for point in importlib.metadata.entry_points(group=group):
        try:
            register(point.load())
        # A broken plug-in of another package must not stop every command.
        except Exception as error:
            logger.warning("entry point %s = %s failed and is skipped: %s", point.name, point.value, error)
