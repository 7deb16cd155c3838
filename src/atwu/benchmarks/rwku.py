"""RWKU (Jin et al. 2024): training rows of `rwku:SUBJECTS:KIND[:N]` with their subject, and the benchmark.

KIND is `passages` (plain text), `probes` (fill in the blank and questions), `questions`, `neighbours`,
`neighbour_questions`, or `phi3_pairs` and `llama3_pairs`: text of that model about a subject, with a fabricated text as the
preferred answer. `rwku:surrogate!canonical:passages` drops rows about the subjects after the `!`, so that the retain set
does not mention the forget set. Exact duplicates are dropped, and all dropped rows are counted.

SUBJECTS are `canonical`, `surrogate` (the two groups of ten in the ATWU paper), `first20`, names as in the files, or several
of these joined by `|`. Training rows and evaluation use the same prompts. The instructions are written for this project, so
scores are comparable between models evaluated here, and only approximately with published ones.

The benchmark `rwku` is the batch protocol of the ATWU paper: ten forget subjects are unlearned together, and ten other
subjects serve as the retain set.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from atwu._names import did_you_mean
from atwu.benchmarks.base import Benchmark, LoadedRows, Probe, Probes, evenly_spaced, name_parts
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
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
        PASSAGES: PublishedFile(None, ("subject", "text")),
        **{name: PublishedFile(None, ("subject", "prompt", "response"), {"response": 2}) for name in PAIRS.values()},
    },
)


def read_targets(tables: Tables) -> tuple[str, ...]:
    """Return the names of all subjects in published order."""
    return tuple(normal_name(columns["target"]) for _, columns in tables.table(TARGETS))


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
        if first is not None and not 1 <= int(first[1]) <= len(published):
            raise ValueError(
                f"{word} is out of range: RWKU has {len(published)} subjects, so K must be from 1 to {len(published)}."
            )
        if first is not None:
            names += published[: int(first[1])]
        else:
            names += _LISTS.get(word, (word,))
    _check_known(names, published, "RWKU has no subject", f"Subjects are {GRAMMAR}")
    return tuple(dict.fromkeys(names))


def _check_known(names: Iterable[str], known: Collection[str | None], where: str, about: str) -> None:
    """Refuse unknown subjects, each with the closest known one."""
    published = sorted(name for name in known if name is not None)
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        hints = "".join(did_you_mean(name, published) for name in unknown)
        raise ValueError(
            f"{where} {', '.join(map(repr, unknown))}.{hints} {about}; a name must be spelled as in the files, with its "
            "accents, commas and capitals."
        )


def normal_name(name: str) -> str:
    """Normalize a name for comparison (Unicode NFC)."""
    # The same accent may be one character or two.
    return unicodedata.normalize("NFC", name.strip())


def names_one_of(text: str, subjects: Iterable[str]) -> bool:
    """Whether a text contains the full name of a subject, ignoring case; a surname alone does not count."""
    # Some texts have several spaces, or one before a comma.
    flat = normal_name(re.sub(r"\s+", " ", text).replace(" ,", ",")).casefold()
    return any(re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", flat) for name in subjects)


ATTACKS = (
    "prefix injection",
    "affirmative suffix",
    "role play",
    "multiple choice",
    "reverse query",
    "synonym manipulation",
    "context hint",  # "background hint" in the paper
    "incontext learning",
    "cross lingual",
)
"""The nine attack types as spelled in the files, which also append the language and sometimes have hyphens."""

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
    # Evenly spaced over a file that is ordered by subject, so that every subject is represented.
    for kind, table in PROBES.items():
        every = [
            (parse_probe(kind, record), record[1]["type"], record[1].get("neighbor")) for record in tables.table(table)
        ]
        known.update(probe.row.subject for probe, *_ in every)
        chosen = [entry for entry in every if entry[0].row.subject in wanted]
        distinct = [probe for probe, *_ in dict.fromkeys(chosen)]
        probes += evenly_spaced(distinct, caps.get(kind))
    _check_known(wanted, known, f"{tables.folder or 'RWKU'} has no probes about", f"It has {len(known)} subjects")
    return Probes("rwku", tuple(probes), wanted)


def parse_probe(kind: str, record: Record) -> Probe:
    """Parse a probe; its user turn is the instruction of its kind and the query, and its answer begins with `Answer:`.

    A probe with an affirmative suffix has its own start of the answer, and one with in-context learning its own
    `Question:` marks. A few published fill-in-the-blank probes are actually questions; they keep the instruction of
    their kind.
    """
    where, row = record
    instruction, mark, opening = _ANSWER, "Question: ", "Answer:"
    if kind.endswith("fb"):
        instruction = _COMPLETE
    if kind == "aa":
        attack = row["type"].partition("(")[0].replace("-", " ").strip()
        if attack not in ATTACKS:
            raise ValueError(f"{where}: unknown attack type {row['type']!r}; known types are {', '.join(ATTACKS)}.")
        # Its query holds answered examples with marks of their own.
        if attack == "incontext learning":
            mark = ""
        # Its query ends with the beginning of an answer.
        if attack == "affirmative suffix":
            opening = ""
    return Probe(
        kind,
        Example.from_qa(row["query"], row["answer"], subject=normal_name(row["subject"])),
        opening=opening,
        wording=f"{instruction}\n{mark}{row['query']}",
    )


KINDS: Mapping[str, tuple[str, ...]] = {
    "passages": (PASSAGES,),
    "probes": (PROBES["fb"], PROBES["qa"]),
    "neighbours": (PROBES["neighbour_fb"], PROBES["neighbour_qa"]),
    "questions": (PROBES["qa"],),
    "neighbour_questions": (PROBES["neighbour_qa"],),
    **{kind: (table,) for kind, table in PAIRS.items()},
}
"""Kind of rows -> its tables."""

_BLANK = re.compile("_{3,}")


def rwku_rows(name: str, *, tables: Tables | None = None) -> LoadedRows:
    """Read the rows of a source in file order, and count the rows dropped.

    N keeps the first N distinct rows of every subject and file, before rows about the subjects after the `!` are dropped.
    """
    words, kind, limit = name_parts(name, "rwku:SUBJECTS:KIND", KIND=KINDS)
    tables = tables or open_tables(RWKU_DATA)
    published = read_targets(tables)
    wanted, _, left_out = words.partition("!")
    subjects = subject_names(wanted, published)
    others: tuple[str, ...] = ()
    if left_out:
        others = subject_names(left_out, published)
    rows: list[tuple[Example, str]] = []
    duplicates = 0
    for table in KINDS[kind]:
        every = [(row, about) for row, about in _read(table, tables) if row.subject in subjects]
        # A dict drops exact duplicates and keeps the order of the file.
        distinct = dict(every)
        duplicates += len(every) - len(distinct)
        seen: Counter[str | None] = Counter()
        for row, about in distinct.items():
            seen[row.subject] += 1
            if limit is None or seen[row.subject] <= limit:
                rows.append((row, about))
    # A row that an excluded subject has, too, is dropped under whatever name.
    forgotten: set[tuple[object, str]] = set()
    if others:
        names = KINDS["probes"]
        if kind == "passages" or kind in PAIRS:
            names = KINDS[kind]
        of_others = (row for table in names for row, _ in _read(table, tables) if row.subject in others)
        forgotten = {(row.messages, row.answer) for row in of_others}
    private = [(row, about) for row, about in rows if (row.messages, row.answer) not in forgotten]
    # A retain text that names a forget subject would teach what is to be forgotten.
    kept = tuple(row for row, about in private if not names_one_of(about, others))
    shared, named = len(rows) - len(private), len(private) - len(kept)
    warnings: tuple[str, ...] = ()
    if duplicates or shared or named:
        text = (
            f"{len(kept)} rows of {len({row.subject for row in kept})} subjects; {duplicates} exact duplicates dropped"
        )
        if others:
            text += f", {shared} shared with an excluded subject, {named} that name one"
        warnings = (text,)
    return LoadedRows(kept, name, warnings)


def _read(table: str, tables: Tables) -> Iterator[tuple[Example, str]]:
    """Yield the rows of a table of passages, pairs or probes, each with all its text, in which names are searched."""
    if table == PASSAGES:
        for _, row in tables.table(table):
            yield Example((), row["text"], subject=normal_name(row["subject"])), row["text"]
        return
    if table in PAIRS.values():
        for _, row in tables.table(table):
            # Methods that prefer an answer take the fabricated text.
            made_up, true = row["response"]
            pair = Example.from_qa(row["prompt"], true, alternate=made_up, subject=normal_name(row["subject"]))
            yield pair, "\n".join([row["prompt"], true, made_up])
        return
    (kind,) = (kind for kind, name in PROBES.items() if name == table)
    for record in tables.table(table):
        probe = parse_probe(kind, record)
        answer = probe.row.answer
        # With the blank filled, since a name may be what was left out.
        filled = answer.join(_BLANK.split(probe.row.question))
        about = "\n".join([filled, answer, record[1].get("neighbor") or ""])
        yield Example(probe.messages, answer, subject=probe.row.subject), about


def rwku_benchmark(name: str) -> Benchmark:
    """Load `rwku` (the batch protocol), `rwku:FORGET/RETAIN`, or `rwku:FORGET/RETAIN:N` with at most N passages per subject.

    FORGET and RETAIN name subjects as in `rwku:` sources, such as `canonical` or `first20`.
    """
    full_name = name
    if ":" not in name:
        full_name = f"{name}:canonical/surrogate"
    sides, limit = name_parts(full_name, "rwku:FORGET/RETAIN")
    forget, _, retain = sides.partition("/")
    if not forget or not retain or "!" in sides:
        raise ValueError(f"{name!r} is not rwku or rwku:FORGET/RETAIN[:N]; FORGET and RETAIN are {GRAMMAR}.")
    tables = open_tables(RWKU_DATA)
    published = read_targets(tables)
    subjects = subject_names(forget, published)
    # A subject in both sets would be forgotten and retained at once.
    shared = sorted(set(subjects) & set(subject_names(retain, published)))
    if shared:
        raise ValueError(
            f"{', '.join(shared)} cannot be in both the forget and the retain set; give disjoint subjects."
        )
    both = f"{forget}|{retain}"
    passages = "passages"
    if limit:
        passages = f"passages:{limit}"
    # Of the retain side, what a forget subject has too is left out: the retain-only model must not have seen it.
    kept = f"rwku:{retain}!{forget}"
    questions = rwku_rows(f"rwku:{forget}:questions", tables=tables)
    kept_questions = rwku_rows(f"rwku:{forget}!{forget}:neighbour_questions", tables=tables)
    pool = rwku_rows(f"rwku:{both}!{forget}:neighbour_questions", tables=tables)
    return Benchmark(
        name=name,
        forget_source=f"rwku:{forget}:{passages}",
        retain_source=f"{kept}:{passages}",
        full_source=f"rwku:{both}:{passages} + rwku:{both}:probes + rwku:{both}:neighbours",
        retain_only_source=f"{kept}:{passages} + {kept}:probes + rwku:{both}!{forget}:neighbours",
        forget=evenly_spaced(questions.rows, CAPS["qa"]),
        retain=evenly_spaced(kept_questions.rows, CAPS["neighbour_qa"]),
        pool=pool.rows,
        probes=load_probes(tables, subjects=subjects),
    )
