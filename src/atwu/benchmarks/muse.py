"""MUSE (Shi et al. 2024): news articles or the Harry Potter books, with verbatim and knowledge probes.

Training texts are split into chunks (`text_chunks`), since books have a million characters. The texts of the membership
attack stay whole: raise `max_length` (2048 in the settings) or they are cut. Scalability unlearns `scal_1` to `scal_4`,
each larger than the one before, from the same model; sustainability `sust_1` to `sust_4` one after another.
"""

from __future__ import annotations

from collections.abc import Iterator

from atwu.benchmarks.base import Benchmark, LoadedRows, Probe, Probes, first_rows, name_parts, text_chunks
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.data.schema import Example, Message

CORPORA = ("news", "books")
FOLDS = (1, 2, 3, 4)
VERBMEM, KNOWMEM = "verbmem", ("knowmem_forget", "knowmem_retain")
"""Kinds of probes."""

_RAW = {
    "news": {"forget": 889, "retain1": 1777, "retain2": 1778, "holdout": 3043},
    "books": {"forget": 4, "retain1": 12, "retain2": 13, "holdout": 3},
}
_FOLDS = {"scal": (889, 1778, 2667, 3554), "sust": (889, 889, 889, None)}
"""Articles of the four folds, only of News; None where we have not seen the number."""
_TEXT, _QA = ("text",), ("question", "answer")
_CHUNKED = {name: f"raw/{name}" for name in _RAW["news"]}
_CHUNKED |= {f"{kind}_{fold}": f"{kind}/forget_{fold}" for kind in _FOLDS for fold in FOLDS}
_WHOLE = {f"privleak_{split}": f"privleak/{split}" for split in ("forget", "retain", "holdout")}
_ASKED = {f"knowmem_{split}": f"knowmem/{split}_qa" for split in ("forget", "retain")}
MUSE_SPLITS = {**_CHUNKED, **_WHOLE, **_ASKED}
"""Split of a source -> its table."""


def _data(corpus: str) -> DataSet:
    tables = {f"raw/{name}": PublishedFile(rows, _TEXT) for name, rows in _RAW[corpus].items()}
    # Attacks and questions have 100 rows in either corpus, and ten answered questions before each.
    tables |= {table: PublishedFile(100, _TEXT) for table in _WHOLE.values()}
    tables |= {table: PublishedFile(100, _QA) for table in _ASKED.values()}
    tables |= {f"{table}_icl": PublishedFile(10, _QA) for table in _ASKED.values()}
    tables["verbmem/forget"] = PublishedFile(100, ("prompt", "gt"))
    # The folds are successive or growing requests, of News only.
    if corpus == "news":
        for kind, counts in _FOLDS.items():
            tables |= {f"{kind}/forget_{fold}": PublishedFile(rows, _TEXT) for fold, rows in enumerate(counts, start=1)}
    # Not exact: a part of the texts is enough for a smaller run, which is then not comparable.
    return DataSet(f"MUSE-{corpus.title()}", f"muse-bench/MUSE-{corpus.title()}", tables, exact=False)


MUSE_DATA = {corpus: _data(corpus) for corpus in CORPORA}


def muse_rows(name: str, *, tables: Tables | None = None) -> LoadedRows:
    """Read the rows of `muse:CORPUS:SPLIT`, or with `:N` only the first N.

    SPLIT is one of `MUSE_SPLITS`: training texts in chunks, texts of the membership attack, or questions.
    """
    corpus, split, count = name_parts(name, "muse:CORPUS:SPLIT", CORPUS=CORPORA)
    known = {name_of_split: table for name_of_split, table in MUSE_SPLITS.items() if table in MUSE_DATA[corpus].tables}
    if split not in known:
        raise ValueError(f"{name!r}: MUSE {corpus} has no split {split!r}; choose one of {', '.join(known)}.")
    tables = tables or open_tables(MUSE_DATA[corpus])
    rows = tuple(_rows(split, tables))
    return LoadedRows(first_rows(name, rows, count), name, tables.incomplete())


def muse_benchmark(name: str) -> Benchmark:
    """Load `muse:news`, `muse:books`, or `muse:news:FOLD` with another forget set (scal_1 to scal_4, sust_1 to sust_4).

    Measured are the texts of the membership attack, and as probes those of verbatim and knowledge memorization.
    """
    # No `name_parts`: the fold is optional, and a part of one corpus.
    corpus, _, fold = name.removeprefix("muse:").partition(":")
    folds = [f"{kind}_{number}" for kind in _FOLDS for number in FOLDS]
    if corpus not in CORPORA or (fold and (corpus != "news" or fold not in folds)):
        raise ValueError(
            f"{name!r} is not muse:news, muse:books, or muse:news:FOLD with scal_1 to scal_4 or sust_1 to sust_4."
        )
    tables = open_tables(MUSE_DATA[corpus])
    base = f"muse:{corpus}"
    kept = f"{base}:retain1 + {base}:retain2"
    forget = everything = f"{base}:forget"
    if fold:
        # The last fold of scalability holds those before it, and the articles of sustainability.
        forget, everything = f"{base}:{fold}", f"{base}:scal_{FOLDS[-1]}"
    loaded = {split: muse_rows(f"{base}:{split}", tables=tables) for split in (*_WHOLE, *_ASKED, "retain1")}
    return Benchmark(
        name=name,
        forget_source=forget,
        retain_source=f"{base}:retain1",
        full_source=f"{everything} + {kept}",
        retain_only_source=kept,
        forget=loaded["privleak_forget"].rows,
        retain=loaded["privleak_retain"].rows,
        pool=loaded["retain1"].rows,
        holdout=loaded["privleak_holdout"].rows,
        probes=Probes("muse", tuple(_probes(tables))),
        warnings=tables.incomplete(),
    )


def _rows(split: str, tables: Tables) -> Iterator[Example]:
    for _, columns in tables.table(MUSE_SPLITS[split]):
        if split in _ASKED:
            yield Example.from_qa(columns["question"], columns["answer"])
            continue
        text = columns["text"]
        # No number: an article has the same subject in every fold that has it.
        document = text.strip()[:60]
        parts = [text]
        if split in _CHUNKED:
            parts = text_chunks(text)
        for part in parts:
            yield Example((), part, subject=document)


def _probes(tables: Tables) -> Iterator[Probe]:
    """Yield texts to continue, then questions after the ten answered ones of their set."""
    for _, columns in tables.table("verbmem/forget"):
        yield Probe(VERBMEM, Example((), columns["gt"]), opening=columns["prompt"])
    for kind in KNOWMEM:
        # As in MUSE: ten answered questions stand before each one.
        before: tuple[Message, ...] = ()
        for _, columns in tables.table(f"{_ASKED[kind]}_icl"):
            before += (Message("user", columns["question"]), Message("assistant", columns["answer"]))
        for _, columns in tables.table(_ASKED[kind]):
            yield Probe(kind, Example((*before, Message("user", columns["question"])), columns["answer"]))
