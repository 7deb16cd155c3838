"""SUITE (Peleg et al. 2026) as a `Benchmark`: one topic, with the rows that a model is fine-tuned on first.

The model to unlearn learns the facts in direct forms (`forget_train`, the direct rows of `forget_eval`), the retain rows, and
the retain rows of the evaluation, so that damage to what unlearning is not shown can be seen.
"""

from __future__ import annotations

from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.subsample import rows_to_measure
from atwu.benchmarks.suite.suite_rows import TIER_GROUPS, retain_rows, suite_rows
from atwu.benchmarks.suite.suite_tables import SUITE_TOPICS, SuiteTables, suite_tables


def suite_benchmark(name: str, *, tables: SuiteTables | None = None) -> Benchmark:
    """Load and check one topic.

    Measured are the direct question of every fact with its paraphrases and, as retain rows, those of the evaluation, at most
    400; further sets hold the retain rows of the evaluation by tier. `suite_scores` measures the other forms.

    Args:
        name: `suite:TOPIC`, one of `SUITE_TOPICS` or the name of a sub-folder.
        tables: the copy to read from; by default the one that ATWU_DATA points to, or the Hub's.

    Raises:
        FileNotFoundError: the copy lacks the topic or one of its tables.
        ValueError: a malformed name, or a table that is not as published.
    """
    prefix, _, topic = name.partition(":")
    if prefix != "suite" or not topic or ":" in topic:
        raise ValueError(f"{name!r} is not suite:TOPIC; topics of SUITE are {', '.join(SUITE_TOPICS)}.")
    tables = suite_tables(topic) if tables is None else tables
    sources = {
        split: f"suite:{topic}:{split}" for split in ("forget_train", "forget_direct", "retain_train", "retain_eval")
    }
    loaded = {split: suite_rows(source, tables=tables) for split, source in sources.items()}
    evaluated = retain_rows(tables, "retain_eval")
    kept = f"{sources['retain_train']} + {sources['retain_eval']}"
    return Benchmark(
        name=name,
        forget_source=sources["forget_train"],
        retain_source=sources["retain_train"],
        full_source=f"{sources['forget_train']} + {sources['forget_direct']} + {kept}",
        retain_only_source=kept,
        forget=loaded["forget_direct"].rows,
        retain=rows_to_measure(loaded["retain_eval"].rows),
        pool=loaded["retain_train"].rows,
        extra_retain={
            f"tier_{group.replace('-', '_to_')}": rows
            for group in TIER_GROUPS
            if (rows := tuple(row.example() for row in evaluated if row.group == group))
        },
        checked=(
            *(sentence for found in loaded.values() for sentence in found.checked),
            "row i of forget_train belongs to row i of retain_train",
        ),
    )
