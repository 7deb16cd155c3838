"""Tables of the SUITE study: means over seeds with bootstrap intervals over facts, and paired differences.

python benchmarks/suite_table.py benchmarks/results/suite/short.jsonl [--baseline jensunpp] [--part report]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from suite_scores import FACT_SCORES, over_facts  # noqa: E402

from atwu.evaluation.intervals import Estimate, subtract  # noqa: E402

Run = Mapping[str, Any]
GROUPS = ("0", "1-10", "11-15", "syntactic", "lexical", "general")


def per_item(runs: Sequence[Run], bits: Callable[[Run], str]) -> dict[str, float]:
    """Mean over the runs of each item of a topic, such as a fact over seeds; `-` stands for no value."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for place, bit in enumerate(bits(run)):
            if bit != "-":
                found.setdefault(f"{run['topic']} {place}", []).append(float(bit))
    return {item: sum(given) / len(given) for item, given in found.items()}


def measures(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Measure -> item -> value; items are facts, or rows of the retain set."""
    found = {name: per_item(runs, lambda run, n=name: run["facts"][n]) for name in FACT_SCORES}  # type: ignore[misc]
    found["relearned"] = per_item(runs, lambda run: run["relearned"])
    for group in GROUPS:
        found[group] = per_item(runs, lambda run, g=group: run["retain"].get(g, ""))  # type: ignore[misc]
    return {name: values for name, values in found.items() if values}


def shown(estimate: Estimate, *, sign: bool = False) -> str:
    """A number with its interval."""
    interval = estimate.interval()
    number = f"{estimate.value:+.3f}" if sign else f"{estimate.value:.3f}"
    return number if interval is None else f"{number} [{interval[0]:.3f}, {interval[1]:.3f}]"


def difference(one: Mapping[str, float], other: Mapping[str, float]) -> Estimate:
    """Paired difference over the items both have."""
    both = set(one) & set(other)
    return subtract(
        over_facts({item: one[item] for item in both}),
        over_facts({item: other[item] for item in both}),
        (0.0, 1.0),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--part", default="report", help="report, grid, long or models")
    parser.add_argument("--baseline", default="jensunpp", help="variant to subtract in paired differences")
    options = parser.parse_args()
    runs = [json.loads(line) for line in options.runs.read_text(encoding="utf-8").splitlines()]
    for part in dict.fromkeys(["models", options.part]):
        own = [run for run in runs if run["part"] == part]
        names = list(dict.fromkeys((run["configuration"], run["rate"]) for run in own))
        known = {name: measures([run for run in own if (run["configuration"], run["rate"]) == name]) for name in names}
        for name, values in known.items():
            rows = [run for run in own if (run["configuration"], run["rate"]) == name]
            print(f"{part} {name[0]}, rate {name[1]:g}, {len(rows)} runs")
            print("  " + "; ".join(f"{measure} {shown(over_facts(items))}" for measure, items in values.items()))
            for rate in ("gibberish", "retain_gibberish", "refusal", "retain_refusal"):
                each = [run["means"][rate] for run in rows]
                print(f"  {rate} {sum(each) / len(each):.3f} ({min(each):.3f} to {max(each):.3f})", end=";")
            print()
            base = next((known[other] for other in names if other[0] == options.baseline), None)
            if base is not None and name[0] != options.baseline:
                found = (
                    f"{measure} {shown(difference(values[measure], base[measure]), sign=True)}" for measure in values
                )
                print(f"  minus {options.baseline}: " + "; ".join(found))


if __name__ == "__main__":
    main()
