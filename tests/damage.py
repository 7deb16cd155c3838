"""What a fault of a disk or a power failure makes of a file."""

from __future__ import annotations

from pathlib import Path

DAMAGES = ("truncated", "zeroed", "missing", "flipped")


def damage(file: Path, how: str) -> None:
    """Damage a file in one of the ways of `DAMAGES`; of an empty one, only missing is possible."""
    content = file.read_bytes()
    if how == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif how == "zeroed":
        file.write_bytes(bytes(len(content)))
    elif how == "missing":
        file.unlink()
    elif content:
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
