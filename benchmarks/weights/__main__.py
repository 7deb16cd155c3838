"""Compare token weight candidates with labelled tokens: the tables of benchmarks/results/token-weights.md.

    python benchmarks/weights counts --tofu-target FOLDER --people-target FOLDER

AUROC per row, mean over rows, 95 % bootstrap interval over subjects, and paired differences to `rarity` and
`word_rarity`. Candidates are chosen on `authors`, TOFU's first ten; `tofu` (forget05, the last ten) and `people` are used
for reporting. RWKU's rows contain no questions; `weightings` and `named` can read them (--sets rwku rwku_more).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from rows import SUBJECTS, load
from tables import RARITY, TABLES, WORD_RARITY

from atwu.data.row_parsing import row_record
from atwu.evaluation.intervals import Resampler, subtract
from atwu.evaluation.metrics.score_auroc import per_sample_auroc

SETS = ("authors", "tofu", "people", *SUBJECTS)
PRINTED = ("training", "labelled", "retain")
BASELINES = {"rarity": RARITY, "word_rarity": WORD_RARITY}


def measured(rows, candidate):
    """AUROC of every row, NaN for rows with one class."""
    scores = [values[mask] for values, mask in zip(candidate(rows), rows.content, strict=True)]
    labels = [marks[mask] for marks, mask in zip(rows.labels, rows.content, strict=True)]
    return per_sample_auroc(scores, labels).values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "table",
        choices=[*TABLES, *PRINTED],
        help="training: print the training rows of the people target; labelled, retain: print these rows of one of --sets",
    )
    parser.add_argument("--tofu-target")
    parser.add_argument("--people-target")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS[:3])
    given = parser.parse_args()
    if given.table in PRINTED:
        rows = load("people" if given.table == "training" else given.sets[0], dict.fromkeys(("tofu", "people")))
        for row in {"training": rows.training_rows, "labelled": rows.examples, "retain": rows.pool}[given.table]:
            print(json.dumps(row_record(row), ensure_ascii=False))
        return
    torch.set_num_threads(1)
    models = {"tofu": given.tofu_target, "people": given.people_target}
    file = Path(__file__).parents[1] / "results" / "weights" / f"{given.table}.json"
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for name in given.sets:
        rows = load(name, models)
        draw = Resampler([example.subject for example in rows.examples])
        baselines = [draw.mean(measured(rows, one)) for one in BASELINES.values()]
        record[name] = {}
        print(f"{name}: {len(rows.examples)} rows, {draw.clusters} subjects, {len(rows.pool)} retain rows")
        for label, candidate in {**BASELINES, **TABLES[given.table]}.items():
            values = measured(rows, candidate)
            mean = draw.mean(values).bounded((0.0, 1.0))
            shown = [number(mean), *(number(subtract(mean, one, (0.0, 1.0))) for one in baselines)]
            record[name][label] = dict(zip(("auroc", *(f"minus {base}" for base in BASELINES)), shown, strict=True))
            print(f"  {label:44}", text(shown[0]), *(f"  {text(one, '+')}" for one in shown[1:]), flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record) + "\n", encoding="utf-8")


def number(estimate):
    low, high = estimate.interval()
    return [round(100 * value, 2) for value in (estimate.value, low, high)]


def text(values, sign=""):
    return "{:{s}.1f} [{:{s}.1f}, {:{s}.1f}]".format(*values, s=sign)


if __name__ == "__main__":
    main()
