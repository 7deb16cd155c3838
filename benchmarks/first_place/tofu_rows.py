"""Extract a subset of TOFU's forget05, six of every author's twenty rows, so that a study takes hours instead of days.

    ATWU_DATA=... python benchmarks/first_place/tofu_rows.py --output tofu-part

forget.jsonl: the ten authors of forget05. retain.jsonl: twenty authors of retain95, all used for fine-tuning.
unlearn_retain.jsonl: the first ten of these, the retain set of unlearning.
"""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

from atwu import load_rows
from atwu.data.row_parsing import write_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in (("forget", "forget05"), ("retain", "retain95:400"), ("unlearn_retain", "retain95:200")):
        authors = groupby(load_rows(f"tofu:{source}").rows, key=lambda row: row.subject)
        rows = [row for _, each in authors for row in list(each)[1::3][:6]]
        write_rows(folder / f"{name}.jsonl", rows)
        print(f"{name}: {len(rows)} rows of {len({row.subject for row in rows})} authors")


if __name__ == "__main__":
    main()
