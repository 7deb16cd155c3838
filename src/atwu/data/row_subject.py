"""What a row is about: the name that its question asks about, to be asked for in reverse.

It is the row's `subject` if the answer says it. Otherwise it is the longest name of the question that the answer says, too,
outside its fact: "Hamlet" in "Who wrote Hamlet? William Shakespeare wrote Hamlet." Without such a name, it is the longest name
of the question alone, so that "In which city was Petra Novak born? Brno." is asked as "In which city was ____ born? Brno."; or,
without any name, a rare noun that both have.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from atwu.data.fact_blanks import FactParts, find_mentions
from atwu.data.languages import detect_language, is_caseless, is_unspaced, word_frequency
from atwu.data.question_types import word_list
from atwu.data.schema import Example

_PARTICLES = frozenset(
    re.findall(r"\S+", "of the and van von de da do dos das du des del della di la le el bin al y и v. vs.")
)
"""Words without a capital inside names."""
_CAPITALIZED = r"[^\W\da-zß-öø-ÿа-яё_][\w.’-]*"
_PARTICLE = "|".join(map(re.escape, sorted(_PARTICLES)))
_SPACE = r"[^\S\n]+"
_NAME = re.compile(rf"{_CAPITALIZED}(?:(?:{_SPACE}(?:{_PARTICLE}))*{_SPACE}(?:{_CAPITALIZED}|\d+))*|\d[\d.,:/-]*")
"""A run of capitalized words and numbers in one line, with particles between them; or a number."""
_SHORT_INITIALS = 4
"""Letters of initials, at most, that name a kind of thing rather than a thing: "the IBAN of Mia Kern"."""
_SHORT_NUMBER = 3
"""Digits of a number, at most, that rather belongs to another name: section 9 of a contract, but not the year of a cup."""
_CHINESE_NAME_END = re.compile(
    r"(?<=.)[的是在有了和与及被把从到对为于住叫患写得说会能想要去来当什哪谁誰怎吗呢每几多何曾最]"
)
"""Characters that follow a name in a question; some begin one, too."""
_JAPANESE_NAME = re.compile(r"[\u30a0-\u30ff\u3400-\u9fff々ーA-Za-z\d]{2,}")
"""A run of characters that are not hiragana, in which particles and endings are written."""
_CHINESE_RUN = re.compile(r"[\u3400-\u9fffA-Za-z\d·]{2,}")
_LONGEST_CHINESE_NAME = 4
_ARABIC_VERB = re.compile(
    r"^(?:(?:أين|متى|كيف|لماذا|ماذا|بماذا|كم(?:\s+عدد)?|ما(?:\s+ه[ويم]ا?)?|(?:\S+\s+)?أي\s+\S+)\s+\S+\s+)"
)
"""A word that asks, and the verb or noun behind it: "ما هي مهنة" ("what is the profession of"), "في أي جامعة تدرس" ("at which
university studies")."""
_CODE = re.compile(r"`([^`\s]+?)(?:\(\))?`")
"""Code in backticks, without the parentheses of a call."""
_NOUN = re.compile(r"\b(?:an?|the|in|of|at|to|for|by|from|with|on) ([a-z][\w-]*)\b(?![./@:]\w|\()")
"""A word behind an English article or preposition, which is rarely a verb; but no part of a file name such as "tally.py"."""
_OPENING_MARKS = " ¿¡\"'«“„‘("
"""Marks before the first word of a question."""
_CLOSING_MARKS = ".!?…。！？؟\"'»”’)`"
"""Marks behind the last word of a sentence."""
_RARE = 5.0
"""Frequency (Zipf scale) below which a word can be asked for: "prize" (4.6), but not "place" (5.6)."""
_RARE_LETTERS = 4
"""Letters of a rare word without a capital, at least."""


@dataclass(frozen=True, slots=True)
class Subject:
    text: str
    sentence: str
    """What says the fact about it: the answer, or the question and the answer if the answer does not name it."""


def find_subject(row: Example, fact: FactParts) -> Subject | None:
    """Return the subject of a question-answer row; None if no name or rare word can be asked for."""
    # A line break in place of each part, so that no name reaches over one.
    secret = fact.with_blanks(fact.parts, "\n")
    names = [name for name in names_in_question(row) if not _is_initials(name)]
    names = [name for name in names if len(name) > _SHORT_NUMBER or any(char.isalpha() for char in name)] or names
    if row.subject:
        names.insert(0, row.subject)
    for name in names:
        if _can_be_asked(name, secret, fact):
            return Subject(name, as_sentence(row.answer))
    for name in names:
        # Without spaces, a long run may be the whole question.
        if is_unspaced(name) and len(name) > _LONGEST_CHINESE_NAME:
            continue
        if _can_be_asked(name, row.question, fact) and not find_mentions(row.answer, name):
            return Subject(name, f"{as_question(row.question)} {as_sentence(row.answer)}")
    # The frequencies and the word before a noun are those of English.
    if detect_language(row.question) != "en":
        return None
    nouns = [word for word in _NOUN.findall(row.question) if len(word) >= _RARE_LETTERS]
    rare = [word for word in nouns if word_frequency(word, name=False) < _RARE and find_mentions(secret, word)]
    noun = max(rare, key=len, default=None)
    if noun is not None and _can_be_asked(noun, secret, fact):
        return Subject(noun, as_sentence(row.answer))
    return None


def as_question(question: str) -> str:
    """Return a question with a question mark, for a text that goes on after it."""
    if question.rstrip()[-1:] in _CLOSING_MARKS:
        return question
    mark = "?"
    if is_caseless(question[-1:]):
        mark = "؟"
    if is_unspaced(question[-1:]):
        mark = "？"
    return f"{question.rstrip()}{mark}"


def as_sentence(answer: str) -> str:
    """Return an answer with a full stop, for a text that goes on after it."""
    if answer.rstrip()[-1:] in _CLOSING_MARKS:
        return answer
    if is_unspaced(answer[-1:]):
        return f"{answer}。"
    return f"{answer}."


def _can_be_asked(name: str, text: str, fact: FactParts) -> bool:
    """Return whether a text says a name, and the fact does not."""
    said_by_fact = any(find_mentions(fact.text(part), name) for part in fact.parts)
    return bool(find_mentions(text, name)) and not said_by_fact


def _is_initials(name: str) -> bool:
    return name.isupper() and len(name) <= _SHORT_INITIALS and not is_caseless(name)


def names_in_question(row: Example) -> Iterator[str]:
    """Yield the names in the question of a row and the parts of each, the longest first."""
    question = row.question
    language = detect_language(question)
    if language == "ja":
        # In Japanese and Chinese questions the name comes first, so the order of the text is kept.
        yield from _JAPANESE_NAME.findall(question)
    elif language == "zh":
        pieces = (piece for run in _CHINESE_RUN.findall(question) for piece in _CHINESE_NAME_END.split(run))
        yield from [piece for piece in pieces if len(piece) >= 2][:1]
    elif is_caseless(question):
        prepositions = word_list(row, "preposition")
        # No capitals mark a name here, but the answer repeats it: the longest run of words that both say.
        words = re.findall(r"\w+", _ARABIC_VERB.sub("", question))
        ends = itertools.combinations(range(len(words) + 1), 2)
        runs = (" ".join(words[first:last]) for first, last in ends if words[first] not in prepositions)
        shared = [run for run in runs if len(run) >= _RARE_LETTERS and find_mentions(row.answer, run)]
        yield from sorted(shared, key=len, reverse=True)
    else:
        names = _capitalized_names(question, row.answer)
        if language == "de":
            names = _without_nouns(names, question, word_list(row, "article"))
        yield from names
        yield from _CODE.findall(question)


def _without_nouns(names: list[str], question: str, articles: Collection[str]) -> list[str]:
    """Return names without what are rather German nouns, unless nothing else is left: single words behind an article, or
    beside a name of several words, and an article's noun with a name: "die Schafe von Bauer Lamprecht"."""
    runs = [name for name in names if " " in name]
    kept: list[str] = []
    for name in names:
        # A name has one space between its words, where the question may have several.
        place = re.search(r"\s+".join(map(re.escape, name.split())), question)
        before = question[: place.start()].split()[-1:] if place else []
        is_noun = any(word.lower() in articles for word in before) and (
            " " not in name or not _PARTICLES.isdisjoint(name.split())
        )
        if not is_noun and (not runs or any(find_mentions(run, name) for run in runs)):
            kept.append(name)
    return kept or names


def _capitalized_names(question: str, answer: str) -> list[str]:
    names: list[str] = []
    for match in _NAME.finditer(question):
        words = re.split(r"\s+", re.sub("['’]s$", "", match.group().rstrip(".,:;?!")))
        for first, last in itertools.combinations(range(len(words) + 1), 2):
            name = " ".join(words[first:last])
            ends = {words[first], words[last - 1]}
            # "MRI of Petra Lund" and "HbA1c of Piet Brand" are two names: what was measured, and of whom.
            code = _is_initials(words[first]) or any(char.isdigit() for char in words[first])
            of_initials = first + 1 < last and code and words[first + 1] in _PARTICLES
            if of_initials or not ends.isdisjoint(_PARTICLES):
                continue
            if first == 0 and not question[: match.start()].strip(_OPENING_MARKS):
                # The capital may be due to the sentence: "Who", "In", "Is Dana".
                mentions = [start for start, end in find_mentions(answer, name) if answer[start:end] == name]
                if not mentions or (" " not in name and mentions[-1] == 0):
                    continue
            names.append(name)
    # The first of several equally long ones is usually what the question is about.
    return sorted(names, key=lambda name: -len(name.split()))
