"""Import optional packages; the error of a missing one names the pip command.

Call `require` inside the function that needs the package, not at module level, so that `import atwu` stays fast.
"""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, *, extra: str) -> Any:
    """Import an optional module.

    Args:
        module: dotted module name, such as `pyarrow.parquet`.
        extra: the extra of this package that installs it, such as `parquet`.

    Returns:
        The imported module.

    Raises:
        ImportError: the package is missing or cannot be imported; the message names the pip command.
    """
    command = f"pip install 'atwu[{extra}]'"
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package:
            raise ImportError(f"{package} is required here but is not installed; run: {command}") from error
        raise ImportError(f"{module} is installed but cannot be imported ({error}); try: {command}") from error
