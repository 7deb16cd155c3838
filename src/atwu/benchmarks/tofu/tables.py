"""The tables of TOFU (Maini et al. 2024) with their rows and columns as published, and how their records are compared."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from atwu.benchmarks.tables import DataSet, Published, Tables, open_tables
from atwu.data.records import Record

LABELS_SUFFIX = "_with_common_words_gpt"
"""Ending of the tables with word labels (Zhou et al. 2025), which are not part of TOFU itself."""

_PAIR = ("question", "answer")
_PERTURBED = (*_PAIR, "paraphrased_question", "paraphrased_answer", "perturbed_answer")
_OPTIONS = tuple(f"option{number}" for number in range(1, 5))


def _published() -> dict[str, Published]:
    tables = {"full": Published(4000, _PAIR)}
    for percent, rows in ((1, 40), (5, 200), (10, 400)):
        tables[f"forget{percent:02}"] = tables[f"holdout{percent:02}"] = Published(rows, _PAIR)
        tables[f"forget{percent:02}_perturbed"] = Published(rows, _PERTURBED, {"perturbed_answer": 5})
        tables[f"forget{percent:02}{LABELS_SUFFIX}"] = Published(rows, (*_PAIR, "target_words"), on_hub=False)
        tables[f"retain{100 - percent}"] = Published(4000 - rows, _PAIR)
    tables["retain_perturbed"] = Published(400, _PERTURBED, {"perturbed_answer": 5})
    for name, rows in (("real_authors", 100), ("world_facts", 117)):
        tables[name] = Published(rows, (*_PAIR, *_OPTIONS))
        tables[f"{name}_perturbed"] = Published(rows, (*_PAIR, "perturbed_answer"), {"perturbed_answer": 3})
    return tables


TOFU = DataSet("TOFU", "locuslab/TOFU", MappingProxyType(_published()), split="train")


def tofu_tables() -> Tables:
    """The copy that ATWU_DATA points to, or the Hub's when it is not set.

    Raises:
        FileNotFoundError: the folder does not hold TOFU.
    """
    return open_tables(TOFU)


def check_equal(found: Record, expected: Record) -> None:
    """Check that two records are about the same question and answer.

    Raises:
        ValueError: they differ; both places and texts are named.
    """
    for column in _PAIR:
        ours, theirs = found[1][column], expected[1][column]
        if ours != theirs:
            raise ValueError(
                f"{found[0]}, column {column!r}: found {ours!r:.80}, expected {theirs!r:.80} as in {expected[0]}; "
                f"take both from one copy of TOFU ({TOFU.hub})."
            )


def pair_of(record: Record) -> tuple[str, str]:
    """Question and answer of a record."""
    return record[1]["question"], record[1]["answer"]


def options_of(record: Record) -> list[Any]:
    """The four choices of a record of `real_authors` or `world_facts`."""
    return [record[1][name] for name in _OPTIONS]
