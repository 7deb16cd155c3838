"""What to run in an hour with one GPU: tests, one step beside others', answers, and all methods on full TOFU with SmolLM2.

    python scripts/gpu_hour.py --output gpu-hour [--open-unlearning CHECKOUT]
    python scripts/gpu_hour.py --output gpu-hour --rehearse      # the same commands in small, without a GPU

Every item has its minutes, its log and one line in `summary.md`; one that fails or runs over does not stop the others. The
study goes on where it was when the same command is given again. Results come without texts, so that they may be kept:
`results/*.json`. Needs ATWU_DATA (docs/benchmarks.md).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUDY = """\
title: All methods on full TOFU, SmolLM2
methods: {methods}
seeds: 1
scale:
  like: tofu-smollm2
  name: tofu-full-smollm2
  benchmark: {benchmark}
  training: {{bf16: {bf16}{shorter}}}
"""


@dataclass(frozen=True)
class Item:
    """One command and how many minutes it may take."""

    name: str
    minutes: float
    command: list[str]


def items(output: Path, checkout: str | None, *, rehearse: bool) -> list[Item]:
    """What is run, most useful first."""
    study = output / "study.yaml"
    some = {"methods": "[atwu, npo]", "benchmark": "tofu:forget01:40", "bf16": "false", "shorter": ", max_steps: 2"}
    all_of_it = {"methods": "all", "benchmark": "tofu:forget10", "bf16": "true", "shorter": ""}
    study.write_text(STUDY.format(**some if rehearse else all_of_it))
    python, device = sys.executable, "cpu" if rehearse else "cuda"
    step = [python, "benchmarks/step.py", "--device", device, "--json", "--steps", "5" if rehearse else "20"]
    step += ["--open-unlearning", checkout] if checkout else []
    step += ["--shape", "16k"] if rehearse else []
    tests = [python, "-m", "pytest", "tests/test_gpu.py", f"--junitxml={output / 'tests.xml'}"]
    run = [python, "-m", "atwu", "study", "run", str(study), "--output", str(output / "study"), "--processes", "1"]
    precisions = ("float32",) if rehearse else ("bfloat16", "autocast", "float32")
    return [
        Item("tests", 5, tests),
        *(Item(f"step-{each}", 4, [*step, "--precision", each]) for each in precisions),
        Item("study", 38, [*run, "--plan"] if rehearse else run),
    ]


def take(item: Item, output: Path, environment: dict[str, str]) -> str:
    """Run one item; what came of it in a line of Markdown."""
    print(f"{item.name}: {' '.join(item.command)}", flush=True)
    began = time.monotonic()
    with (output / f"{item.name}.log").open("w") as log:
        process = subprocess.Popen(item.command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            ended = f"exit code {process.wait(item.minutes * 60)}"
        except subprocess.TimeoutExpired:
            process.terminate()  # a study then says where it was, and goes on there
            process.wait(60)
            ended = f"stopped after its {item.minutes:g} minutes"
    return f"| {item.name} | {ended} | {time.monotonic() - began:.0f} s |"


def without_texts(folder: Path, kept: Path) -> None:
    """Results without what models said and what rows say."""
    kept.mkdir(exist_ok=True)
    for path in sorted(folder.glob("*/*/eval.json")):
        found = json.loads(path.read_text())
        for rows in found["rows"].values():
            rows["texts"] = {}
        (kept / f"{path.parent.name}.json").write_text(json.dumps(found | {"curves": {}}))


def main() -> None:
    import os

    import torch

    from atwu.modeling.device import machine

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--open-unlearning", metavar="CHECKOUT")
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    if not given.rehearse and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --rehearse runs the same commands in small without one")
    output = given.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | ({"ATWU_TEST_DEVICE": "cpu"} if given.rehearse else {})
    device = torch.device("cpu" if given.rehearse else "cuda")
    lines = [f"{machine(device)}, PyTorch {torch.__version__}", "", "| | | |", "|---|---|---:|"]
    for item in items(output, given.open_unlearning, rehearse=given.rehearse):
        lines.append(take(item, output, environment))
        (output / "summary.md").write_text("\n".join(lines) + "\n")
    without_texts(output / "study", output / "results")
    print((output / "summary.md").read_text())


if __name__ == "__main__":
    main()
