"""The misbehaving server of `tests/judge` in another process, and its request log."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("judge") / "misbehaving_server.py"


class ChatServer:
    """The misbehaving server: `url("slow")` answers slowly, `url()` at once."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"

    def url(self, behaviour: str = "") -> str:
        return "/".join(part for part in (self.root, behaviour, "v1") if part)

    def count(self, behaviour: str = "default") -> int:
        return self._get("stats")["counts"].get(behaviour, 0)

    def log(self, behaviour: str) -> list[dict[str, Any]]:
        """Bodies of all requests so far, in the order they came."""
        return self._get(f"log/{behaviour}")

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.root}/{path}", timeout=5) as response:
            return json.load(response)


@contextlib.contextmanager
def serving() -> Iterator[ChatServer]:
    process = subprocess.Popen([sys.executable, str(SCRIPT)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield ChatServer(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
