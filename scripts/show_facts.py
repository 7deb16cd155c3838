"""Print rows with their facts and some forms, to be judged by eye: `python scripts/show_facts.py FILE.jsonl`.

Each row shows its answer with the parts of the fact in [[ ]] (the asked one in [[* ]]), its blank, options, opening, and
reversed question, and the forms that it does not have. Hand-marked columns `key` (texts of the parts) and `asked` (one of
them) are taken as the fact; `--by-rule` finds the fact without them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from atwu.data.form_rows import describe_missing_forms, missing_forms, rows_in_forms
from atwu.data.languages import row_language
from atwu.data.question_forms import FORMS, asked_fact
from atwu.data.row_parsing import parse_row
from atwu.data.schema import Example, merged_spans

SHOWN = ("blank", "complete", "multiple_choice", "either_or", "reversed")


def marked_row(record: dict[str, Any], *, by_rule: bool = False) -> Example:
    """Return the row of a record, with the hand-marked parts of its fact as labels."""
    row = parse_row(record, where="row")
    if by_rule or "key" not in record:
        return row
    spans = {text: (row.answer.index(text), row.answer.index(text) + len(text)) for text in record["key"]}
    return replace(row, forget_spans=merged_spans(spans.values()), asked_span=spans[record["asked"]])


def underlined(row: Example) -> str:
    """Return an answer with its fact in brackets."""
    fact = asked_fact(row)
    text = row.answer
    for start, end in reversed(fact.parts if fact else ()):
        mark = "[[*" if fact and start <= fact.asked[0] < end else "[["
        text = f"{text[:start]}{mark}{text[start:end]}]]{text[end:]}"
    return text


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--by-rule", action="store_true", help="ignore the hand-marked columns key and asked")
    options = parser.parse_args()
    records = [json.loads(line) for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows = [marked_row(record, by_rule=options.by_rule) for record in records]
    written = rows_in_forms(rows, SHOWN)
    missing = missing_forms(rows, tuple(form for form in FORMS if form != "paraphrase"))
    for index, row in enumerate(rows):
        print(f"{index + 1}. ({row_language(row)}) {row.question}\n   {underlined(row)}")
        for form in written:
            if form.index == index:
                question = " / ".join(form.row.question.splitlines())
                print(f"     {form.form:<16} {question} -> {form.row.answer}")
        print(
            f"     without          {describe_missing_forms([form for form in missing if form.index == index], of=1)}\n"
        )


if __name__ == "__main__":
    main()
