"""Reading YAML as people write it: `1e-4` is a number, as in YAML 1.2."""

from __future__ import annotations

import re
from typing import Any

import yaml

# The C loader is ten times as fast, and the table of methods reads a dozen presets whenever it is imported.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    pass


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def parse_yaml(text: str, *, what: str) -> Any:
    """Parse YAML; plain data only.

    Raises:
        ValueError: it is not YAML; the message begins with `what`.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{what} is not valid YAML: {error}") from None
