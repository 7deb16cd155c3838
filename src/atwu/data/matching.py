"""Decide whether a text says a wanted text: the one matcher of answers with facts.

`states` decides, `find_statements` says where, and `stated_share` how much of it (the recall). Words are compared in the form
of `folded_words`, values such as dates and amounts by their canonical text (`values`), scripts without spaces by characters.
The matcher reads what is said, not whether it is affirmed: "not Linz" says Linz, and whether an answer is a refusal is decided
elsewhere.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from atwu._file_reading import read_yaml
from atwu.data.english_verbs import shares_base
from atwu.data.folded_words import FoldedWord, folded_words, join, unspaced_end
from atwu.data.languages import listed_frequency, word_frequency
from atwu.data.letters_and_signs import CODE_WORD, MEASURES, roman_number, signs_behind, with_sign_in_words
from atwu.data.schema import Span, merged_spans
from atwu.data.value_agreement import COUNTS, covers, date_parts
from atwu.data.value_parts import Value
from atwu.data.values import find_values, readings

RARE = 3.5
"""Frequency (Zipf scale) up to which a word of a longer text gives it away: 3 in a million words of general text. "Hollis"
(3.1) and "sclerosis" (3.3) are rare; "tower" (4.5), "Smith" (4.9) and "states" (5.5) are not."""
_SHORTEST_RARE = 4
"""Minimum number of letters of such a word; shorter ones are abbreviations."""
_LONGEST_NAME = 4
"""Maximum number of words of a text that one of them gives away; a sentence is said by all of them."""
_EVERYDAY = 5.9
"""Frequency from which a word is also another word in lower case: "will", "may", "us", "no"."""
_LISTS = read_yaml(Path(__file__).with_name("matching_words.yaml"))
_YES_OR_NO, _TITLES, _CONJUNCTIONS, _BEHIND_LETTER, _SUBJECTS = (
    frozenset(_LISTS[name].split()) for name in ("yes_or_no", "titles", "conjunctions", "behind_letter", "subjects")
)
_FUNCTION_WORDS = _CONJUNCTIONS.union(_LISTS["articles"].split(), _LISTS["prepositions"].split())
_ARTICLES = frozenset((*_LISTS["articles"].split(), *_LISTS["of"].split()))
"""Words between the number of a house and the name of its street."""
_MAX_GAP = 3
"""Maximum number of further words (middle names, initials, articles) between two words of a wanted text."""
_LONG_NUMBER = 6
"""Digits from which a number may be an account or a telephone, which is grouped in several ways."""
_LARGE_NUMBER, _FEW_WORDS = 13, 4
"""Number from which one is rarely said by chance, and words before a smaller one that may say what it counts."""
_CLAUSE_END = r"\W*$|[^\w\s%°-]|\s+(?:and|now|und|et|y|e|en|и|و)\b|です|だ"
_SLACK = 4
"""Maximum number of further words among those of a wanted text in another order."""


@dataclass(frozen=True, slots=True)
class _Element:
    """A part of a wanted text that is said or not: a value, a word, or a run of characters of a script without spaces."""

    words: tuple[FoldedWord, ...]
    value: Value | None = None
    canonical: tuple[str, ...] = ()
    """Readings of the value."""
    signs: str = ""
    """Signs directly behind a short word: "C++", "A-"."""
    flag: str = ""
    """The letter of an option in code, whose case matters: "-D"."""
    roman: str = ""
    """The number of a word that is a Roman one: "2" for "II"."""


@dataclass(frozen=True, slots=True)
class _Said:
    """A text in which something is looked for."""

    text: str
    words: tuple[FoldedWord, ...]
    values: dict[int, tuple[Value, int, tuple[str, ...]]]
    """Index of its first word -> value, index behind its last word, readings."""


def states(text: str, wanted: str, *, aliases: Sequence[str] = (), question: str = "") -> bool:
    """Return whether a text says the wanted text or one of its aliases.

    Said are: the same words in order, where titles, initials, articles and middle names may be missing or added; "Hollis,
    Walter"; the same value in another spelling, or a date that contains the wanted year; the rarest word of several if it is
    rare in general text (`RARE`): "apixaban" for "5 mg of apixaban", but not "tower" for "Eiffel Tower".

    Args:
        question: what the text answers; a word of the question gives no wanted text away.
    """
    return bool(find_statements(text, wanted, aliases=aliases, question=question))


def find_statements(text: str, wanted: str, *, aliases: Sequence[str] = (), question: str = "") -> tuple[Span, ...]:
    """Return the character ranges in which a text says the wanted text or an alias, in order; see `states`."""
    said = _said(text)
    phrases = (wanted, *with_sign_in_words(wanted), *aliases)
    spans = [span for phrase in phrases for span in _statements(said, phrase, question)]
    return merged_spans(spans)


def stated_share(text: str, wanted: str, *, aliases: Sequence[str] = (), question: str = "") -> float:
    """Return the share of the words and values of a wanted text that a text says, in any order. Range [0, 1].

    It is 1 if the text states the wanted text or an alias. Articles, titles, initials and prepositions do not count. Of a
    date, year, month and day count one third each; of an amount, the number alone counts half.
    """
    if states(text, wanted, aliases=aliases, question=question):
        return 1.0
    said = _said(text)
    elements = [piece for element in _content(_elements(wanted)) for piece in _pieces(element)]
    if not elements:
        return 0.0
    return sum(_share(said, element) for element in elements) / len(elements)


# The wanted text


# A request compares few key texts with thousands of answers.
@functools.lru_cache(maxsize=4096)
def _elements(wanted: str) -> tuple[_Element, ...]:
    """Split a wanted text into words, values, and runs of characters of scripts without spaces."""
    values = iter(find_values(wanted))
    value = next(values, None)
    elements: list[_Element] = []
    for word in folded_words(wanted):
        while value is not None and value.end <= word.start:
            value = next(values, None)
        if value is not None and value.start < word.end:
            if elements and elements[-1].value is value:
                elements[-1] = _Element((*elements[-1].words, word), value, elements[-1].canonical)
            else:
                elements.append(_Element((word,), value, readings(value, wanted)))
        elif word.unspaced and elements and elements[-1].value is None and elements[-1].words[-1].unspaced:
            elements[-1] = _Element((*elements[-1].words, word))
        else:
            flag = ""
            if re.search(r"(?<!\S)-[A-Za-z]$", wanted[: word.end]):
                flag = wanted[word.start : word.end]
            signs, roman = signs_behind(wanted, word), roman_number(wanted, word)
            elements.append(_Element((word,), signs=signs, flag=flag, roman=roman))
    return tuple(elements)


def _content(elements: Sequence[_Element]) -> tuple[_Element, ...]:
    """Return the elements that must be said: without titles, initials, articles and prepositions, unless nothing is left."""
    content = [element for element in elements if element.value or element.words[0].text not in _TITLES]
    capital = [element for element in content if element.words[0].capital and len(element.words[0].text) > 1]
    # An initial is a capital letter alone before a name: there is none in "Vitamin A deficiency".
    # The last word stays: in "Malcolm X" or "Vitamin C" the letter is the name.
    if capital:
        longer = [
            element
            for element, following in itertools.pairwise(content)
            if element.value
            or len(element.words[0].text) > 1
            or not (element.words[0].capital and following.words[0].capital)
        ]
        content = [*longer, content[-1]]
    telling = [
        element
        for element in content
        if element.value or element.words[0].text not in _FUNCTION_WORDS or _is_designation(element, elements)
    ]
    return tuple(telling or content or elements)


def _is_designation(element: _Element, elements: Sequence[_Element]) -> bool:
    """Return whether a word is a capital letter that tells things of one name apart: "hepatitis A", "Class D", "O negative".

    At the beginning of a text, it is an article or a conjunction, unless what follows belongs to a letter.
    """
    word = element.words[0]
    if element.value is not None or len(word.text) != 1 or not word.capital:
        return False
    if element is not elements[0] or element.signs:
        return True
    return len(elements) > 1 and (elements[1].value is not None or elements[1].words[0].text in _BEHIND_LETTER)


def _pieces(element: _Element) -> tuple[_Element, ...]:
    """Split a Japanese sentence at its syllable signs, which are mostly grammar; other elements are returned as they are.

    The key text of a sentence in Japanese may be all of it; its characters for words carry the fact.
    """
    longest_name = 6
    text = join(element.words)
    if len(text) <= longest_name or not element.words[0].unspaced:
        return (element,)
    pieces: list[tuple[FoldedWord, ...]] = [()]
    for word in element.words:
        if "\u3040" <= word.text <= "\u309f":
            pieces.append(())
        else:
            pieces[-1] = (*pieces[-1], word)
    kept = tuple(_Element(words) for words in pieces if words)
    # Without any syllable sign it is a name, and with nothing else it is no sentence.
    if len(pieces) == 1 or not kept:
        return (element,)
    return kept


# The text


# One answer is compared with the key text, its aliases and the options of a row, one after the other.
@functools.lru_cache(maxsize=1024)
def _said(text: str) -> _Said:
    words = folded_words(text)
    values: dict[int, tuple[Value, int, tuple[str, ...]]] = {}
    for value in find_values(text):
        inside = [place for place, word in enumerate(words) if value.start < word.end and word.start < value.end]
        if inside:
            values[inside[0]] = (value, inside[-1] + 1, readings(value, text))
    return _Said(text, words, values)


def _statements(said: _Said, wanted: str, question: str) -> Iterator[Span]:
    elements = _elements(wanted)
    if not elements:
        # A wanted text without words, such as a formula of signs, is looked for as it is.
        signs = wanted.strip()
        start = said.text.find(signs)
        if signs and start >= 0:
            yield start, start + len(signs)
        return
    content = _content(elements)
    if len(content) == 1:
        spans = (_single(said, place, content[0]) for place in range(len(said.words)))
        yield from (span for span in spans if span is not None)
    else:
        for place in range(len(said.words)):
            end = _in_order(said, place, content) or _surname_first(said, place, content)
            if end is not None:
                yield said.words[place].start, said.words[end - 1].end
        # "University of Oslo" is "Oslo University".
        if not _is_name(content) or any(element.words[0].text == "of" for element in elements):
            yield from _in_any_order(said, content)
        rarest = _giveaway(content, question)
        if rarest is not None and CODE_WORD.fullmatch(wanted.strip()) is None:
            for place, word in enumerate(said.words):
                if word.forms & rarest.words[0].forms and not _is_told_apart(said, place, elements):
                    yield word.start, word.end
        # A text of several words as it is written, whatever signs are between them: "h7!Kq-92zt".
        verbatim = rf"(?<!\w){re.escape(wanted.strip())}(?!\w)"
        yield from (match.span() for match in re.finditer(verbatim, said.text))
        yield from _number_alone(said, content, question)
    digits = sum(char.isdecimal() for char in wanted)
    if digits >= _LONG_NUMBER or any(element.value is None for element in elements):
        yield from _joined(said, [word for element in elements for word in element.words], content)


def _matches(said: _Said, place: int, element: _Element) -> int | None:
    """Return the index behind an element that the text says at a word; None if it does not."""
    if element.value is not None:
        if place not in said.values:
            if element.value.kind == "number" and roman_number(said.text, said.words[place]) in element.canonical:
                return place + 1
            return None
        value, end, canonical = said.values[place]
        for one, other in itertools.product(canonical, element.canonical):
            if covers(value, one, element.value, other):
                return end
        return None
    if element.roman and place in said.values and said.values[place][0].canonical == element.roman:
        return place + 1
    word = said.words[place]
    wanted = element.words[0]
    if wanted.unspaced:
        return unspaced_end(said.words, place, element.words)
    same = bool(word.forms & wanted.forms)
    # "mending nets" says "mend nets"; the first letter is compared first, since this is asked of every two words.
    if not same and word.text[0] == wanted.text[0] and not ((word.capital and place) or wanted.capital):
        same = shares_base(word.forms, wanted.forms)
    same &= signs_behind(said.text, word) == element.signs or word.text != wanted.text
    same &= element.flag in ("", said.text[word.start : word.end])
    if not same:
        return None
    return place + 1


def _single(said: _Said, place: int, element: _Element) -> Span | None:
    end = _matches(said, place, element)
    if end is None:
        return None
    start, stop = said.words[place].start, said.words[end - 1].end
    if element.value is not None:
        # A Roman number alone is a word: "I" is not 1.
        if place not in said.values:
            return None
        value = said.values[place][0]
        # Of a date that is said for a wanted year, only the year is marked.
        year = said.text.find(element.value.canonical, value.start, value.end)
        if value.kind == "date" and year >= 0:
            return year, year + len(element.value.canonical)
        return value.start, value.end
    word = element.words[0]
    # "No" answers a question where nothing follows; "No one knows" does not.
    if word.text in _YES_OR_NO:
        alone = re.match(r"\s*(?:$|[.,;:!?\"”)*–—]|-\s)", said.text[stop:])
        following = [other.text for other in said.words[end : end + 1] if other.text in _SUBJECTS]
        # "Yes she does": at the beginning, its sentence may follow without a comma.
        if alone or (place == 0 and following):
            return start, stop
        return None
    # "will" is no "Will", unless the whole text is written without capitals.
    everyday = word.capital and listed_frequency(word.text, "en") >= _EVERYDAY
    if everyday and not said.words[place].capital and any(other.capital for other in said.words):
        return None
    return start, stop


def _in_order(said: _Said, place: int, content: Sequence[_Element]) -> int | None:
    """Return the index behind all elements, said in order from a word on, with only further names between them."""
    end = _matches(said, place, content[0])
    for before, element in itertools.pairwise(content):
        if end is None:
            return None
        end = _next(said, end, before, element)
    return end


def _next(said: _Said, place: int, before: _Element, element: _Element) -> int | None:
    """Return the index behind an element that is said at a word or soon after it.

    Between two words of a name, middle names may stand, but not the end of another name ("John, Mary and Adam Smith").
    """
    names = before.words[-1].capital and element.words[0].capital
    for start in range(place, min(place + _MAX_GAP + 1, len(said.words))):
        between = said.text[said.words[start - 1].end : said.words[start].start]
        # A name goes on behind a full stop ("Walter B. Hollis"), but not behind another sign.
        if re.search(r"[!?;:\n]", between) or (start > place and "," in between):
            return None
        end = _matches(said, start, element)
        if end is not None:
            return end
        word = said.words[start]
        # Behind "and", another name begins.
        if word.text in _CONJUNCTIONS:
            names = False
        passed_over = word.text in _FUNCTION_WORDS | _TITLES or (names and word.capital)
        if not passed_over or ("," in between):
            return None
    return None


def _is_name(content: Sequence[_Element]) -> bool:
    return all(element.words[0].capital and element.value is None for element in content)


def _in_any_order(said: _Said, content: Sequence[_Element]) -> Iterator[Span]:
    """Find elements close to each other in one sentence: "27 Cooper Lane" and "Cooper Lane 27", "silver coins"."""
    last: dict[int, tuple[int, int]] = {}
    sentence = 0
    for place, word in enumerate(said.words):
        if place and re.search(r"[.!?;\n]", said.text[said.words[place - 1].end : word.start]):
            sentence = place
        for number, element in enumerate(content):
            end = _matches(said, place, element)
            if end is None:
                continue
            last[number] = (place, end)
            start = min(begin for begin, _ in last.values())
            if len(last) == len(content) and start >= sentence and place - start < len(content) + _SLACK:
                yield said.words[start].start, said.words[end - 1].end


def _surname_first(said: _Said, place: int, content: Sequence[_Element]) -> int | None:
    """Return the index behind a name with its last word first, "Hollis, Walter"."""
    if not _is_name(content):
        return None
    end = _matches(said, place, content[-1])
    if end is None or end >= len(said.words):
        return None
    between = said.text[said.words[end - 1].end : said.words[end].start]
    if between.strip() != ",":
        return None
    return _in_order(said, end, content[:-1])


def _joined(said: _Said, wanted: Sequence[FoldedWord], content: Sequence[_Element]) -> Iterator[Span]:
    """Find words that are divided in another way: "bird-watcher", "bird watcher" and "birdwatcher"; "KX41" and "KX 41"."""
    if len(content) == 1 and len(wanted) == 1 and len(wanted[0].text) < 2:
        return
    sought = join(wanted)
    digits = sum(char.isdecimal() for char in sought)
    for place, first in enumerate(said.words):
        if not sought.startswith(first.text):
            continue
        joined, end = first.text, place + 1
        # Words are added as long as together they begin like what is sought.
        while len(joined) < len(sought) and end < len(said.words) and sought.startswith(joined):
            joined, end = joined + said.words[end].text, end + 1
        # The same division was compared word by word already, unless it is a part of a value.
        divided = end - place != len(wanted) or digits >= _LONG_NUMBER
        # A number that begins or ends inside a value is another number.
        values = ((begin, stop) for begin, (_, stop, _) in said.values.items())
        cut = any(begin < place < stop or begin < end < stop for begin, stop in values)
        if joined == sought and divided and not (cut and said.words[end - 1].text.isdigit()):
            yield first.start, said.words[end - 1].end


def _share(said: _Said, element: _Element) -> float:
    places = range(len(said.words))
    if any(_single(said, place, element) for place in places):
        return 1.0
    wanted = element.value
    if wanted is None:
        return 0.0
    others = [value for value, _, _ in said.values.values()]
    if wanted.kind == "date":
        parts = date_parts(wanted.canonical)
        size = sum(part is not None for part in parts)
        shares = [0.0]
        for value in others:
            said_parts: tuple[str | None, ...] = (value.canonical, None, None)
            if value.kind == "date":
                said_parts = date_parts(value.canonical)
            same = sum(part is not None and part == other for part, other in zip(parts, said_parts, strict=True))
            shares.append(same / size)
        return max(shares)
    if wanted.kind in COUNTS:
        number = [part for part in wanted.canonical.split() if part[-1].isdigit()]
        # The number without its unit or currency is half of an amount.
        if any(value.canonical in number for value in others):
            return 0.5
    return 0.0


# Rare words


def _giveaway(content: Sequence[_Element], question: str) -> _Element | None:
    """Return the word that gives a text of several words away: the rarest one, the last of equals; None if it is not rare."""
    words = [element for element in content if element.value is None]
    if not words or len(content) > _LONGEST_NAME:
        return None
    frequencies = [word_frequency(element.words[0].text, name=_is_name(content)) for element in words]
    # Of equals the last one: a surname gives a person away, a first name does not.
    rarest = min(range(len(words)), key=lambda place: (frequencies[place], -place))
    word = words[rarest].words[0]
    if frequencies[rarest] > RARE or len(word.text) < _SHORTEST_RARE:
        return None
    if any(word.forms & other.forms for other in folded_words(question)):
        return None
    return words[rarest]


def _is_told_apart(said: _Said, place: int, elements: Sequence[_Element]) -> bool:
    """Return whether a rare word stands beside another number or letter than the wanted one: "Larch Road 11", "hepatitis C".

    Words of the wanted text may stand between them, and before the rare word small ones, too: "11, rue de la Paix".
    """
    telling = [
        element
        for element in elements
        if (element.value is not None and element.value.kind == "number") or _is_designation(element, elements)
    ]
    own = frozenset(form for element in elements for word in element.words for form in word.forms)
    for step, passed_over in ((1, own), (-1, own | _ARTICLES)):
        beside = place + step
        while 0 <= beside < len(said.words) and said.words[beside].text in passed_over:
            beside += step
        if not telling or not 0 <= beside < len(said.words):
            continue
        word, first, last = said.words[beside], min(beside, place), max(beside, place)
        between = said.text[said.words[first].end : said.words[last].start]
        letter = step > 0 and len(word.text) == 1 and word.capital
        amount = beside in said.values and said.values[beside][0].kind != "number"
        if (word.text[0].isdecimal() or letter) and not amount and not re.search(r"[.!?;:\n]", between):
            return True
    return False


def _number_alone(said: _Said, content: Sequence[_Element], question: str) -> Iterator[Span]:
    """Find the number of a number with its measure where nothing is counted: "She is 34." for "34 years".

    The measure is a word of time, or one of the question: "two children" to "How many children does she have?".
    """
    if len(content) != 2 or content[0].value is None or content[0].value.kind != "number":
        return
    measure = content[1].words[0]
    asked = any(measure.forms & word.forms for word in folded_words(question))
    if join(content[1].words) not in MEASURES and not asked:
        return
    for place, (value, end, _) in said.values.items():
        if value.kind not in ("number", "year") or re.search(r"\d[-./:]$", said.text[: value.start]):
            continue
        # A small number in a longer sentence may count anything: "platform 6".
        clause = re.split(r"[.!?;\n]", said.text[: value.start])[-1]
        if len(clause.split()) >= _FEW_WORDS and float(value.canonical) < _LARGE_NUMBER:
            continue
        span = _single(said, place, content[0])
        # "34 cousins" are no age.
        if span is not None and re.match(_CLAUSE_END, said.text[said.words[end - 1].end :]):
            yield span
