"""Forms of English verbs, as far as rules of syntax need them: irregular ones from a list, others by their ending."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml

_LISTS: dict[str, Any] = read_yaml(Path(__file__).with_name("english_verbs.yaml"))
_IRREGULAR = [tuple(verb.split("/")) for verb in _LISTS["irregular"].split()]
"""Base, past and participle."""
_PAST: dict[str, str] = {base: past for base, past, _ in _IRREGULAR}
_PARTICIPLE: dict[str, str] = {past: participle for _, past, participle in _IRREGULAR}
_ACTIVE: dict[str, str] = {participle: past for _, past, participle in _IRREGULAR}
_FORMS = {form: frozenset(verb) for verb in _IRREGULAR for form in verb}
"""Form of an irregular verb -> all of them."""
_AUXILIARIES = frozenset(_LISTS["auxiliaries"])
_DOUBLES = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")
"""A base of one syllable that doubles its last letter before an ending: "star", "starring"."""


def is_past(word: str) -> bool:
    """Whether a word is a past or, for most verbs, a participle."""
    return word in _PARTICIPLE or (word.endswith("ed") and len(word) > 4 and word.islower())


def verb_forms(form: str) -> frozenset[str]:
    """Return the forms of the verb of an irregular form or a base, but the one in -ing: "give", "gives", "gave", "given"."""
    forms = _FORMS.get(form, frozenset((form, base_to_past(form))))
    return forms | {base_to_third_person(form)}


def shares_base(forms: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether a word, given in its forms, may be a form of the same verb as another one."""
    bases = {base for form in forms for base in _bases(form)}
    return any(base in bases for other in others for base in _bases(other))


@functools.lru_cache(maxsize=16384)
def _bases(word: str) -> frozenset[str]:
    """Return what may be the base of a verb, a form of which a word may be: "mend" and "mende" of "mending"."""
    bases = {word}
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < 3:
            continue
        bases.add(stem + "e")
        if stem[-1] == stem[-2]:
            bases.add(stem[:-1])
        # "hated" is no form of "hat".
        if not _DOUBLES.fullmatch(stem):
            bases.add(stem)
    return frozenset(bases.union(*(_FORMS.get(base, ()) for base in bases)))


def progressive(base: str) -> str:
    """Return the form of a verb in -ing."""
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    if base in _LISTS["doubled"]:
        return base + base[-1] + "ing"
    return base + "ing"


def is_auxiliary(word: str) -> bool:
    return word in _AUXILIARIES


def is_finite(word: str) -> bool:
    """Whether a word is a verb that can follow a subject."""
    return word in _AUXILIARIES or word in _PRESENT or is_past(word)


def is_transitive_past(word: str) -> bool:
    """Whether a word is a past that can be turned into a passive."""
    return is_past(word) and word not in _LISTS["no_passive"] and word not in _AUXILIARIES


def participle(past: str) -> str:
    return _PARTICIPLE.get(past, past)


def active(participle: str) -> str | None:
    """Return the past of a participle; None for a word that is none."""
    if participle in _ACTIVE:
        return _ACTIVE[participle]
    # A regular verb has one form for both; "went" is a past, but no participle.
    if is_past(participle) and participle not in _PARTICIPLE:
        return participle
    return None


def base_to_past(base: str) -> str:
    if base in _PAST:
        return _PAST[base]
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2:-1] not in "aeiou":
        return base[:-1] + "ied"
    if base in _LISTS["doubled"]:
        return base + base[-1] + "ed"
    return base + "ed"


def base_to_third_person(base: str) -> str:
    if base in ("have", "do", "go"):
        return {"have": "has", "do": "does", "go": "goes"}[base]
    if base.endswith("y") and base[-2:-1] not in "aeiou":
        return base[:-1] + "ies"
    if base.endswith(("s", "x", "z", "ch", "sh")):
        return base + "es"
    return base + "s"


_PRESENT = frozenset(form for base in _LISTS["present"] for form in (base, base_to_third_person(base)))
"""Verbs that no ending tells, which follow a subject in the present."""
