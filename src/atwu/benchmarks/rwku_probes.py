"""RWKU (Jin et al. 2024): its published tables, the subjects that a name selects, their probes, and the prompt of each probe.

Subjects are `canonical`, `surrogate` (the two groups of ten in the ATWU paper), `first20`, names as in the files, or several
of these joined by `|`. Training rows and evaluation use the same prompts. The instructions are written for this project, so
scores are comparable between models evaluated here, and only approximately with published ones.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from atwu.benchmarks.base import Probe, Probes
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.records import Record
from atwu.data.schema import Example

TARGETS = "forget_target"
PASSAGES = "train_original_passage"
PAIRS: Mapping[str, str] = {"phi3_pairs": "train_pair_phi3", "llama3_pairs": "train_pair_llama3"}
"""Model that wrote the texts -> table of fabricated and true texts about a subject."""
PROBES: Mapping[str, str] = {
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


CANONICAL_FORGET = (
    "Beyoncé",
    "Blake Lively",
    "Bruce Springsteen",
    "Catherine, Princess of Wales",
    "Daniel Day-Lewis",
    "Donald Trump",
    "Dr. Dre",
    "Elon Musk",
    "Jennifer Lopez",
    "Jeff Goldblum",
)
"""The ten subjects that the ATWU paper unlearns together."""
SURROGATE_RETAIN = (
    "Evel Knievel",
    "Franklin D. Roosevelt",
    "Grace Kelly",
    "Halle Berry",
    "Henry Winkler",
    "Ice Cube",
    "James Earl Jones",
    "Jeff Bridges",
    "Jay-Z",
    "Jimmy Carter",
)
"""The ten other subjects that serve as the retain set."""

GRAMMAR = "canonical, surrogate, firstK (such as first20), names as in the files, or several of these joined by |"

_LISTS = {"canonical": CANONICAL_FORGET, "surrogate": SURROGATE_RETAIN}
_FIRST = re.compile(r"first(\d+)")


def subject_names(words: str, published: Sequence[str]) -> tuple[str, ...]:
    """Parse a selection of subjects, without duplicates.

    Args:
        words: such as `canonical|surrogate`, `first20` or `Orla Venn|Tavi Brook`.
        published: all names of the data set, in its order.
    """
    names: list[str] = []
    for word in words.split("|"):
        word = normal_name(word)
        first = _FIRST.fullmatch(word)
        if first and not 1 <= int(first[1]) <= len(published):
            raise ValueError(
                f"{word} is out of range: RWKU has {len(published)} subjects, so K must be from 1 to {len(published)}."
            )
        names += published[: int(first[1])] if first else _LISTS.get(word, (word,))
    _check_known(names, published, "RWKU has no subject", f"Subjects are {GRAMMAR}")
    return tuple(dict.fromkeys(names))


def _check_known(names: Iterable[str], known: Collection[str | None], where: str, about: str) -> None:
    """Refuse unknown subjects, each with similar known ones."""
    plain = {_plain(name): name for name in sorted(name for name in known if name is not None)}
    hints = []
    for name in dict.fromkeys(name for name in names if name not in known):
        near = [plain[close] for close in difflib.get_close_matches(_plain(name), plain, n=3)]
        hints.append(f"{name!r}" + (f" (close: {', '.join(near)})" if near else ""))
    if hints:
        raise ValueError(
            f"{where} {'; '.join(hints)}. {about}; a name must be spelled as in the files, with its accents, "
            "commas and capitals."
        )


def normal_name(name: str) -> str:
    """Normalize a name for comparison (Unicode NFC)."""
    return unicodedata.normalize("NFC", name.strip())


def names_one_of(text: str, subjects: Iterable[str]) -> bool:
    """Whether a text contains the full name of a subject, ignoring case; a surname alone does not count."""
    flat = normal_name(re.sub(r"\s+", " ", text).replace(" ,", ",")).casefold()
    return any(re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", flat) for name in subjects)


def _plain(name: str) -> str:
    """Lower-case a name and remove accents."""
    letters = unicodedata.normalize("NFD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


ATTACKS = {
    "prefix injection": "prefix injection",
    "affirmative suffix": "affirmative suffix",
    "role play": "role playing",
    "multiple choice": "multiple choice",
    "reverse query": "reverse query",
    "synonym manipulation": "synonym manipulation",
    "context hint": "background hint",
    "incontext learning": "in-context learning",
    "cross lingual": "cross-lingual",
}
"""The nine attack types: spelling in the files (which also append the language) -> name in the paper."""

CAPS: Mapping[str, int] = {"fb": 300, "qa": 300, "aa": 400, "neighbour_fb": 300, "neighbour_qa": 300}
"""Maximum number of probes per kind, as in the evaluation of the ATWU paper."""

_COMPLETE = "Fill in the blank in the text below. Give only the missing words."
_ANSWER = "Give a short answer to the question below."


def load_probes(tables: Tables, *, subjects: Sequence[str], caps: Mapping[str, int] = CAPS) -> Probes:
    """Read the probes of some subjects.

    Args:
        subjects: names as in the files, with accents, such as `CANONICAL_FORGET`; order does not matter.
        caps: maximum number of probes per kind, chosen evenly spaced. A kind without a limit is used in full.
    """
    wanted = tuple(dict.fromkeys(normal_name(name) for name in subjects))
    known: set[str | None] = set()
    probes: list[Probe] = []
    duplicates: dict[str, int] = {}
    left_out: dict[str, int] = {}
    for kind, table in PROBES.items():
        every = [
            (parse_probe(kind, record), record[1]["type"], record[1].get("neighbor")) for record in tables.table(table)
        ]
        known.update(probe.row.subject for probe, *_ in every)
        chosen = [each for each in every if each[0].row.subject in wanted]
        distinct = [probe for probe, *_ in dict.fromkeys(chosen)]
        kept = evenly_spaced(distinct, caps.get(kind))
        duplicates[kind] = len(chosen) - len(distinct)
        left_out[kind] = len(distinct) - len(kept)
        probes += kept
    _check_known(wanted, known, f"{tables.folder or 'RWKU'} has no probes about", f"It has {len(known)} subjects")
    return Probes("rwku", tuple(probes), wanted, duplicates, left_out)


def parse_probe(kind: str, record: Record) -> Probe:
    """Parse a probe; its user turn is the instruction of its kind and the query, and its answer begins with `Answer:`.

    A probe with an affirmative suffix has its own start of the answer, and one with in-context learning its own
    `Question:` marks. A few published fill-in-the-blank probes are actually questions; they keep the instruction of
    their kind.
    """
    where, row = record
    attack = _attack(row["type"], where) if kind == "aa" else None
    instruction = _COMPLETE if kind.endswith("fb") else _ANSWER
    mark = "" if attack == "in-context learning" else "Question: "
    return Probe(
        kind,
        Example.from_qa(row["query"], row["answer"], subject=normal_name(row["subject"])),
        opening="" if attack == "affirmative suffix" else "Answer:",
        wording=f"{instruction}\n{mark}{row['query']}",
    )


def _attack(spelled: str, where: str) -> str:
    family = spelled.partition("(")[0].replace("-", " ").strip()
    if family not in ATTACKS:
        raise ValueError(f"{where}: unknown attack type {spelled!r}; known types are {', '.join(ATTACKS)}.")
    return ATTACKS[family]
