"""Damage documents: values of other types, missing and unknown keys, truncated files, flipped bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import yaml

JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    " ",
    "nan",
    "yes",
    "1e-4",
    "1_000",
    "0x10",
    "2024-01-01",
    "\x00",
    "\u200b",
    "\u200b\ufeff\u2060",
    "\u202egnp.exe",
    "\x1b[31mred\x1b[0m",
    "[bold red]markup[/]",
    "[/]",
    '=HYPERLINK("http://x")',
    "![x](http://x/y.png)",
    "<script>alert(1)</script>",
    "{{1/0}}",
    "%s%d{0}",
    "../../etc/passwd",
    "/dev/zero",
    "<|im_end|>",
    "</s>",
    "\ud800",
    "a" * 5000,
    "line\nbreak",
    "line\u2028break",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"schema": "x"},
    ["a", "a"],
    [1, 2, 3],
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) of a document."""
    if isinstance(value, dict):
        items: Any = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return
    for key, inner in items:
        yield value, key
        yield from places(inner)


def changed(value: Any, random: Random) -> Any:
    """Return a copy with one to three changes of its structure."""
    value = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        every = list(places(value))
        if not every or random.random() < 0.02:
            value = copy.deepcopy(random.choice(JUNK))
            continue
        container, key = random.choice(every)
        _CHANGES[random.choice(tuple(_CHANGES))](container, key, random, every)
    return value


def _replace(container: Any, key: Any, random: Random, _: Any) -> None:
    container[key] = copy.deepcopy(random.choice(JUNK))


def _remove(container: Any, key: Any, random: Random, _: Any) -> None:
    if isinstance(container, dict) or len(container) > key:
        del container[key]


def _rename(container: Any, key: Any, random: Random, _: Any) -> None:
    if isinstance(container, dict):
        container[random.choice((key + "s", key.upper(), "", "1", "__class__", key[:-1] or "x"))] = container.pop(key)


def _add(container: Any, key: Any, random: Random, _: Any) -> None:
    if isinstance(container, dict):
        container[random.choice(("extra", "model", "seed", "é"))] = copy.deepcopy(random.choice(JUNK))
    else:
        container.insert(key, copy.deepcopy(random.choice(JUNK)))


def _swap(container: Any, key: Any, random: Random, every: list[tuple[Any, Any]]) -> None:
    other, place = random.choice(every)
    if _exists(container, key) and _exists(other, place):
        container[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(container[key])


def _exists(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def _nudge(container: Any, key: Any, random: Random, _: Any) -> None:
    inner = container[key]
    if isinstance(inner, bool) or not isinstance(inner, int | float) or abs(inner) > 1e300:
        container[key] = [inner] if random.random() < 0.5 else str(inner)
    else:
        container[key] = random.choice((-inner, inner * 1000, inner + 0.5, inner / 7, str(inner)))


def _repeat(container: Any, key: Any, random: Random, _: Any) -> None:
    if isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    else:
        container[key] = [container[key]] * 3


_CHANGES: dict[str, Callable[[Any, Any, Random, Any], None]] = {
    function.__name__: function for function in (_replace, _replace, _remove, _rename, _add, _swap, _nudge, _repeat)
}


def as_json(value: Any) -> bytes:
    """Return JSON with ASCII escapes, as most programs write it."""
    return json.dumps(value, ensure_ascii=True).encode()


DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def as_yaml(value: Any) -> bytes:
    """Return YAML, or JSON for values that YAML cannot represent."""
    try:
        return yaml.dump(value, Dumper=DUMPER, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError):
        return as_json(value)


def damaged(content: bytes, random: Random) -> bytes:
    """Return the bytes truncated, flipped, repeated, or with foreign bytes inserted."""
    if not content:
        return random.choice((b"", b"\x00", b"\xff\xfe"))
    at = random.randrange(len(content))
    end = min(len(content), at + random.choice((1, 2, 8, 64, 512)))
    piece = random.choice(
        (
            b"\x00",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\r\n",
            b"\r",
            b"\t",
            b"NaN",
            b"Infinity",
            b"1e999",
            b"9" * 5000,
            b"[" * 3000,
            b'{"a":' * 3000,
            b"&a [*a]",
            b"!!python/object/apply:os.system [ls]",
            b"---\n",
            b"#",
            b'"',
            b"'",
            b": ",
            b",",
            b"}",
            b"]",
            "é".encode("latin-1"),
            "\u2028".encode(),
            content[at:end],
        )
    )
    kind = random.randrange(6)
    if kind == 0:
        return content[:at]
    if kind == 1:
        flipped = bytearray(content)
        flipped[at] ^= 1 << random.randrange(8)
        return bytes(flipped)
    if kind == 2:
        return content[:at] + content[end:]
    if kind == 3:
        return content[:at] + bytes(end - at) + content[end:]
    return content[:at] + piece + content[at if kind == 4 else end :]
