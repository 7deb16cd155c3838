"""Read text, JSON and YAML files and declared types, with one-line errors that name the file.

YAML, which people write by hand, follows 1.2 where they expect it: `1e-4` is a number, a date is text, and a key that is given
twice is an error.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import yaml

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")


@contextlib.contextmanager
def open_text(path: str | Path) -> Iterator[TextIO]:
    """Open a file as `file_text` reads it, with its own line ends; raises as it does."""
    with Path(path).open("rb") as raw:
        encoding = _encoding_of(raw.read(2))
    # The `csv` module wants line ends as they are: those within quotes belong to the value.
    with Path(path).open(encoding=encoding, newline="") as file:
        try:
            yield file
        except UnicodeDecodeError:
            file_text(path)  # names the line, which a decoder that reads ahead does not know
            raise


def file_text(path: str | Path) -> str:
    """Read a file as UTF-8 text, or as UTF-16 where its byte-order mark says so; the mark is no part of the text."""
    content = Path(path).read_bytes()
    encoding = _encoding_of(content[:2])
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        raise ValueError(
            f"{path}, line {line}: not valid {encoding.upper().removesuffix('-SIG')} (byte "
            f"0x{error.object[error.start]:02x}, {error.reason}); save the file as UTF-8."
        ) from None


def _encoding_of(start: bytes) -> str:
    # What Excel saves as Unicode text begins with this mark; nothing in UTF-8 does.
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    return "utf-8-sig"


def printable(text: str) -> str:
    """Replace control characters and lone surrogates, which a terminal obeys and a file cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", _LINE_END.sub("\n", text))


_LINE_END = re.compile("\r\n?|[\u2028\u2029]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@contextlib.contextmanager
def prefix_errors(path: str | Path | None) -> Iterator[None]:
    """Prefix the message of a `ValueError` with the name of a file; None adds nothing."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if path is None or str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from None


# JSON


def parse_json(text: str, *, what: str | Path, first_line: int = 1) -> Any:
    """Parse JSON; `first_line` is the number of its first line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ValueError(f"{what}, line {line}, column {error.colno}: invalid JSON, {error.msg}.") from None
    except (ValueError, RecursionError) as error:  # a number of more than 4,300 digits; thousands of brackets
        raise ValueError(f"{what}: invalid JSON, {error}.") from None


def read_json(path: str | Path) -> Any:
    return parse_json(file_text(path), what=path)


def read_object(path: str | Path) -> dict[str, Any]:
    """Parse a file as a JSON object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}; restore or create it again.")
    return value


# YAML

if TYPE_CHECKING:
    _Base = yaml.SafeLoader
else:
    # The C loader, where PyYAML was built with it, is about ten times faster; importing the method table reads a dozen presets.
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping whose keys are different texts; PyYAML would keep the last of equal keys."""
        place = f"line {node.start_mark.line + 1}"
        for name, count in Counter(str(key.value) for key, _ in node.value).items():
            if count > 1:
                raise ValueError(f"{place}: the key {name[:60]!r} appears twice in one mapping")
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        for key in mapping:
            if not isinstance(key, str):
                raise ValueError(f"{place}: the key {str(key)[:60]} is not text; put it in quotes")
        return mapping


# PyYAML reads YAML 1.1: 2024-01-31 as a date, and 1e-4 as text unless it has a point and a sign (1.0e-4).
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith("timestamp")]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def parse_yaml(text: str, *, what: str | Path) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        place = ""
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            place = f", line {mark.line + 1}, column {mark.column + 1}"
        problem = " ".join(str(error.problem or error.context).split())
        raise ValueError(f"{what}{place}: not valid YAML, {problem[:200]}.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{what}: {' '.join(str(error).split())[:200]}.") from None


def read_yaml(path: str | Path) -> Any:
    return parse_yaml(file_text(path), what=path)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Parse a YAML file that a user writes as one mapping; an empty file is an empty one."""
    values = read_yaml(path)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one 'key: value' per line, got {type(values).__name__}.")
    return values


# Declared types


def read_declared(path: str | Path, kind: type[_T], schema: str, *, what: str, made_by: str) -> _T:
    """Read a JSON file into a declared type.

    Args:
        kind: the type; a dataclass sets pydantic's options in `__pydantic_config__`, which also apply to nested
            dataclasses.
        schema: the required value of the key `schema`.
        made_by: the command that writes such a file.
    """
    remedy = f"{made_by} writes a {what}."
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} not found; {remedy}")
    try:
        value = read_object(path)
    except ValueError as error:
        raise ValueError(f"{error} {remedy}") from None
    if value.get("schema") != schema:
        raise ValueError(f"{path} has the schema {str(value.get('schema'))[:60]!r}, expected {schema!r}. {remedy}")
    adapter: TypeAdapter[_T] = type_adapter(cast(Any, kind))
    return validated(value, adapter, what=str(path), hint=remedy)


@functools.cache
def type_adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def validated(value: Any, adapter: TypeAdapter[_T], *, what: str, hint: str = "") -> _T:
    """Validate plain data; the error names the first wrong key and what it holds."""
    from pydantic import ValidationError

    try:
        # As JSON, in which a strict type takes a list for a tuple; of a Python list it would not.
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:80] or "it"
        others = ""
        if error.error_count() > 1:
            others = f" (and {error.error_count() - 1} more)"
        message = " ".join(first["msg"].removeprefix("Value error, ").split())[:200].rstrip(".")
        raise ValueError(
            f"{what}: {place}: {message}, got {str(first['input'])[:60]!r}{others}. {hint}".rstrip()
        ) from None
