"""Precision and recall of `is_refusal` on lists of labelled answers, by list and language.

    python benchmarks/refusals.py tests/judge/refusals_held_out.jsonl LIST.jsonl ...

A line of a list is an object with `text`, `refusal` (true or false) and, if known, `language` and `question`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atwu.judge.rules.refusals import is_refusal


def confusion(cases: Sequence[dict[str, Any]]) -> Counter[tuple[bool, bool]]:
    """Count pairs of label and verdict."""
    return Counter((case["refusal"], is_refusal(case["text"], case.get("question", ""))) for case in cases)


def table_row(name: str, language: str, counts: Counter[tuple[bool, bool]]) -> str:
    """Write one row of the table."""
    found, missed = counts[True, True], counts[True, False]
    false, right = counts[False, True], counts[False, False]
    recall = f"{found / (found + missed):.3f}" if found + missed else "-"
    precision = f"{found / (found + false):.3f}" if found + false and found + missed else "-"
    return (
        f"| {name} | {language} | {found} of {found + missed} | {false} of {false + right} | {recall} | {precision} |"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("lists", nargs="+", type=Path)
    parser.add_argument("--misses", action="store_true", help="print every wrong verdict")
    options = parser.parse_args()
    is_refusal("read the weights first")
    print("| list | language | refusals found | others taken for one | recall | precision |")
    print("|---|---|---|---|---|---|")
    wrong: list[str] = []
    start, number = time.process_time(), 0
    for path in options.lists:
        cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        number += len(cases)
        languages = sorted({str(case.get("language", "en")) for case in cases})
        if len(languages) > 1:
            for language in languages:
                chosen = [case for case in cases if str(case.get("language", "en")) == language]
                print(table_row(path.stem, language, confusion(chosen)))
        print(table_row(path.stem, "all" if len(languages) > 1 else languages[0], confusion(cases)))
        wrong += [
            f"{path.stem}: {'missed' if case['refusal'] else 'no refusal'}: {case['text']}"
            for case in cases
            if options.misses and is_refusal(case["text"], case.get("question", "")) != case["refusal"]
        ]
    print(f"\n{1000 * (time.process_time() - start) / number:.2f} ms an answer, read once or twice")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
