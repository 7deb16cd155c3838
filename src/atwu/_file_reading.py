"""Read text, JSON and YAML files and declared types, with one-line errors that name the file.

Duplicate keys and numbers outside 64 bits are errors. YAML follows 1.2 where users expect it: `1e-4` is a number, and a date is
text.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import yaml

from atwu._options import LARGEST

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_T = TypeVar("_T")
_MARK = b"\xef\xbb\xbf"


def _regular(path: str | Path) -> Path:
    path = Path(path)
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind):
        raise ValueError(f"{path} is {'a folder' if stat.S_ISDIR(kind) else 'not a regular file'}; give a file.")
    return path


@contextlib.contextmanager
def open_text(path: str | Path) -> Iterator[TextIO]:
    """Open a regular file as UTF-8 text with its own line ends, without a byte-order mark; raises as `file_text` does."""
    with _regular(path).open(encoding="utf-8-sig", newline="") as file:
        try:
            yield file
        except UnicodeDecodeError:
            file_text(path)  # names the line, which a decoder that reads ahead does not know
            raise


def file_text(path: str | Path) -> str:
    """Read a regular file as UTF-8 text, without a byte-order mark."""
    return decoded(_regular(path).read_bytes().removeprefix(_MARK), path)


def decoded(content: bytes, path: str | Path, *, first_line: int = 1) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        raise ValueError(
            f"{path}, line {line}: not valid UTF-8 (byte 0x{content[error.start]:02x}, {error.reason}); save the file as "
            "UTF-8."
        ) from None


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


def parse_json(text: str, *, what: str | Path, first_line: int = 1, foreign: bool = False) -> Any:
    """Parse JSON.

    Args:
        first_line: number of its first line.
        foreign: accept what Python writes and other programs read: duplicate keys, NaN, Infinity and any number.
    """
    try:
        return json.loads(text, **({} if foreign else _STRICTLY))
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ValueError(f"{what}, line {line}, column {error.colno}: invalid JSON, {error.msg}.") from None
    except _RefusedError as error:
        place = "" if "\n" in text.strip() else f", line {first_line}"
        raise ValueError(f"{what}{place}: {error}.") from None
    except RecursionError:
        raise ValueError(f"{what}: nested too deeply.") from None


def read_json(path: str | Path) -> Any:
    return parse_json(file_text(path), what=path)


def read_object(path: str | Path, *, foreign: bool = True) -> dict[str, Any]:
    """Parse a file as a JSON object; that of another program with everything that Python's parser accepts."""
    value = parse_json(file_text(path), what=path, foreign=foreign)
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}; restore or create it again.")
    return value


class _RefusedError(Exception):
    """Valid syntax with a value that is not accepted."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"the key {twice[:60]!r} appears twice in one object")
    return found


def _whole(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) > LARGEST:
        raise _RefusedError(f"the number {digits[:20]}{'...' if len(digits) > 20 else ''} is too large")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if abs(number) == float("inf"):
        raise _RefusedError(f"the number {digits[:20]} is too large")
    return number


def _no_number(name: str) -> float:
    raise _RefusedError(f"{name} is not a number")


_STRICTLY: Mapping[str, Any] = {
    "object_pairs_hook": _unique_keys,
    "parse_int": _whole,
    "parse_float": _finite,
    "parse_constant": _no_number,
}

# YAML

if TYPE_CHECKING:
    _Base = yaml.SafeLoader
else:  # the C loader is about ten times faster; importing the method table reads a dozen presets
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping whose keys are different texts; PyYAML would keep the last of equal keys."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or not isinstance(name := self.construct_object(key), str):
                raise _RefusedError(f"line {line}: the key {str(key.value)[:60]} is not text; put it in quotes")
            if name in lines:
                raise _RefusedError(f"line {line}: the key {name[:60]!r} already appears on line {lines[name]}")
            lines[name] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith("timestamp")]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def parse_yaml(text: str, *, what: str | Path) -> Any:
    try:
        return _checked_numbers(yaml.load(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        said = " ".join(str(error.problem or error.context).split())
        raise ValueError(f"{what}{place}: not valid YAML, {said[:200]}.") from None
    except (_RefusedError, yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{what}: {' '.join(str(error).split())[:200]}.") from None
    except RecursionError:  # also of an anchor that holds itself
        raise ValueError(f"{what}: nested too deeply.") from None


def read_yaml(path: str | Path) -> Any:
    return parse_yaml(file_text(path), what=path)


def _checked_numbers(value: Any) -> Any:
    """Return plain data; numbers outside 64 bits and dates are refused."""
    if isinstance(value, dict):
        return {key: _checked_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_checked_numbers(inner) for inner in value]
    if isinstance(value, int) and abs(value) > LARGEST:
        raise _RefusedError(f"the number {str(value)[:20]}... is too large")
    if not isinstance(value, str | int | float | None):
        raise _RefusedError(f"{str(value)[:60]!r} is {type(value).__name__}, which is not supported")
    return value


# Declared types


def read_declared(path: str | Path, kind: type[_T], schema: str, *, what: str, made_by: str) -> _T:
    """Read a JSON file into a declared type.

    Args:
        kind: the type; a dataclass sets pydantic's options in `__pydantic_config__`, which also apply to nested
            dataclasses.
        schema: the required value of the key `schema`.
        made_by: the command that writes such a file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{what} {path} not found; {made_by} writes one.")
    try:
        found = read_object(path, foreign=False)
    except ValueError as error:
        if path.suffix.lower() == ".json":
            raise ValueError(f"{error} Restore it, or create it again with {made_by}.") from None
        raise ValueError(f"{path} is not a {what}, which is a JSON file; {made_by} writes one.") from None
    name = str(found.get("schema", ""))[:60]
    if name.partition("/")[0] != schema.partition("/")[0]:
        has = f"its schema is {name!r}" if name else "it has no 'schema'"
        raise ValueError(f"{path} is not a {what}: {has}, expected {schema!r}. {made_by} writes one.")
    if name != schema:
        raise ValueError(f"{path} has the schema {name!r}, expected {schema!r}. Create it again with {made_by}.")
    adapter: TypeAdapter[_T] = type_adapter(cast(Any, kind))
    return validated(found, adapter, what=str(path), hint=f"Create it again with {made_by}.")


@functools.cache
def type_adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def validated(value: Any, adapter: TypeAdapter[_T], *, what: str, hint: str = "") -> _T:
    from pydantic import ValidationError

    try:
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ValueError(f"{what}: {_said(error)}{more}. {hint}".rstrip()) from None


def _said(error: ValidationError) -> str:
    wrong: Mapping[str, Any] = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, wrong["loc"])) or "it"
    if wrong["type"] in ("missing", "missing_argument"):
        return f"the key {place} is missing"
    if wrong["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"the key {place[:80]} is unknown"
    said = " ".join(wrong["msg"].removeprefix("Value error, ").split())
    return f"{place} is {str(wrong['input'])[:60]!r}; {said[:1].lower()}{said[1:200]}".rstrip(".")
