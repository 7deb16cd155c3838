"""Units of an answer that may carry its fact: values, words, and runs of characters of scripts without spaces.

A unit is never a part of a date, number or address (`atwu.data.values`). Of each is known whether the question says it, whether
it has content, and how frequent it is in general text. `candidate_spans` joins the units that may carry the fact into phrases:
"multiple sclerosis", "Walter B. Hollis", "Dr. Jane A. Roe, Ph.D."; `fact_candidates` adds the frequent words of short answers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import regex

from atwu._file_reading import read_yaml
from atwu.data.english_verbs import active, progressive, verb_forms
from atwu.data.folded_words import FoldedWord, folded_words, join
from atwu.data.languages import detect_language, is_caseless, is_unspaced, listed_frequency, polar_word, word_frequency
from atwu.data.question_types import follows, question_type, word_list
from atwu.data.schema import Example, Span, merged_spans
from atwu.data.values import find_values

FUNCTION_WORD = 6.0
"""Frequency (Zipf scale) from which a word has no content: "was" (6.8) and "after" (6.0), but not "called" (5.5)."""
RARE_WORD = 5.0
"""Frequency below which a word that the question does not say may carry the fact: "sclerosis" (3.3) and "dollar" (4.7), but not
"known" (5.4) or "place" (5.6)."""
SHORT_ANSWER = 25
"""Words up to which every word of content may carry the fact, however frequent: "dark green", "lost his job". Longer answers
have too many of them."""
STEM, ENDING = 4, 3
"""Minimum length that two words of one stem share, and maximum length of what follows it, in letters: "Japan" and "Japanese".
Behind a stem of `LONG_STEM` letters it may be one letter longer."""
LONG_STEM = 6
_ADDRESSES = ("email", "url", "iban", "ip", "phone", "version")
_COMPLETE = ("money", "percent", "quantity", "date", "year", "time")
"""Kinds of values that are a phrase of their own before a word ("415,000 euros plus", but not "2 cats") and, but for a year,
behind one; so are number words behind one, but not digits ("pier 3")."""
_INITIALS = r"(?:\p{Lu}\p{Ll}?\.){2,}|\p{Lu}\."
_TITLE = r"\p{Lu}\p{L}{1,3}\.(?=\s+\p{Lu})"
"""An abbreviation before a name; before the end of a sentence it is a short word."""
_CAPITALIZED = r"\p{Lu}[\p{L}\p{M}]*(?:['’-]\p{L}[\p{L}\p{M}]*)*"
_PARTICLE = (
    r"&|of the|of|von der|von|van der|van den|van|der|den|de la|de|del|della|da|dos|di|du|la|le|al|el|bin|ibn|y|e"
)
_NAME = regex.compile(
    rf"(?<![\w-])(?:{_INITIALS}|{_TITLE}|{_CAPITALIZED})"
    rf"(?:\s+(?:(?:{_PARTICLE})\s+)?(?:{_INITIALS}|{_TITLE}|{_CAPITALIZED})|,\s(?:{_INITIALS})|,\s(?:Jr|Sr)\b\.?)*"
)
"""A run of capitalized words, initials and abbreviations, such as "Dr. Jane A. Roe, Ph.D." and "Washington, D.C."."""
_SIGNS = regex.compile(
    r"`[^`\n]+`"
    r"|(?<![\w&])\p{L}{1,3}(?:\+\+?|#)(?![\w+#])"
    r"|(?<![\w&])(?:\p{Lu}|AB|0)[-−](?=[.,;:!?)]|\s*$|\s+\p{Ll}{3})(?!\s+(?:and|und|oder|bis)\b)"
    r"|(?<=[«“„\"])[^\s«»“”\"]*(?:[^\W\d]\d|\d[^\W\d]|[^\w\s'’.-])[^\s«»“”\"]*(?=[»”“\"])"
    r"|\w+(?:\s?=\s?[\w\p{No}^*/+.()-]*[\w\p{No})])+"
    r"|(?<!\S)--?[A-Za-z][\w-]*(?:=\S*\w)?|\w+\[[^\]\n]{1,40}\]"
    r"|(?<![\w.,:])\d+(?:(?:\(\w{1,3}\))+|(?::\d+)+|(?:[°'′]\d+)+(?:[\"″]|['′](?= ?[NSEW]\b))?(?: ?[NSEW]\b)?)(?![\w:])"
    r"|(?<!\S)(?![«“„\"])[^\s`]*(?:\p{L}\d|\d\p{L}|[_^\\@#={}<>|~]|\w[!$%&*+/]\w)[^\s`]*(?<![.,;:!?)'\"»”’])"
)
"""Code in backticks, a letter with a sign ("AB+", "C++"), a password in quotes, a formula, a flag ("--no-color"), a type
("dict[str, int]"), a clause, score, height or position ("14(b)", "3:1", "6'2\""), or a run of signs such as a password: one
unit."""
_BEFORE_CONTENT = ("a", "an", "the", "his", "her", "its", "their", "my", "your", "our", "no", "to")
"""Words behind which an English verb is a noun or what is to be done: "after a fall", "agreed to return the shares"."""
_MODALS = ("will", "would", "can", "could", "may", "might", "must", "shall", "should")
_BE = ("am", "is", "are", "was", "were", "be", "been")
_TWO = {"es": "dos", "it": "due"}
"""Number words that are other words elsewhere, so that `find_values` leaves them out."""
_VERB_FIRST = ("ar",)
"""Languages whose sentences begin with their verb."""
_COMPLETED = "了"
"""The Chinese mark of a completed act, which follows a verb, but is no part of its object."""
_MAY_END = "的是"
"""Chinese framing words of one character that end a run."""
_LONGEST_ELISION = 2
"""Letters of a word that has lost its last one before an apostrophe: "c'", "qu'"."""
_JOINS = ("", " ", "-", "–", "'s ", "’s ", "' ", "’ ")
"""What is between two units of one phrase: "eighty-one", "grandfather's collection"."""
_SENTENCE_END = ".!?:。！？：\n"
_LISTS: Mapping[str, Any] = read_yaml(Path(__file__).with_name("framing_words.yaml"))
_MEASURES, _APART, _ALONE = (frozenset(_LISTS[name].split()) for name in ("measures", "apart", "alone"))
_FRAMING_VERBS = _LISTS["verbs"].split()
_VERB_FORMS = frozenset(form for verb in _FRAMING_VERBS for form in verb_forms(verb))
"""Forms of English framing verbs but the one in -ing."""
_PROGRESSIVES = frozenset(progressive(verb) for verb in _FRAMING_VERBS)
"""Their forms in -ing, which are verbs behind a form of "be" only: "before serving"."""
_PARTICIPLES = frozenset(form for form in _VERB_FORMS if active(form))


@dataclass(frozen=True, slots=True)
class Unit:
    start: int
    end: int
    """Half-open character range in the answer."""
    asked: bool
    """Whether the question says it, in some inflection; in a text, whether its subject does."""
    inflected: bool
    """Whether the question says another word of its stem only."""
    content: bool
    """Whether it is more than a function word."""
    rare: bool
    """Whether it is a value, a name inside a sentence, or a word below `RARE_WORD`."""
    framing: bool = False
    """Whether it introduces or measures a fact: "diagnosed", "year"."""

    @property
    def span(self) -> Span:
        return self.start, self.end


@functools.lru_cache(maxsize=4096)  # blanks, options and subjects of a row read its units again and again
def answer_units(row: Example) -> tuple[Unit, ...]:
    """Split an answer into units, in order."""
    conversation = " ".join(message.content for message in row.messages)
    said_before = conversation or row.subject or ""
    asked_words = folded_words(said_before)
    asked_values = {value.canonical for value in find_values(said_before)}
    every_value = find_values(row.answer)
    # Number words such as "one" and "first" stay words, whose neighbours may belong to their phrase.
    values = [
        value
        for value in every_value
        if value.kind in _ADDRESSES or any(char.isdecimal() for char in row.answer[value.start : value.end])
    ]
    units: list[Unit] = []
    for match in _SIGNS.finditer(row.answer):
        start, end = match.span()
        # Signs are a unit if they are more than a value, and cut none.
        beside = [(value.start, value.end) for value in values if value.start < end and start < value.end]
        more = all(start <= first and last <= end and (first, last) != (start, end) for first, last in beside)
        if more and not is_unspaced(match.group()):
            units.append(Unit(start, end, match.group() in said_before, False, True, True))
    for value in values:
        if not _overlaps((value.start, value.end), units):
            units.append(Unit(value.start, value.end, value.canonical in asked_values, False, True, True))
    # What a value or a run of signs covers is no word of its own: "May" in "3 May 2019".
    words = [word for word in folded_words(row.answer) if not _overlaps((word.start, word.end), units)]
    # "one" is a pronoun more often than a number.
    numbers = {value.start for value in every_value if value.kind == "number" and value.canonical != "1"}
    language = detect_language(f"{conversation} {row.answer}")
    numbers |= {word.start for word in words if word.text == _TWO.get(language)}
    units += _word_units(row.answer, [word for word in words if not word.unspaced], asked_words, language, numbers)
    units += _unspaced_units([word for word in words if word.unspaced], asked_words)
    units.sort(key=lambda unit: unit.start)
    if len(units) > 1 and row.answer[units[1].start] in "`-":  # "Run `git log`", "Use --all"
        units[0] = replace(units[0], framing=True)
    # A verb before the subject of the question: "تعاني ليلى من السكري".
    verb_first = language in _VERB_FIRST and len(units) > 2 and units[1].asked and units[1].content
    if verb_first and not units[0].asked and question_type(row) in (None, "place", "amount", "time"):
        units[0] = replace(units[0], framing=True)
    return tuple(units)


def is_predicate(row: Example, part: Span, units: Sequence[Unit]) -> bool:
    """Return whether a part of an answer may be the verb of its first sentence ("Ada will stir a spoonful of jam into it.").

    It is one word in lower case, the first one that the question does not say, right behind a pronoun, an auxiliary, or a name
    or a noun with its article that the question says.
    """
    word = row.answer[part[0] : part[1]]
    before = [unit for unit in units if unit.end < part[0]]
    if not (word.islower() and word.isalpha()) or row.answer[part[0] - 1] != " ":
        return False
    if any(unit.content and not (unit.asked or unit.framing) for unit in before):
        return False
    # The subject stands before an auxiliary: "Ada will stir".
    if before and row.answer[before[-1].start : before[-1].end] in _MODALS:
        before.pop()
    return bool(before) and _is_subject(row, before[-1])


def _is_subject(row: Example, unit: Unit) -> bool:
    subject = row.answer[unit.start : unit.end]
    if subject.lower() in word_list(row, "pronoun"):
        return True
    if not unit.asked or not unit.content:
        return False
    return not subject[0].islower() or follows(row, unit.start, word_list(row, "article"), directly=True)


def candidate_spans(row: Example) -> tuple[Span, ...]:
    """Return the phrases that may carry the fact, by rule: rare units that the question does not say.

    Without any, those of its further words that are not a mere inflection of the question's; then any further word. Framing
    words count where nothing else does; a yes or no that answers the question counts always.
    """
    return _candidates(row, answer_units(row))


@functools.lru_cache(maxsize=4096)
def fact_candidates(row: Example) -> tuple[Span, ...]:
    """Return the same phrases, with the frequent words of a short answer to a question: "It is painted dark green."

    What a user asks to forget is rather marked with a word too many than without the word that matters. Where answers of a
    model are compared with each other, the frequent words would agree by chance (`candidate_spans`).
    """
    units = answer_units(row)
    if len(units) > SHORT_ANSWER or not row.messages:
        return candidate_spans(row)
    return _candidates(row, [replace(unit, rare=unit.rare or unit.content) for unit in units])


def _candidates(row: Example, units: Sequence[Unit]) -> tuple[Span, ...]:
    said = polar_word(row)
    if said is not None:
        units = [unit for unit in units if unit.start >= len(said)]
    unasked = [unit for unit in units if not unit.asked]
    new = [unit for unit in unasked if not unit.inflected and unit.content]
    rare = [unit for unit in new if unit.rare and not unit.framing]
    content = [unit for unit in unasked if unit.content]
    if said is not None:
        # What follows the yes or no explains it; only its rare words are part of the fact, too.
        return ((0, len(said)), *phrases(row, rare))
    return phrases(row, rare or new or content or unasked or units)


def phrases(row: Example, units: Sequence[Unit]) -> tuple[Span, ...]:
    """Join units that follow each other directly, and complete names of which a part is among them."""
    every = answer_units(row)
    spans = [unit.span for unit in (*units, *_companions(row.answer, units, every))]
    said = " ".join((*(message.content for message in row.messages), row.subject or ""))
    # "Which court" does not say the beginning of "Court of Session".
    asked = [unit for unit in every if unit.asked and row.answer[unit.start : unit.end] in said]
    for match in _NAME.finditer(row.answer):
        start, end = _without_function_word(match.span(), row.answer)
        # A name ends before a unit that it would cut, such as an account number that begins with capitals.
        cut = [len(row.answer[: unit.start].rstrip()) for unit in every if start < unit.start < end < unit.end]
        end = min([end, *cut])
        inside = [span for span in spans if start <= span[0] and span[1] <= end]
        if not inside:
            continue
        first = min(inside)[0]
        # Words of the question at its beginning are no part of the fact, but titles and initials are.
        if any(start <= unit.start and unit.end <= first for unit in asked):
            start = first
        spans.append((start, end))
    joined: list[Span] = []
    for start, end in merged_spans(spans):
        # Spans are in order, so each can only belong to the one before it.
        if joined and row.answer[joined[-1][1] : start] in _JOINS and not begins_phrase(row, start):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)


def _companions(answer: str, units: Sequence[Unit], every: Sequence[Unit]) -> Iterator[Unit]:
    """Yield further units of the same phrases: unasked content directly before a unit ("bald eagle"), what is behind a hyphen,
    and measures behind a number or a noun ("eleven years", "match days")."""
    chosen = {unit.span for unit in units}
    numbers = {value.end for value in find_values(answer) if value.kind == "number"}
    # From the end, so that a chain is followed to its beginning: "fully grown bald eagle".
    for before, unit in reversed([*itertools.pairwise(every)]):
        between = answer[before.end : unit.start]
        counted = before.span in chosen and between == " "
        counted &= before.end in numbers or not answer[before.start].isupper()
        # The list has all languages: "an" is a measure in French only.
        measure = unit.framing and answer[unit.start : unit.end].lower() in _MEASURES
        if counted and measure and unit.span not in chosen:
            chosen.add(unit.span)
            yield unit
        hyphen = between == "-" and not (before.asked and unit.asked)
        if before.span not in chosen and unit.span in chosen:
            word = answer[unit.start].islower()
            said = before.asked or before.inflected or before.framing
            if hyphen or (word and between == " " and before.content and not said):
                chosen.add(before.span)
                yield before
        elif unit.span not in chosen and before.span in chosen and hyphen:
            chosen.add(unit.span)
            yield unit


def _without_function_word(name: Span, answer: str) -> Span:
    """Return a name without what is no part of it at its beginning: "The Pyrenees", "In Paris", "C'est Paul Noir"."""
    words = list(folded_words(answer[name[0] : name[1]]))
    if not words:
        return name
    first = words.pop(0)
    end = name[0] + first.end
    elided = first.end <= _LONGEST_ELISION and answer[end : end + 1] in ("'", "’")
    # The first word of "D'Angelo" is a part of the name, that of "C'est Paul Noir" is none.
    if elided and answer[end + 1 : end + 2].isupper():
        return name
    if not elided and word_frequency(first.text, name=False) < FUNCTION_WORD:
        return name
    if elided and words and word_frequency(words[0].text, name=False) >= FUNCTION_WORD:
        words.pop(0)
    if not words:
        return name[1], name[1]
    return name[0] + words[0].start, name[1]


def _overlaps(span: Span, units: Sequence[Unit]) -> bool:
    return any(unit.start < span[1] and span[0] < unit.end for unit in units)


def _word_units(
    answer: str,
    words: Sequence[FoldedWord],
    asked_words: Sequence[FoldedWord],
    language: str,
    numbers: Collection[int],
) -> Iterator[Unit]:
    """Yield words; `numbers` are the positions of number words, which have content, however frequent ("two")."""
    forms = {form for word in asked_words for form in word.forms}
    names = {form for word in asked_words if word.capital for form in word.forms}
    inflections: set[str] = set()
    if language == "en":
        inflections = inflections.union(*(_inflections(word.text) for word in asked_words))
    for word, following in itertools.zip_longest(words, words[1:]):
        asked = not forms.isdisjoint(word.forms)
        stems = names if word.capital else forms
        inflected = not asked and any(_same_stem(word.text, stem) for stem in stems)
        inflected |= not asked and word.text in inflections
        # Lists have accents: "für" is frequent, "fur" is not.
        spelling = answer[word.start : word.end].casefold()
        frequency = listed_frequency(word.text, language)
        if spelling != word.text:
            frequency = max(frequency, listed_frequency(spelling, language))
        before = answer[: word.start].rstrip(" \"'“‘(«")
        inside_sentence = bool(before) and before[-1] not in _SENTENCE_END
        name = word.capital and inside_sentence
        content = frequency < FUNCTION_WORD or name or word.start in numbers
        counts = word.start in numbers and following is not None and following.text in _MEASURES
        # Without capitals nothing tells a name that is also a word, such as the Arabic one of Tyre ("pictures").
        rare = name or counts or frequency < RARE_WORD or is_caseless(word.text)
        # Nouns have capitals in German: "Jahren" is no name.
        framing = word.text in _framing_words(language) and (language == "de" or not name)
        preceding = before.rpartition(" ")[2].lower()
        if language == "en" and preceding in _BEFORE_CONTENT:
            framing &= word.text not in _VERB_FORMS
        if language == "en" and preceding in _BE:
            framing |= word.text in _PROGRESSIVES
            framing |= following is not None and following.text in _PARTICIPLES  # "is best known"
        yield Unit(word.start, word.end, asked, inflected, content, content and rare, framing)


@functools.lru_cache(maxsize=4096)
def _inflections(verb: str) -> frozenset[str]:
    """Return what may be the forms of an English verb, also of a word that is none."""
    forms = verb_forms(verb) | {progressive(verb), verb + verb[-1] + "ing"}
    # "owns" and "owned"
    if verb.endswith("s") and not verb.endswith("ss"):
        forms |= verb_forms(verb[:-1])
    return forms


def _same_stem(one: str, other: str) -> bool:
    """Whether two words have one stem: they agree in `STEM` letters and differ in `ENDING` at their ends, at most."""
    shared = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        shared += 1
    return shared >= STEM and max(len(one), len(other)) - shared <= ENDING + (shared >= LONG_STEM)


def _unspaced_units(words: Sequence[FoldedWord], asked_words: Sequence[FoldedWord]) -> Iterator[Unit]:
    """Yield runs of characters that the question says, and runs that it does not.

    A character is said by the question if it and a neighbour stand there side by side.
    """
    asked = [word.text for word in asked_words if word.unspaced]
    pairs = set(itertools.pairwise(asked))
    run: list[FoldedWord] = []
    said_run = behind_asked = False
    for place, word in enumerate(words):
        beside = [words[other] for other in (place - 1, place + 1) if 0 <= other < len(words)]
        ordered = (sorted((word, other), key=lambda character: character.start) for other in beside)
        said = any((before.text, after.text) in pairs for before, after in ordered if before.end == after.start)
        # A run ends at a gap, where the question stops or begins to say it, and at the mark of a completed act.
        ends = run and (run[-1].end != word.start or said != said_run or _COMPLETED in (run[-1].text, word.text))
        if ends:
            yield from _run_units(run, said_run, behind_asked=behind_asked, of_text=not asked)
            behind_asked = said_run and run[-1].end == word.start
            run = []
        run.append(word)
        said_run = said
    if run:
        yield from _run_units(run, said_run, behind_asked=behind_asked, of_text=not asked)


def _run_units(run: Sequence[FoldedWord], asked: bool, *, behind_asked: bool, of_text: bool) -> Iterator[Unit]:
    """Yield a run of characters, without the framing words at its ends and divided at those inside: "消防员" of "是一名消防员".

    Args:
        behind_asked: whether what the question says ends where the run begins.
        of_text: whether there is neither question nor subject, so that the run has its subject inside.
    """
    first, last = 0, len(run)
    if not asked and join(run) in _ALONE:
        first = last
    elif not asked:
        first = _framing_length(run)
        last -= _framing_length(run[first:], at_end=True)
    cuts = [(0, first, True), (first, last, False), (last, len(run), True)]
    if not asked:
        pattern = _framing_inside(behind_asked, of_text)
        inside = [
            match.span() for match in pattern.finditer(join(run)) if first <= match.start() and match.end() <= last
        ]
        bounds = [first, *itertools.chain.from_iterable(inside), last]
        cuts[1:2] = [(start, end, place % 2 == 1) for place, (start, end) in enumerate(itertools.pairwise(bounds))]
    for start, end, framing in cuts:
        if start < end:
            yield Unit(run[start].start, run[end - 1].end, asked, False, True, True, framing)


@functools.cache
def _framing_inside(behind_asked: bool, of_text: bool) -> regex.Pattern[str]:
    """Return a pattern of framing words inside a run: Chinese ones of two characters or more, Japanese particles behind
    characters for words, and Japanese verbs behind a particle."""
    chinese = "|".join(sorted((word for word in _framing_words("zh") if len(word) > 1), key=len, reverse=True))
    verbs = "|".join(_LISTS["japanese_verbs"].split())
    copula = r"(?:でした|です|である|だった|だ)$"
    noun = r"[\p{Han}\p{Katakana}ー]"
    lead = rf"^[はをにでとのも](?={noun})"
    if behind_asked:
        lead = rf"^は|{lead}"
    if of_text:
        chinese += "|(?<=..)[是在](?=.)"
    # "が" is also inside of names: 自由が丘.
    predicate = rf"(?:として|から|まで|[をにでとがへ])(?:{verbs})\p{{Hiragana}}*$"
    return regex.compile(
        rf"{lead}|{predicate}|(?<=.){copula}|(?<={noun})(?:として|から|まで|[はをにでとへ])(?=.)|{chinese}"
    )


def _framing_length(run: Sequence[FoldedWord], *, at_end: bool = False) -> int:
    """Return the number of characters of framing words with which a run begins, or ends."""
    # The longest first, so that "出生于" is taken whole.
    words = sorted(_framing_words("zh") | _framing_words("ja"), key=len, reverse=True)
    if at_end:
        # "和" is a conjunction before a name, but may end one.
        words = [word for word in words if len(word) > 1 or word in _MAY_END]
    text = join(run)
    length = 0
    while length < len(text):
        if at_end:
            rest = text[: len(text) - length]
            longest = next((len(word) for word in words if rest.endswith(word)), 0)
        else:
            longest = next((len(word) for word in words if text.startswith(word, length)), 0)
        if not longest:
            return length
        length += longest
    return length


@functools.cache
def _framing_words(language: str) -> frozenset[str]:
    """Return the framing words of a language, folded; none for a language without a list."""
    words = [word for name in ("framing", "grammar") for word in _LISTS[name].get(language, "").split()]
    if language == "en":
        words += _VERB_FORMS
    return frozenset("".join(folded.text for folded in folded_words(word)) for word in words)


def is_adverb_of_time(text: str) -> bool:
    """Return whether a text is an adverb that no phrase contains: "daily"."""
    return text.lower() in _APART


def begins_phrase(row: Example, start: int) -> bool:
    """Return whether a word does not belong to the phrase before it: "twice" in "apixaban twice", "fee" in "300 euros fee",
    "Dr." in "sees Dr. Holt"."""
    answer = row.answer
    if is_adverb_of_time(answer[start:].partition(" ")[0].rstrip(_SENTENCE_END + ",;")):
        return True
    values = find_values(answer)
    complete = [value for value in values if value.kind in _COMPLETE]
    begins = any(value.start == start and value.kind != "year" for value in complete)
    begins |= answer[start : start + 1].isalpha() and any(value.start == start for value in values)
    follows_value = any(value.end == start - 1 for value in complete)
    # Only a blank divides phrases; "bird-watcher" and "mc^2" stay whole.
    if answer[start - 1 : start] != " ":
        return False
    if begins or follows_value:
        return True
    units = answer_units(row)
    before = next((unit.span for unit in units if unit.end == start - 1), None)
    if before is None:
        return False
    if answer[before[0] : before[1]].lower() in _MEASURES:
        return True
    return not answer[start].islower() and is_predicate(row, before, units)
