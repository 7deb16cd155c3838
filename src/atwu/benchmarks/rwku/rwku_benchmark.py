"""RWKU (Jin et al. 2024) as a benchmark: passages about forget and retain subjects, probes, and neighbour probes.

`rwku` is the batch protocol of the ATWU paper: ten forget subjects are unlearned together, and ten other subjects serve
as the
retain set. Retain rows that mention a forget subject are dropped; `Benchmark.checked` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.dataset_files import Tables
from atwu.benchmarks.probes import RwkuProbes
from atwu.benchmarks.rwku.rwku_probes import CAPS, load_probes
from atwu.benchmarks.rwku.rwku_rows import RwkuRows, rwku_rows
from atwu.benchmarks.rwku.rwku_tables import PASSAGES, PROBES, TARGETS, counted, read_targets, rwku_tables
from atwu.benchmarks.rwku.subjects import GRAMMAR, subject_names
from atwu.benchmarks.subsample import evenly_spaced

BATCH = "canonical/surrogate"
"""Subjects of the batch protocol."""


def rwku_benchmark(name: str) -> Benchmark:
    """Load the benchmark.

    Args:
        name: `rwku` (the batch protocol), `rwku:FORGET/RETAIN`, or `rwku:FORGET/RETAIN:N` with at most N passages per
            subject; FORGET and RETAIN name subjects as in `rwku:` sources, such as `canonical` or `first20`.

    Raises:
        FileNotFoundError: ATWU_DATA is set and has no RWKU.
        ValueError: malformed name, unknown subject, subject in both sets, or incomplete file.
    """
    forget, retain, limit = _parse(name)
    tables = rwku_tables()
    subjects = _disjoint(forget, retain, tables)
    both = f"{forget}|{retain}"
    passages = "passages" + (f":{limit}" if limit else "")
    sources = {
        "forget": [f"rwku:{forget}:{passages}"],
        "retain": [f"rwku:{retain}!{forget}:{passages}"],
        "full": [f"rwku:{both}:{passages}", f"rwku:{both}:probes", f"rwku:{both}:neighbours"],
        "retain-only": [
            f"rwku:{retain}!{forget}:{passages}",
            f"rwku:{retain}!{forget}:probes",
            f"rwku:{both}!{forget}:neighbours",
        ],
    }

    def read(source: str) -> RwkuRows:
        return rwku_rows(source, tables=tables)

    questions = read(f"rwku:{forget}:questions")
    kept_questions = read(f"rwku:{forget}!{forget}:neighbour_questions")
    pool = read(f"rwku:{both}!{forget}:neighbour_questions")
    probes = load_probes(tables, subjects=subjects)
    about = read(f"rwku:{forget}!{forget}:neighbours")
    trained = [read(source) for parts in sources.values() for source in parts]
    return Benchmark(
        name=name,
        forget_source=" + ".join(sources["forget"]),
        retain_source=" + ".join(sources["retain"]),
        full_source=" + ".join(sources["full"]),
        retain_only_source=" + ".join(sources["retain-only"]),
        forget=evenly_spaced(questions.rows, CAPS["qa"]),
        retain=evenly_spaced(kept_questions.rows, CAPS["neighbour_qa"]),
        pool=pool.rows,
        probes=probes,
        checked=_checked(
            tables, [questions, kept_questions, pool, *trained], probes, naming=about.shared + about.named
        ),
    )


def _parse(name: str) -> tuple[str, str, int | None]:
    head, *rest = name.split(":")
    sides, *number = rest or [BATCH]
    forget, slash, retain = sides.partition("/")
    fits = head == "rwku" and slash and forget and retain and "!" not in sides and len(number) < 2
    if not fits or not all(part.isdecimal() and int(part) > 0 for part in number):
        raise ValueError(
            f"{name!r} is not rwku, rwku:FORGET/RETAIN or rwku:FORGET/RETAIN:N. FORGET and RETAIN are {GRAMMAR}; N "
            ">= 1 is the maximum number of passages per subject."
        )
    return forget, retain, int(number[0]) if number else None


def _disjoint(forget: str, retain: str, tables: Tables) -> tuple[str, ...]:
    """Check that the sets are disjoint; returns the names of the forget subjects."""
    published = read_targets(tables)
    names = subject_names(forget, published)
    both = sorted(set(names) & set(subject_names(retain, published)))
    if both:
        raise ValueError(f"{', '.join(both)} cannot be in both the forget and the retain set; give disjoint subjects.")
    return names


def _checked(tables: Tables, sources: Sequence[RwkuRows], probes: RwkuProbes, naming: int) -> tuple[str, ...]:
    neighbours = sum(probe.neighbour is not None for probe in probes.probes)
    sentences = [
        *(counted(name, tables) for name in (TARGETS, *PROBES.values(), PASSAGES)),
        *(source.checked[-1] for source in sources),
    ]
    sentences.append(
        f"probes: {len(probes.probes)} of {len(probes.subjects)} subjects; {sum(probes.duplicates.values())} exact "
        f"duplicates dropped, {sum(probes.left_out.values())} above the limit per kind"
    )
    sentences.append(
        f"neighbour probes: {naming} rows of {neighbours} name a forget subject or equal one of its probes; they are "
        "evaluated, as published, but not used as retain rows"
    )
    return tuple(dict.fromkeys(sentences))
