"""Forms of English verbs, as far as rules of syntax need them: irregular ones from a list, others by their ending."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml


@dataclass(frozen=True, slots=True)
class _Verbs:
    """The lists of `english_verbs.yaml`, and the forms of irregular verbs by each other."""

    past: Mapping[str, str]
    """Base -> past."""
    participle: Mapping[str, str]
    """Past -> participle."""
    active: Mapping[str, str]
    """Participle -> past."""
    auxiliaries: frozenset[str]
    present: frozenset[str]
    no_passive: frozenset[str]
    doubled: frozenset[str]
    forms: Mapping[str, frozenset[str]]
    """Form of an irregular verb -> all of them."""


@functools.cache
def _verbs() -> _Verbs:
    lists: dict[str, Any] = read_yaml(Path(__file__).with_name("english_verbs.yaml"))
    forms = [verb.split("/") for verb in lists["irregular"].split()]
    present = {form for base in lists["present"] for form in (base, base_to_third_person(base))}
    return _Verbs(
        {base: past for base, past, _ in forms},
        {past: participle for _, past, participle in forms},
        {participle: past for _, past, participle in forms},
        frozenset(lists["auxiliaries"]),
        frozenset(present),
        frozenset(lists["no_passive"]),
        frozenset(lists["doubled"]),
        {form: frozenset(verb) for verb in forms for form in verb},
    )


def is_past(word: str) -> bool:
    """Whether a word is a past or, for most verbs, a participle."""
    return word in _verbs().participle or (word.endswith("ed") and len(word) > 4 and word.islower())


def verb_forms(form: str) -> frozenset[str]:
    """Return the forms of the verb of an irregular form or a base, but the one in -ing: "give", "gives", "gave", "given"."""
    forms = _verbs().forms.get(form, frozenset((form, base_to_past(form))))
    return forms | {base_to_third_person(form)}


def progressive(base: str) -> str:
    """Return the form of a verb in -ing."""
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    if base in _verbs().doubled:
        return base + base[-1] + "ing"
    return base + "ing"


def is_auxiliary(word: str) -> bool:
    return word in _verbs().auxiliaries


def is_finite(word: str) -> bool:
    """Whether a word is a verb that can follow a subject."""
    return word in _verbs().auxiliaries or word in _verbs().present or is_past(word)


def is_transitive_past(word: str) -> bool:
    """Whether a word is a past that can be turned into a passive."""
    return is_past(word) and word not in _verbs().no_passive | _verbs().auxiliaries


def participle(past: str) -> str:
    return _verbs().participle.get(past, past)


def active(participle: str) -> str | None:
    """Return the past of a participle; None for a word that is none."""
    if participle in _verbs().active:
        return _verbs().active[participle]
    if is_past(participle) and participle not in _verbs().participle:
        return participle
    return None


def base_to_past(base: str) -> str:
    if base in _verbs().past:
        return _verbs().past[base]
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2:-1] not in "aeiou":
        return base[:-1] + "ied"
    if base in _verbs().doubled:
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
