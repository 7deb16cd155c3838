"""Check that the code computes the same results as at an earlier commit, by running fixed commands with both.

    python scripts/same_numbers.py --base COMMIT [--only methods,resume,files]   # two cases, and not their printed output

A refactoring must not change behaviour. So only the command line is used, and two things are compared: the files that
commands write, with all values in them, tensors bit by bit ("files"; for pages, figures and logs only that they exist),
and the numbers that they print, regardless of layout ("printed"). same_numbers.yaml lists the commands, renamed keys and
intended changes. `different` or `missing` values fail, `added` or `intended` ones do not.

Equal bits are possible because both sides run on one machine, with the same packages and one thread. The base runs once;
its results are stored under --keep, and a case runs again when its commands change. One process per side imports the
libraries once and runs every command in a fork; that process is this file too, started with --inside.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

TABLE: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
IMPORTED = "transformers.trainer accelerate peft scipy.stats scipy.optimize lm_eval.evaluator optuna matplotlib.pyplot"


class Case(NamedTuple):
    """A group of commands: their folder, the cache they use, their input files, and cases that must run before."""

    name: str
    cache: str
    commands: list[str]
    files: dict[str, Any]
    needs: set[str]


def read_cases(side: str) -> dict[str, Case]:
    """Return the cases of the table in order, with the commands of side "base" or "new"."""
    table, found = json.dumps(TABLE["cases"]), {}
    for word in reversed(TABLE["words"]):
        table = re.sub(rf"\b{word}\b", TABLE["words"][word], table)
    for old, new in TABLE["anew"].items() if side == "new" else ():
        table = table.replace(old, new)
    for head, lines in json.loads(table).items():
        for filled, commands in _each(head, lines):
            name, _, cache = filled.partition(" (caches of ")
            commands = [line.replace("@", name) for line in commands]
            files = {path: text for path, text in TABLE["files"].items() if path.startswith(f"{name}/")}
            found[name] = Case(name, cache.rstrip(")") or name, commands, files, set())
    for name, case in found.items():
        words = re.split(r"[\s:=]", " ".join(case.commands))
        used = {other for other in found if any(word.startswith(f"{other}/") for word in words)}
        case.needs.update({case.cache, *used} - {name})
    return found


def _each(head: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the case once, or once per entry of the list in its name; likewise for commands with a list."""
    for word, entries in TABLE["each"].items():
        if word in head:
            yield from ((head.replace(word, entry), [line.replace(word, entry) for line in lines]) for entry in entries)
            return
        lines = [line.replace(word, entry) for line in lines for entry in (entries if word in line else [""])]
    yield head, lines


def run_inside(side: str, names: str, jobs: str) -> int:
    """Import libraries once, then run the cases in forks, each after its dependencies, in the working folder."""
    start = time.perf_counter()
    waiting = [case for name, case in read_cases(side).items() if name in names.split(",")]
    folder = importlib.import_module("atwu").__path__
    print(f"{side}: importing {folder[0]}, then {len(waiting)} cases, {jobs} at a time", flush=True)
    ours = pkgutil.walk_packages(folder, "atwu.", onerror=lambda name: None)
    for name in (*IMPORTED.split(), *(module.name for module in ours if not module.name.endswith("__main__"))):
        with contextlib.suppress(Exception):  # a command that needs the module will report it
            importlib.import_module(name)
    gc.freeze()  # excludes imported objects from garbage collection and copying in forks
    running: dict[int, tuple[Case, float]] = {}
    while waiting or running:
        undone = {case.name for case in waiting} | {case.name for case, _ in running.values()}
        for case in [case for case in waiting if not case.needs & undone][: int(jobs) - len(running)]:
            waiting.remove(case)
            pid = os.fork()
            if not pid:
                _run_case(case)
            running[pid] = (case, time.perf_counter())
        pid, _, used = os.wait4(-1, 0)
        case, begun = running.pop(pid)
        now, cpu = time.perf_counter(), used.ru_utime + used.ru_stime
        print(f"{now - start:6.1f} s  {side} {case.name}: {now - begun:.1f} s, {cpu:.1f} s CPU", flush=True)
    return 0


def _run_case(case: Case) -> None:
    """Run all commands of a case in fresh folders, one after the other; ends the process."""
    os.environ["ATWU_CACHE"] = str(Path(".cache", case.cache).absolute())
    for folder in (case.name, f".cache/{case.name}"):
        shutil.rmtree(folder, ignore_errors=True)
    Path(case.name, "printed").mkdir(parents=True)
    for path, rows in case.files.items():
        _write(path, rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows))
    exits = []
    for number, line in enumerate(case.commands):
        pid = os.fork()
        if not pid:
            _run_command(line, case.name, number)
        exits.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if exits[-1] not in (0, -signal.SIGKILL):
            print(f"failed, see {case.name}/printed/{number:02}.err: {line}", flush=True)
    _write(f"{case.name}/exits.json", json.dumps(exits))
    _write(f".done/{case.name}", repr(case[:4]))
    os._exit(0)


def _write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def _run_command(line: str, folder: str, number: int) -> None:
    """Replace this process by the command, with its output in files."""
    line, _, file = line.partition(" > ")
    kill, _, line = line.rpartition("| ")
    for descriptor, name in enumerate((os.devnull, file or f"printed/{number:02}.txt", f"printed/{number:02}.err")):
        os.dup2(os.open(Path(folder, name), os.O_RDWR | os.O_CREAT), descriptor)
    sys.argv = ["atwu", *line.split()]
    if kill:
        _kill_after(int(kill.removeprefix("kill ")))
    code = 1
    try:
        runpy.run_module("atwu", run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


def _kill_after(step: int) -> None:
    """Kill this process after a given training step."""
    handler: Any = importlib.import_module("transformers.trainer_callback").CallbackHandler
    before = handler.on_step_end

    def on_step_end(self: Any, args: Any, state: Any, *rest: Any) -> Any:
        if state.global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return before(self, args, state, *rest)

    handler.on_step_end = on_step_end


def read_case(work: Path, name: str, code: Path, moved: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Read the output of a case: files or printed -> `CASE/FILE:KEY` -> value; `CASE/FILE:` is the file itself."""
    found: dict[str, dict[str, Any]] = {"files": {}, "printed": {}}
    for path in sorted(path for path in (work / name).rglob("*") if path.is_file() and path.suffix != ".err"):
        at = path.relative_to(work).as_posix().replace(os.uname().nodename, "HOST")
        values = _tensors(path.read_bytes()) if path.suffix == ".safetensors" else iter(())
        if path.suffix in (".json", ".jsonl", ".md", ".csv", ".tex", ".yaml", ".txt"):
            text = path.read_text(encoding="utf-8").replace(str(work), "WORK").replace(str(code), "CODE")
            values = _values(at, text)
        for tail, value in (("", "there"), *values):
            key = f"{at}:{tail}"
            for pattern, old in moved.items():
                key = re.sub(pattern, old, key)
            if not any(re.search(pattern, key) for pattern in TABLE["volatile"]):
                found["printed" if "/printed/" in at else "files"][key] = value
    return found


def _values(at: str, text: str) -> Iterator[tuple[str, Any]]:
    for pattern, clock in TABLE["clock"].items():
        text = re.sub(clock, "TIME", text) if re.search(pattern, at) else text
    if at.endswith(".json"):
        yield from _flat(json.loads(text))
    elif "/printed/" in at:
        yield from enumerate(re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)", text))
    else:
        for index, line in enumerate(text.splitlines(), 1):
            yield from _flat(json.loads(line), f"{index}") if at.endswith(".jsonl") else [(f"{index}", line)]


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict | list) or not value:
        yield at, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _flat(inner, f"{at}.{key}" if at else f"{key}")


def _tensors(data: bytes) -> Iterator[tuple[str, Any]]:
    """Tensors of a safetensors file: name -> type, shape, norm (to judge differences) and digest."""
    start = 8 + int.from_bytes(data[:8], "little")
    for name, about in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = about["data_offsets"]
            piece = data[start + first : start + last]
            norm = np.linalg.norm(np.frombuffer(piece, np.float32)) if about["dtype"] == "F32" else 0.0
            yield name, f"{about['dtype']} {about['shape']} {norm:.9g} {hashlib.sha256(piece).hexdigest()[:12]}"


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return kind of difference -> one line each; a file that only one side has counts once."""
    found: dict[str, list[str]] = {kind: [] for kind in ("different", "missing", "added", "intended")}
    for key in sorted(old.keys() | new.keys()):
        kind = "added" if key not in old else "missing" if key not in new else "different"
        file = key.partition(":")[0] + ":"
        if (kind == "different" and old[key] == new[key]) or (key != file and (file in old) != (file in new)):
            continue
        why = [why for pattern, why in TABLE["intended"].items() if kind != "added" and re.search(pattern, key)]
        found["intended" if why else kind].append(f"{key}  {old.get(key)!r} -> {new.get(key)!r}  {'; '.join(why)}")
    return found


def run_side(side: str, tree: Path, work: Path, names: Set[str], jobs: int) -> None:
    """Run the cases that have no results yet with the code of a tree."""
    stale: list[str] = []
    for name, case in read_cases(side).items():
        done = work / ".done" / name
        if name in names and (case.needs & set(stale) or not done.is_file() or done.read_text() != repr(case[:4])):
            done.unlink(missing_ok=True)
            stale.append(name)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ATWU_", "OPENAI_"))}
    env |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
    env |= {"CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "agg", "COLUMNS": "400"}
    env |= {"PYTHONPATH": f"{tree}/src", "PYTHONHASHSEED": "0"}  # peft writes a set of names in hash order
    env |= dict.fromkeys(("XDG_CACHE_HOME", "HF_DATASETS_CACHE"), f"{work}/.cache")
    inside = [sys.executable, str(Path(__file__).resolve()), "--inside", side, ",".join(stale), str(jobs)]
    if stale:
        subprocess.run(inside, cwd=work, env=env, check=True)


def main() -> int:
    """Run both sides, compare, and print the differences."""
    here = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="commit to compare with")
    parser.add_argument("--tree", type=Path, default=here, help="working tree to check; default: this one")
    parser.add_argument("--keep", type=Path, default=Path.home() / ".cache/same-numbers", help="folder of all results")
    parser.add_argument("--only", default="", help="cases, or their prefix before /; and files or printed")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--show", type=int, default=5, help="differences to print per case and kind")
    given = parser.parse_args()
    only = set(given.only.split(",")) - {""}
    cases, kinds = read_cases("new"), only & {"files", "printed"} or {"files", "printed"}
    chosen = [name for name in cases if not only - kinds or only & {name, name.partition("/")[0]}]
    if not chosen:
        parser.error(f"the cases are {', '.join(cases)}")
    names = set(chosen)
    for name in reversed(cases):
        names |= cases[name].needs if name in names else set()
    git = ["git", "-C", str(here)]
    commit = subprocess.check_output([*git, "rev-parse", f"{given.base}^{{commit}}"], text=True).strip()
    tree, keep = given.tree.resolve(), given.keep.resolve()
    base, work = keep / commit[:12], keep / f"tree-{hashlib.sha256(str(tree).encode()).hexdigest()[:7]}"
    (base / "work").mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # if two processes need it, one creates it
        if not (base / "src").is_dir():
            packed = subprocess.check_output([*git, "archive", commit, "src"])
            subprocess.run(["tar", "-x", "-C", str(base)], input=packed, check=True)
        run_side("base", base, base / "work", names, given.jobs)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    run_side("new", tree, work, names, given.jobs)
    print(f"\nbase in {base / 'work'}\nnew in {work}\n")
    bad = 0
    for name, kind in ((name, kind) for name in chosen for kind in sorted(kinds)):
        old = read_case(base / "work", name, base, {})[kind]
        found = compare(old, read_case(work, name, tree, TABLE["moved"])[kind])
        summary = ", ".join(f"{len(lines)} {what}" for what, lines in found.items() if lines) or "equal"
        print(f"{name:20} {kind:8} {sum(key.endswith(':') for key in old):4} files {len(old):7} values  {summary}")
        for what, lines in found.items():
            print("".join(f"    {what}: {line[:300]}\n" for line in lines[: given.show]), end="")
        bad += len(found["different"]) + len(found["missing"])
    print(f"\n{bad} different or missing" if bad else "\nnothing is different or missing")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(run_inside(*sys.argv[2:]) if sys.argv[1:2] == ["--inside"] else main())
