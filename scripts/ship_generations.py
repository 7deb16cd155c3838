"""Write the generations that every request needs from `smollm2` into the package.

    ATWU_CACHE=one atwu unlearn --model smollm2 --forget examples/japan.jsonl --steps 1 --output one/run
    ATWU_CACHE=two atwu unlearn --model smollm2 --forget examples/einstein.jsonl --steps 1 --output two/run
    python scripts/ship_generations.py one/replies.sqlite two/replies.sqlite

Added are those that both caches hold: answers of the original model to questions that do not depend on the forget rows. Their
names are hashes of the model's weights and of everything else that determines a text, so they are never used for another model.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "src/atwu/evaluation/shipped_generations.json"


def stored(path: str) -> dict[str, list[str | int]]:
    """Read the generations of a cache: name -> text and number of tokens."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT key, value FROM replies").fetchall()
    values = {key: json.loads(value.partition(" ")[2]) for key, value in rows}
    return {key: [value["text"], value["tokens"]] for key, value in values.items() if "tokens" in value}


def main() -> None:
    one, two = map(stored, sys.argv[1:])
    # A run does not store what is shipped already; empty the file beforehand to leave out what is not used any more.
    found = json.loads(TARGET.read_text(encoding="utf-8")) | {key: one[key] for key in one if key in two}
    common = dict(sorted(found.items()))
    TARGET.write_text(json.dumps(common, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"{len(common)} of {len(one)} generations, {TARGET.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
