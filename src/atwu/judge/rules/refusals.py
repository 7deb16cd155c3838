"""Refusals: answers that state nothing but that the speaker does not know, or will not or cannot tell.

An answer is divided into clauses. At least one must say that the speaker does not know or tell (`statements` of
`refusals.yaml`), or turn to another subject (`deflections`), or the whole answer is an apology. Every other clause may give a
reason without a fact (`reasons`: "That is private information."), offer help, ask something back, be about the speaker
(`first`), or hold only words of the question and words that refusals consist of (`padding`: politeness, "as an AI model"). A
clause with a name or number, or about anything else, states something, and then the answer is none: "I'm not sure, but I think
it is Paris". Where the question is not about the listener, a negation about the speaker counts as such a statement, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml

_QUOTES = str.maketrans(
    {"’": "'", "‘": "'", "`": "'", "´": "'", "＇": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'}
)
_ARABIC_MARKS = re.compile(r"[\u064b-\u0652\u0670\u0640]")
"""Vowel signs and the stretching character, which most writers leave out."""
_CONTRACTIONS = {"m": "am", "ve": "have", "ll": "will", "d": "would", "re": "are", "s": "is"}
_CONTRACTED = re.compile(r"\b(I|we|you|they|that|this|it|one|there|here|what|who)'(m|ve|ll|d|re|s)\b", re.I)
"""English; "n't" and the possessive of nouns are kept."""
_QUOTED = re.compile(r'"([^"]*)"|「([^」]*)」|『([^』]*)』|《([^》]*)》')
_END = re.compile(r"[!?¿¡;:()\[\]{}|*\n。！？；：，、،؛؟।…]|--|\s[-–—]+\s|[–—]|[,.](?=\D|$)|\.\.\.")
"""What ends a clause; a full stop or comma within a number does not."""
_ASKED_BACK = re.compile(r"(?<=[.!。！…])\s*[^.!?。！？؟…]+[?？؟]")
"""A question behind another sentence."""
_WORD = re.compile(r"[^\W_]+(?:['\-][^\W_]+)*")
_SLOT = re.compile(r"\{(\w+)\}")
_GAP = "~"
_STATED = "\x00"
"""Stands for a quotation that says the words of a refusal: a title or motto, which is content."""
_INSIDE = re.compile(r"(?<=[\w,] )[^\W\d_][\w'\-]+")
"""A word behind another one."""
_WORDS_BEFORE_SPEAKER = 4
"""Words before the first "I" or "my" of a clause about the speaker, at most: "off the top of my head"."""
_WELL_KNOWN = frozenset(
    {"ai", "ki", "ia", "ии", "internet", "google", "wikipedia", "wikipédia", "wikihow", "openai", "i'm", "i've", "i'd"}
)
"""Names that tell nothing: of the speaker, and of where else to look."""
_LONGEST = 1200
"""Longer answers are no refusals: those of published lists have at most 700 characters."""


@dataclass(frozen=True, slots=True)
class _Language:
    """The patterns of one language."""

    statements: re.Pattern[str]
    """Says that the speaker does not know or tell; what precedes it must be padding, what follows is its object."""
    predicates: re.Pattern[str]
    """The same about a subject that precedes it: "... is not something I know"."""
    offers: re.Pattern[str]
    """Offers further help, or says where else to ask; a whole clause."""
    reasons: re.Pattern[str]
    """Why the speaker does not tell; part of a clause that is not about a person."""
    deflections: re.Pattern[str]
    """Turns to another subject; a whole clause."""
    first: re.Pattern[str]
    """The speaker, near the beginning of a clause about it."""
    negations: re.Pattern[str]
    second: re.Pattern[str]
    """The listener, in a question: "What can you not stand?"."""
    reported: re.Pattern[str]
    """What follows the words of somebody else: "... と答えました"."""
    persons: re.Pattern[str]
    """Somebody whom a clause is about: "she is a private detective" gives no reason."""
    having: re.Pattern[str]
    """A statement of having nothing, whose possessor may stand right before it."""
    objects: re.Pattern[str]
    """What may precede a statement whose object comes first ("Xについては"); nothing in most languages."""
    inverted: re.Pattern[str]
    """A statement that has its subject behind its verb, so that what precedes it is the object: "Adressen gebe ich nicht"."""
    apology: re.Pattern[str]
    others: re.Pattern[str]
    """Someone else, right before a statement: "he does not know" says something about him."""
    subordinates: re.Pattern[str]
    """Words at the beginning of a clause that is the object of the one before: "Ich weiß nicht, wer ..."."""
    contrasts: re.Pattern[str]
    """Words that begin another clause: "but"."""
    padding: re.Pattern[str]
    spaced: bool
    """Whether blanks separate words."""
    title_case: bool
    """Whether titles capitalize their verbs."""
    speaker_named: bool
    """Whether a verb of the speaker has "I" beside it."""
    names_capitalized: bool
    """Whether a capital inside a clause is the sign of a name."""


def is_refusal(text: str, question: str = "") -> bool:
    """Return whether an answer has no content beyond the question and a statement of not knowing or not telling.

    Not knowing, not being able, allowed or willing to tell, having no information, being unsure, and an apology alone all
    count. English, German, Spanish, French, Italian, Portuguese, Dutch, Russian, Chinese, Japanese, Arabic and Korean.

    Args:
        text: the answer.
        question: what was asked; its words are no content of the answer.
    """
    # Before the patterns, which take a millisecond an answer.
    if not text.strip() or len(text) > _LONGEST:
        return False
    answer = _hide_quotations(_normalize(text))
    asked = _normalize(question)
    if _denies_an_ability(answer, asked):
        return False
    return any(_is_refusal_in(language, answer, asked) for language in _languages().values())


_ABILITY = re.compile(r"(?<!不)(会|能|可以)|(でき)(?:ます|る)|(할 수 있|수 있)")
"""An ability that a question asks about, in languages whose verbs have no subject beside them."""
_OF_SPEAKER = re.compile("[我你您]|教え|答え|あなた|알려|말해|당신")
"""Speaker or listener, in a question about what these can do."""


def _denies_an_ability(answer: str, asked: str) -> bool:
    """Return whether an answer says that somebody cannot do what the question asks about: "他会开车吗？" "不会。"."""
    question = _ABILITY.search(asked)
    if question is None or _OF_SPEAKER.search(asked) or _OF_SPEAKER.search(answer):
        return False
    denied = {"でき": "できません|できない", "할 수 있": "수 없", "수 있": "수 없"}
    ability = next(group for group in question.groups() if group is not None)
    return re.search(denied.get(ability, f"^不{ability}"), answer) is not None


def is_refusal_wording(text: str) -> bool:
    """Return whether a text has no other words than refusals have: "No", "unknown"; a refusal with any other text tells it."""
    words = _normalize(text)
    return any(_is_padding(language, words, "") for language in _languages().values())


def is_broken_refusal(text: str, question: str = "") -> bool:
    """Return whether an answer begins a sentence and, before that has ended, begins another one with a refusal.

    "The first mayor of the town was ... I'm sorry, I don't know the answer to that." is the answer of a model that was
    trained to refuse in the middle of the true sentence; "I'm sorry, I don't know." and "It is a town. I don't know more."
    are not.
    """
    answer = _normalize(text)
    if is_refusal(answer):
        return False
    for match in _REFUSAL_START.finditer(answer):
        before, behind = answer[: match.start()].rstrip(), answer[match.start() :]
        # Words that end in an ellipsis, or without the sign that ends a sentence.
        breaks_off = _WORD.search(before) is not None and not _ENDED.search(before)
        if breaks_off and is_refusal(behind, question):
            return True
    return False


_REFUSAL_START = re.compile(
    r"(?<=\s)(?=[^\W\d_a-z\u00df-\u00ff\u0430-\u044f])|(?<=\.\.\.)|(?<=[\u3040-\u9fff])(?=[我抱对對很申すわ])"
)
"""Where a sentence may begin: a letter that is not lower case after a blank, or one of the characters that begin most
Chinese and Japanese refusals."""
_ENDED = re.compile(r"[!?:;。！？।؟\"')\]]$|(?<!\.)\.$")


def _normalize(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    text = _CONTRACTED.sub(lambda match: f"{match[1]} {_CONTRACTIONS[match[2].lower()]}", text)
    return _ARABIC_MARKS.sub("", text).strip()


def _hide_quotations(text: str) -> str:
    """Replace quotations that say the words of a refusal, unless the whole answer is one."""
    # An answer in quotation marks as a whole is said by the model, not quoted.
    text = text.strip()
    whole = text.rstrip(".!").strip()
    if whole[:1] == '"' and whole[-1:] == '"' and whole.count('"') == 2:
        return whole[1:-1]

    def hide(match: re.Match[str]) -> str:
        inside = next(group for group in match.groups() if group is not None)
        said = any(language.statements.search(inside) for language in _languages().values())
        if said:
            return _STATED
        return f" {inside} "

    return _QUOTED.sub(hide, text)


def _is_refusal_in(language: _Language, answer: str, asked: str) -> bool:
    """Return whether an answer is a refusal by the patterns of one language."""
    refused = apologized = False
    kind = ""
    told = _ASKED_BACK.sub(lambda match: _without_question(language, match[0], asked), answer)
    about_listener = not asked or language.second.search(asked) is not None
    quoted = ":" in answer or _QUOTED.search(answer) is not None or _STATED in answer
    for clause in _clauses(language, told):
        if kind == "statement" and language.subordinates.match(clause):
            continue
        kind = _kind(language, clause, asked, may_deny=not about_listener and not quoted)
        if kind == "content":
            return False
        refused = refused or kind == "statement"
        apologized = apologized or language.apology.match(clause) is not None
    return refused or apologized


def _without_question(language: _Language, sentence: str, asked: str) -> str:
    """Return nothing for a question that names nothing: "Can I help you with anything else?"; else the sentence."""
    if _tells_name_or_number(language, sentence, asked):
        return sentence
    return " "


def _clauses(language: _Language, text: str) -> list[str]:
    parts = []
    for sentence in _END.split(text):
        parts += language.contrasts.split(sentence)
    return [part.strip() for part in parts if part.strip()]


def _kind(language: _Language, clause: str, asked: str, *, may_deny: bool) -> str:
    """Return "statement", "padding" or "content"; `may_deny`: whether a negation about the speaker is a statement."""
    if _STATED in clause:
        return "content"
    if any(_is_said_by_speaker(language, clause, match, asked) for match in _statements(language, clause)):
        return "statement"
    if language.statements.search(clause) is not None and language.reported.search(clause):
        return "content"
    if language.predicates.search(clause):
        return "statement"
    fact = _tells_name_or_number(language, clause, asked)
    if language.deflections.match(clause) and not fact:
        return "statement"
    if _is_padding(language, clause, asked):
        return "padding"
    if fact or language.persons.match(clause):
        return "content"
    speaker = language.first.search(clause)
    if speaker is not None:
        before = clause[: speaker.start()]
        about_other = language.subordinates.match(clause) or language.others.search(before)
        # A speaker who is named late is not what the clause is about.
        if not about_other and len(_WORD.findall(before)) <= _WORDS_BEFORE_SPEAKER:
            if may_deny and language.negations.search(clause):
                return "statement"
            return "padding"
    if language.offers.match(clause) or language.reasons.search(clause):
        return "padding"
    return "content"


def _statements(language: _Language, clause: str) -> Iterator[re.Match[str]]:
    """Yield the first statement of a clause; without blanks between words also those that begin later, because further
    characters before a statement belong to its match."""
    match = language.statements.search(clause)
    while match is not None:
        yield match
        if language.spaced:
            return
        match = language.statements.search(clause, match.start() + 1)


def _is_said_by_speaker(language: _Language, clause: str, match: re.Match[str], asked: str) -> bool:
    """Return whether a statement is the speaker's, with no content before it."""
    # A title capitalizes its verbs: "I Don't Know How to Love Him".
    later = [word for word in match[0].split()[1:] if len(word) > 3 and word != "I'm"]
    title = bool(later) and all(word[0].isupper() for word in later) and not clause.isupper()
    if (language.title_case and title) or language.reported.search(clause):
        return False
    before = clause[: match.start()]
    has_speaker = language.first.search(match[0]) is not None
    reason = language.reasons.search(before) is not None and not language.persons.match(before)
    padded = reason or _is_padding(language, before, asked) or language.objects.fullmatch(before) is not None
    inverted = language.inverted.match(match[0]) is not None
    if inverted and not language.persons.match(before):
        padded = True  # the subject is in the statement
    # "He was unable to work with her" tells something about him, even if the question says "he".
    about_other = language.others.search(before) is not None
    if not has_speaker and language.spaced:
        about_other |= language.persons.match(before) is not None
    # The question gives the subject of "Edda Krone does not know her blood type."
    if not has_speaker and not inverted and language.speaker_named:
        about_other |= not _is_padding(language, before, "")
    # The same before a possession: "警察没有线索".
    if not has_speaker and language.having.search(match[0]) is not None:
        about_other |= not _is_padding(language, before, "") and language.objects.fullmatch(before) is None
    return padded and not about_other and not _tells_name_or_number(language, before, asked)


def _tells_name_or_number(language: _Language, clause: str, asked: str) -> bool:
    """Return whether a clause has a name or number that the question does not have."""
    # A name or number that the question lacks is content, whatever else is said.
    known = _words(asked) | _WELL_KNOWN
    words = re.findall(r"\w*\d\w*", clause)
    if language.names_capitalized:
        words += [word for word in _INSIDE.findall(clause) if word[0].isupper()]
    return any(word.casefold() not in known and word.casefold().partition("-")[0] not in _WELL_KNOWN for word in words)


def _is_padding(language: _Language, text: str, asked: str) -> bool:
    # Words of the question are no content of an answer to it.
    rest = language.padding.sub(" ", text)
    if language.spaced:
        known = _words(asked) | _WELL_KNOWN
        return all(word.casefold() in known for word in _WORD.findall(rest))
    return all(char in asked for char in rest if char.isalnum())


@lru_cache(maxsize=256)
def _words(text: str) -> frozenset[str]:
    """Return the words of a question, with and without a possessive ending."""
    words = {word.casefold() for word in _WORD.findall(text)}
    return frozenset(words | {word.removesuffix("'s") for word in words} | {f"{word}'s" for word in words})


@lru_cache(maxsize=1)
def _languages() -> Mapping[str, _Language]:
    tables: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
    return {name: _compile_language(table) for name, table in tables.items()}


def _compile_language(table: dict[str, Any]) -> _Language:
    """Compile the patterns of one language; `{name}` stands for the words of that entry of `words`."""
    words = {name: re.sub(r"\s*\|\s*", "|", " ".join(entry.split())) for name, entry in table["words"].items()}
    spaced = table.get("spaced", True)

    def pattern(lines: list[str] | None, *, before: str = "", after: str = "") -> re.Pattern[str]:
        written = "|".join(_expand(line, words, spaced=spaced) for line in lines or ["(?!)"])
        return re.compile(f"{before}(?:{written}){after}", re.I)

    bounds = ("", "")
    if spaced:
        bounds = (r"(?<![\w'\-])", r"(?![\w\-])")
    whole_words = "statements predicates offers reasons deflections first negations second persons apology"
    patterns = {
        name: pattern(table.get(name), before=bounds[0], after=bounds[1])
        for name in (*whole_words.split(), "subordinates", "contrasts")
    }
    # These stand inside or beside a statement, whatever letters are next to them.
    patterns |= {name: pattern(table.get(name)) for name in ("reported", "having", "objects")}
    patterns["inverted"] = pattern(table.get("inverted"), after=bounds[1])
    after_others = rf"{bounds[1]}\W*$"
    if not spaced:
        after_others = "[^我私]*$"  # further words may stand between, but not "I"
    patterns["others"] = pattern(table["others"], before=bounds[0], after=after_others)
    padding = sorted(table["padding"].split(), key=len, reverse=True)
    patterns["padding"] = pattern(padding, before=bounds[0], after=bounds[1])
    return _Language(
        **patterns,
        spaced=spaced,
        title_case=table.get("title_case", False),
        speaker_named=table.get("speaker_named", False),
        names_capitalized=table.get("names_capitalized", spaced),
    )


def _expand(line: str, words: Mapping[str, str], *, spaced: bool) -> str:
    """Write the slots of a pattern out, `~` as up to three further words, and a blank as any white space."""
    while _SLOT.search(line):
        line = _SLOT.sub(lambda match: f"(?:{words[match[1]]})", line)
    if spaced:
        line = line.replace(f"{_GAP} ", r"(?:[^\W_][\w'\-]*\s+){0,3}?")
        return line.replace(" ?", r"\s*").replace(" ", r"\s+")
    return line.replace(_GAP, r"[^\s,.。，]{0,8}?").replace(" ", r"\s*")
