"""Read thousands of damaged inputs and count the outcomes.

    python -m tests.fuzz.run --tries 100000 --seed 1 [--only rows] [--show 5]

Every input is either accepted, and then read correctly, or rejected with a one-line error that names the file. Any other
outcome is a fault.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

from atwu.cli.app import EXPECTED, in_a_line
from tests.fuzz.targets import TARGETS, Target

GOOD = ("accepted", "rejected")
BAD = ("traceback", "file not named", "not one line", "accepted wrongly", "too slow")
LIMIT = 10
"""Maximum processor time of one try, in seconds."""
LONGEST = 601
"""Maximum number of characters of an error."""
QUICK = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)
"""Folder in memory, on Linux."""


class TooSlow(BaseException):
    """A try exceeded `LIMIT`."""


def attempt(target: Target, folder: Path, random: Random) -> tuple[str, str]:
    """Make one try; return its outcome and message."""
    path = target.make(folder, random)
    try:
        with quiet(), limited():
            target.read(path)
    except TooSlow:
        return "too slow", path.read_bytes()[:200].decode("utf-8", "replace") if path.is_file() else ""
    except AssertionError as error:
        return "accepted wrongly", str(error).split("\n")[0]
    except EXPECTED as error:
        message = in_a_line(error)
        if not message.isprintable() or len(message) > LONGEST:
            return "not one line", message[:2000]
        needs_name = path.name != "flags.json" and path.name != "value.yaml"
        return ("rejected" if not needs_name or path.name in message else "file not named"), message
    except BaseException:
        return "traceback", "".join(traceback.format_exc(limit=-4))
    return "accepted", ""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(
    tries: int, seed: int, only: str = ""
) -> tuple[dict[str, collections.Counter[str]], dict[tuple[str, str], list[str]]]:
    """Return counts per target and outcome, and the messages of bad outcomes."""
    names = [name for name, target in TARGETS.items() if only in name for _ in range(target.share)]
    counts: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in names}
    messages: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(dir=QUICK) as place:
        for number in range(tries):
            name = names[number % len(names)]
            outcome, message = attempt(TARGETS[name], Path(place), Random(f"{seed} {number}"))
            counts[name][outcome] += 1
            if outcome not in GOOD:
                messages[name, outcome].append(f"try {number}: {message}")
    return counts, messages


def table(counts: dict[str, collections.Counter[str]]) -> str:
    """Return the counts as a Markdown table."""
    columns = (*GOOD, *BAD)
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    total: collections.Counter[str] = sum(counts.values(), collections.Counter())
    for name, found in {**counts, "all": total}.items():
        lines.append(f"| {name} | " + " | ".join(str(found[column]) for column in columns) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=3)
    options = parser.parse_args()
    began = time.perf_counter()
    counts, messages = fuzz(options.tries, options.seed, options.only)
    print(table(counts))
    for (name, outcome), found in messages.items():
        kinds: dict[str, str] = {}
        for message in found:
            kinds.setdefault("".join(char for char in message.partition(":")[2][-160:] if not char.isdigit()), message)
        print(f"\n{name}: {outcome}, {len(found)}")
        for message in list(kinds.values())[: options.show]:
            print("   ", message.strip()[:1200])
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    sys.exit(1 if messages else 0)


if __name__ == "__main__":
    main()
