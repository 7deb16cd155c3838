"""Rows that contradict each other or themselves: in forget and retain set, one question with two answers, an echo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atwu.data.schema import Example
from atwu.data.text_similarity import words_of_text

_NAMED = 3
"""Rows that a warning names at most."""


def row_keys(row: Example) -> tuple[str, ...]:
    """Return question and answer of a row without case and punctuation."""
    asked, said = " ".join(words_of_text(row.question)), " ".join(words_of_text(row.answer))
    if asked:
        return (f"q {asked}", f"a {said}")
    return (f"a {said}",)


def check_no_overlap(
    kept: Sequence[Example], gone: Sequence[Example], *, source: str, why: str, option: str = "--retain"
) -> None:
    """Check that no retain or holdout row repeats a forget row: the same question or, without a question, the same text.

    Args:
        kept: retain or holdout rows.
        gone: forget rows of this or an earlier request.
        source: name of these rows in errors.
        why: what errors say about such a row.
        option: the option that gives these rows.

    Raises:
        ValueError: a row does; the message names it.
    """
    removed = {row_keys(row)[0] for row in gone}
    repeats = [place for place, row in enumerate(kept, start=1) if row_keys(row)[0] in removed]
    if not repeats:
        return
    first = kept[repeats[0] - 1]
    others = len(repeats) - 1
    more = f", like {others} more row{'s' * (others > 1)}" if others else ""
    how = ", as `atwu rows retain --corpus` does" if option == "--retain" else ""
    raise ValueError(
        f"{source}: row {repeats[0]} {why} ({(first.question or first.answer)[:60]!r}){more}; leave such rows out of "
        f"{option}{how}."
    )


def conflict_warnings(rows: Sequence[Example]) -> Iterator[str]:
    """Yield a warning for each kind of conflict within a set, with the numbers of its first rows."""
    answers: dict[tuple[object, ...], tuple[int, str]] = {}
    contradictions, echoes = [], []
    for place, row in enumerate(rows, start=1):
        if not row.question:
            continue
        said = " ".join(words_of_text(row.answer))
        first, known = answers.setdefault(tuple(row.messages), (place, said))
        if known != said:
            contradictions.append(f"{first} and {place}")
        if row.answer.strip().casefold() == row.question.strip().casefold():
            echoes.append(str(place))
    if contradictions:
        yield (
            f"rows {_first(contradictions)} give different answers to the same question; correct one, or leave one out, "
            "unless both are meant"
        )
    if echoes:
        yield f"the answer of row {_first(echoes)} is its question; correct it, or leave the row out"


def _first(named: Sequence[str]) -> str:
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" (and {more} more)" if more > 0 else "")
