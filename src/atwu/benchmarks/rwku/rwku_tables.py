"""Published tables of RWKU (Jin et al. 2024): subjects, probes, passages and pairs, with their rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.benchmarks.probes import ProbeKind
from atwu.benchmarks.rwku.subjects import normal_name

TARGETS = "forget_target"
PASSAGES = "train_original_passage"
PAIRS: Mapping[str, str] = {"phi3_pairs": "train_pair_phi3", "llama3_pairs": "train_pair_llama3"}
"""Model that wrote the texts -> table of fabricated and true texts about a subject."""
PROBES: Mapping[ProbeKind, str] = {
    "fb": "forget_level1",
    "qa": "forget_level2",
    "aa": "forget_level3",
    "neighbour_fb": "neighbor_level1",
    "neighbour_qa": "neighbor_level2",
}
"""Kind of probe -> its table."""

_PROBE = ("subject", "query", "type", "answer")
_NEIGHBOUR = (*_PROBE, "neighbor")

RWKU_DATA = DataSet(
    "RWKU",
    "jinzhuoran/RWKU",
    {
        TARGETS: PublishedFile(200, ("target",)),
        PROBES["fb"]: PublishedFile(3268, _PROBE),
        PROBES["qa"]: PublishedFile(2879, _PROBE),
        PROBES["aa"]: PublishedFile(6984, _PROBE),
        PROBES["neighbour_fb"]: PublishedFile(5846, _NEIGHBOUR),
        PROBES["neighbour_qa"]: PublishedFile(5533, _NEIGHBOUR),
        # The number of passages is not published; this is the total of the folders per subject.
        PASSAGES: PublishedFile(12798, ("subject", "text"), counted_on_hub=False),
        **{name: PublishedFile(None, ("subject", "prompt", "response"), {"response": 2}) for name in PAIRS.values()},
    },
)


def rwku_tables(folder: str | Path | None = None) -> Tables:
    """Open a copy of RWKU.

    Args:
        folder: folder of the five probe tables, which may be incomplete; their rows are not counted. None opens the
            copy in ATWU_DATA, or the Hub's if it is not set, which must be complete.
    """
    if folder is None:
        return open_tables(RWKU_DATA)
    files = [f"{name}.jsonl" for name in PROBES.values()]
    missing = [file for file in files if not (Path(folder) / file).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} has no {', '.join(missing)}; RWKU's probes are in {', '.join(files)}.")
    uncounted = {name: replace(published, rows=None) for name, published in RWKU_DATA.tables.items()}
    return Tables(replace(RWKU_DATA, tables=uncounted), Path(folder))


def read_targets(tables: Tables) -> tuple[str, ...]:
    """Return the names of all subjects in published order."""
    return tuple(normal_name(columns["target"]) for _, columns in tables.table(TARGETS))


def counted(name: str, tables: Tables) -> str:
    """Describe the row check of a table in one sentence."""
    rows = tables.expected_rows(name)
    return f"{name}.jsonl: " + ("rows not counted" if rows is None else f"{rows} rows, as expected")
