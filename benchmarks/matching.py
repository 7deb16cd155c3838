"""Confusion table of the matcher of answers: `python benchmarks/matching.py [--wrong]`.

Reads the cases of tests/data/matching_cases.jsonl (the rules were written with `written` at hand, `unseen` was written before
the rules and not looked at), and the labelled answers of the offline judge, whose verdict is about more than what is said:
hedges and denials state a text and are wrong answers.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from atwu.data.matching import states
from atwu.judge.agreement import load_cases

CASES = Path(__file__).parents[1] / "tests" / "data" / "matching_cases.jsonl"
NOT_ABOUT_WORDS = ("hedging_list", "wrong")
"""Kinds of judged answers that say the text and do not affirm it."""


def says_by_substring(text: str, wanted: str) -> bool:
    """Return whether a text contains another, ignoring case, as options were looked for before."""
    return wanted.lower() in text.lower()


def says_by_exact_words(text: str, wanted: str) -> bool:
    """Return whether a text contains all words of another, ignoring case, as recall was computed before."""
    word = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
    return set(word.findall(wanted.lower())) <= set(word.findall(text.lower()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true", help="list the written cases that are decided wrongly")
    show_wrong = parser.parse_args().wrong
    matchers = {"matcher": states, "exact words": says_by_exact_words, "substring": says_by_substring}
    tables: dict[tuple[str, str], Counter[tuple[bool, bool]]] = {}
    for case in map(json.loads, CASES.read_text("utf-8").splitlines()):
        phrases = [case["wanted"], *case.get("aliases", ())]
        for name, matcher in matchers.items():
            stated = any(matcher(case["text"], phrase) for phrase in phrases)
            tables.setdefault((case["split"], name), Counter())[case["stated"], stated] += 1
            if show_wrong and name == "matcher" and stated != case["stated"] and case["split"] == "written":
                print(case)
    for split in ("dev", "test"):
        for labelled in load_cases(split):
            facts = labelled.claim.facts
            if not facts or labelled.kind in NOT_ABOUT_WORDS:
                continue
            for name, matcher in matchers.items():
                stated = all(matcher(labelled.claim.answer, fact) for fact in facts)
                tables.setdefault((f"judge, {split}", name), Counter())[labelled.label, stated] += 1
    print("| cases | decided by | stated, found | stated, missed | not stated, found | not stated, rejected | right |")
    print("|---|---|---|---|---|---|---|")
    for (split, name), table in tables.items():
        cells = (table[True, True], table[True, False], table[False, True], table[False, False])
        right = (cells[0] + cells[3]) / sum(cells)
        print(f"| {split} | {name} | {' | '.join(map(str, cells))} | {right:.3f} |")


if __name__ == "__main__":
    main()
