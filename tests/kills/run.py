"""Kill commands at random moments, restart them until they finish, and compare their files bit by bit.

    python -m tests.kills.run --kills 200 --seed 11 [--only study]

The moments are random times within the duration of an undisturbed command, or random numbers of file changes, so that many
kills fall between two writes. Four of five signals are SIGKILL to all processes; the others are Ctrl-C and SIGTERM, which
must end the command with one line.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.chat_server import ChatServer, serving
from tests.commands import Started
from tests.kills.targets import CONCURRENCY, Target, prepare

NAMES = {signal.SIGKILL: "SIGKILL", signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}
SHARES = (8, 1, 1)
MOST = 6
"""Maximum number of kills before a command may finish."""
BAD = ("different", "traceback", "wrong end", "call repeated")
COLUMNS = ("rounds", "kills", *NAMES.values(), "nothing stored", "partial work stored", "identical", *BAD)
LONGEST = 600
"""Seconds after which a command counts as hanging."""

ALREADY = re.compile(r"already holds a finished run|out\.json exists")
"""Message to a command that was killed after its last write."""
NOT_RESULT = re.compile(
    r"\.journal(\.lock)?$|\.db(-\w+)?$|^(worker-.*\.log|lock|timing\.json|manifest\.json|report\.html)$"
)
"""Files with times or derived from them (page, manifests), and the storage of a search."""
TIMES = (
    *(
        "seconds",
        "started",
        "prepared_at",
        "created_at",
        "train_seconds",
        "peak_memory_bytes",
        "resumed_from_step",
        "total_flos",
    ),
    *("train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second"),
)
_TIMED = re.compile(rf'"({"|".join(TIMES)})": [^,\n}}]+')


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """Duration, file changes and files of a command that is not killed."""

    seconds: float
    changes: int
    left: Mapping[str, bytes]


@dataclass(slots=True)
class Found:
    """Outcomes of the kills of one command."""

    counts: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def wrong(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        self.messages.append(f"{kind}: {what}")


@dataclass(frozen=True, slots=True)
class Workplace:
    """Folder in which commands run one after the other, each from scratch, under the same paths."""

    folder: Path
    server: ChatServer

    def cleared(self) -> Path:
        shutil.rmtree(self.folder / "work", ignore_errors=True)
        (self.folder / "work").mkdir()
        return self.folder / "work"

    def start(self, target: Target) -> Started:
        work = self.folder / "work"
        more = {"ATWU_CACHE": str(work / "cache"), "OPENAI_API_KEY": "none", "COLUMNS": "200"}
        return Started(target.arguments, env=os.environ | more, cwd=work)

    def undisturbed(self, target: Target) -> Undisturbed:
        work, began = self.cleared(), time.monotonic()
        command = self.start(target)
        changes = max(file_changes(work, command))
        seconds, done = time.monotonic() - began, command.wait()
        assert done.returncode == 0, done.stderr
        return Undisturbed(seconds, changes, left_in(work))

    def round(self, target: Target, whole: Undisturbed, random: Random, found: Found, most: int) -> None:
        """Kill one command at most `most` times, and let it finish."""
        work, asked = self.cleared(), len(self.server.log("slow"))
        found.counts["rounds"] += 1
        killed = 0
        for kills in range(most + 1):
            reach = random.random() if kills else 1.0  # a resumed command finishes sooner
            seconds, changes = random.uniform(0, reach * whole.seconds), random.uniform(0, reach * whole.changes)
            by_time, number = random.random() < 0.5, random.choices(list(NAMES), SHARES)[0]
            command, began = self.start(target), time.monotonic()
            for seen in file_changes(work, command):
                if kills < most and (time.monotonic() - began >= seconds if by_time else seen > changes):
                    command.send(number)
                    killed += 1
                    found.counts.update(
                        [
                            "kills",
                            NAMES[number],
                            "partial work stored" if any(work.glob(target.kept)) else "nothing stored",
                        ]
                    )
                    break
                if time.monotonic() - began > LONGEST:
                    command.kill()
                    raise TimeoutError(f"{' '.join(target.arguments)} hangs: {work}")
            done = command.wait()
            if "Traceback" in done.stderr:
                found.wrong("traceback", done.stderr[-2000:])
            if done.returncode == 0 or ALREADY.search(done.stderr):
                break
            if done.returncode not in (-number, 128 + number) or not (
                done.returncode < 0 or f"stopped by {NAMES[number]}" in done.stderr.splitlines()[-1]
            ):
                found.wrong("wrong end", f"{NAMES[number]}, exit status {done.returncode}: {done.stderr[-2000:]}")
        bodies = [str(body) for body in self.server.log("slow")[asked:]]
        if len(bodies) - len(set(bodies)) > killed * CONCURRENCY:
            found.wrong("call repeated", f"{len(bodies)} calls, of them {len(set(bodies))} different, {killed} kills")
        left = left_in(work)
        names = sorted(name for name in {*whole.left, *left} if whole.left.get(name) != left.get(name))
        if names:
            found.wrong("different", ", ".join(names))
            shutil.copytree(work, self.folder / f"different-{found.counts['rounds']}", dirs_exist_ok=True)
        else:
            found.counts["identical"] += 1


def file_changes(work: Path, command: Started) -> Iterator[int]:
    """Yield the number of file changes in a folder until the command has ended."""
    seen, changes = files_in(work), 0
    while not command.ended():
        now = files_in(work)
        changes += now != seen
        seen = now
        yield changes
        time.sleep(0.004)  # polling without a pause would take half a core


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file with its size and modification time; files created or deleted meanwhile may be missing."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(os.path.join(root, name))
                found[os.path.join(root, name)] = about.st_size, about.st_mtime_ns
    return found


def left_in(work: Path) -> dict[str, bytes]:
    """Return the contents of a command's files, without times and without its cache."""
    files = sorted(path for path in work.rglob("*") if path.is_file())
    names = {path.relative_to(work).as_posix(): path for path in files if path.relative_to(work).parts[0] != "cache"}
    return {name: without_times(path) for name, path in names.items() if not NOT_RESULT.search(path.name)}


def without_times(path: Path) -> bytes:
    if path.suffix in (".md", ".yaml"):
        return re.sub(r"\d+ s,|seconds: \d+", "", path.read_text(encoding="utf-8")).encode()
    if path.suffix in (".json", ".jsonl"):
        return _TIMED.sub(r'"\1"', path.read_text(encoding="utf-8")).encode()
    return path.read_bytes()


@contextlib.contextmanager
def places(folder: Path) -> Iterator[tuple[Workplace, dict[str, Target]]]:
    """Provide a folder to work in, and the commands."""
    with serving() as server:
        yield Workplace(folder, server), prepare(folder, server.url("slow"))


def kill(place: Workplace, target: Target, kills: int, random: Random) -> Found:
    """Kill a command `kills` times in total."""
    found, whole = Found(), place.undisturbed(target)
    while found.counts["kills"] < kills:
        place.round(target, whole, random, found, min(random.randint(1, MOST), kills - found.counts["kills"]))
    return found


def table(found: Mapping[str, Counter[str]]) -> str:
    """Return the counts as a Markdown table."""
    lines = ["| | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, counts in {**found, "all": sum(found.values(), Counter())}.items():
        lines.append(f"| {name} | " + " | ".join(str(counts[column]) for column in COLUMNS) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="name of a command, or part of the names of several")
    options = parser.parse_args()
    began, found = time.monotonic(), {}
    folder = Path(tempfile.mkdtemp(prefix="atwu-kills-"))
    with places(folder) as (place, targets):
        chosen = {name: targets[name] for name in targets if name == options.only} or {
            name: targets[name] for name in targets if options.only in name
        }
        for name, target in chosen.items():
            found[name] = kill(place, target, -(-options.kills // len(chosen)), Random(f"{options.seed} {name}"))
            print(f"{name}: {dict(found[name].counts)}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(table({name: each.counts for name, each in found.items()}))
    messages = [f"{name}: {line}" for name, each in found.items() for line in each.messages]
    print("\n".join(messages))
    if messages:
        sys.exit(f"differing files are in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
