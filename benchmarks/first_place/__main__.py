"""Every line tuned with the same budget, then run with other seeds: the comparison of docs/first-place.md.

    python benchmarks/first_place --output runs/first-place --trials 6 --seeds 3 --at-once 12
    python benchmarks/first_place --output /tmp/rehearsal --scale people-tiny --trials 2 --seeds 1 --at-once 1

Tuning is `atwu tune`, one command a line, on seed 0; the study takes the best values of each, on seeds 1 and up. The same
command goes on where it was stopped. Scales are the YAML files beside this one; `ATWU_DATA` holds TOFU and RWKU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ATWU = [sys.executable, "-m", "atwu"]
_PARTS = ("weighting",)


def logged(command: list[str], log: Path, until: float) -> str:
    """Run a command, at most until then; what it prints goes to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            code = process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()  # goes on there when it is given again
            process.wait()
            return ": no time left"
    return f": exit code {code}" if code else ""


def tune(line: dict[str, Any], scale: str, folder: Path, trials: int, until: float) -> None:
    """Search a line's numbers, unless they are found."""
    if (folder / f"{line['method']}.yaml").is_file() or time.monotonic() > until:
        return
    command = [*ATWU, "tune", "--method", line["method"], "--scale", scale, "--trials", str(trials)]
    command += [word for part in _PARTS if part in line for word in ("--set", f"{part}={line[part]}")]
    ended = logged([*command, "--output", str(folder)], folder / "log", until)
    print(f"tuned {line['label']} at {Path(scale).stem}{ended}", flush=True)


def study(lines: list[dict[str, Any]], scale: str, folder: Path, seeds: int) -> Path:
    """Write the study of the lines that have values, each with its best."""
    found = []
    for line in lines:
        preset = folder / "tune" / slug(line) / f"{line['method']}.yaml"
        if preset.is_file():
            options = yaml.safe_load(preset.read_text())
            options = options.get("options", {k: v for k, v in options.items() if k != "about"})
            found.append({**options, **line})
    file = folder / "study.yaml"
    written = {"title": f"First place: {Path(scale).stem}", "methods": found, "seeds": seeds, "presets": False}
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    return file


def slug(line: dict[str, Any]) -> str:
    return line["label"].replace(" ", "-")


def without_texts(folder: Path, kept: Path) -> None:
    """Results without what models said and what rows say, so that they may be kept."""
    kept.mkdir(parents=True, exist_ok=True)
    for path in sorted([*folder.glob("runs/*/eval.json"), *folder.glob("references/*/eval.json")]):
        result = json.loads(path.read_text(), parse_float=lambda text: round(float(text), 6))
        for rows in result["rows"].values():
            rows |= {"texts": {}, "curves": {}}
        (kept / f"{path.parent.name}.json").write_text(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--scale", action="append", help="name or YAML file; default: the three beside this file")
    parser.add_argument("--only", action="append", help="label of a line; may be repeated")
    parser.add_argument("--trials", type=int, default=6, help="of each line")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=2, help="commands, and then runs, at one time")
    parser.add_argument("--minutes", type=float, default=1e6, help="what is not finished by then is stopped")
    parser.add_argument("--stage", choices=["tune", "study"], help="default: one after the other")
    given = parser.parse_args()
    scales = given.scale or [str(HERE / f"{name}.yaml") for name in ("tofu", "people", "rwku")]
    lines = [
        line
        for line in yaml.safe_load((HERE / "lines.yaml").read_text())
        if line["label"] in (given.only or [line["label"]])
    ]
    folders = {scale: given.output.resolve() / Path(scale).stem for scale in scales}
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    until = time.monotonic() + 60 * given.minutes
    if given.stage != "study":
        with ThreadPoolExecutor(given.at_once) as pool:
            for line in lines:
                for scale in scales:
                    pool.submit(tune, line, scale, folders[scale] / "tune" / slug(line), given.trials, until)
    if given.stage != "tune":
        share = max(1, given.at_once // len(scales))

        def run(scale: str) -> None:
            folder = folders[scale]
            command = [*ATWU, "study", "run", str(study(lines, scale, folder, given.seeds)), "--scale", scale]
            command += ["--output", str(folder / "study"), "--processes", str(share)]
            ended = logged(command, folder / "log", until)
            without_texts(folder / "study", folder / "results")
            print(f"ran {Path(scale).stem}{ended}", flush=True)

        with ThreadPoolExecutor(len(scales)) as pool:
            list(pool.map(run, scales))


if __name__ == "__main__":
    main()
