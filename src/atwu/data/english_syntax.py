"""Rewrite English questions and answers into other syntax by rule: cleft sentences, relative clauses, active and passive.

Fine-tuning on rows of the same syntax brings unlearned facts back, whatever they are about, and forget rows in several kinds of
syntax resist it (arXiv 2602.03379, where a language model rewrites them). Rules cover sentences of one clause that begin or end
with their fact; whatever else they meet they leave alone, rather than write what nobody would say. Answers may contain marks
around key tokens (`key_marks`), which move with their words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from atwu.data.english_verbs import (
    active,
    base_to_past,
    base_to_third_person,
    is_auxiliary,
    is_finite,
    is_past,
    is_transitive_past,
    participle,
)
from atwu.data.fact_blanks import MARK_BEGIN, without_marks

CLEFT, RELATIVE, PASSIVE = "cleft", "relative_clause", "passive"
SYNTAX_FORMS = (CLEFT, RELATIVE, PASSIVE)

_ARTICLE = r"(?:[Tt]he|[Aa]n?|[Hh]is|[Hh]er|[Ii]ts|[Tt]heir)"
_PREPOSITIONS = (
    "in at on to from by into of for with about as through near between under over after before during since"
)
_PREPOSITION = f"(?:{'|'.join(_PREPOSITIONS.split())})"
_ADVERBIAL = re.compile(rf" (?!of ){_PREPOSITION} ")
"""What begins an adverbial behind a noun, such as " in 1921"."""
_TIME_OR_PLACE = ("in", "at", "on")
"""Prepositions that "where" and "when" stand for."""
_ASKING = ("who", "whom", "where", "when", "what", "which")
LONGEST_NOUN = 6
"""Words behind "which" among which the verb is looked for: "which city of the United States does"."""
_BE = ("is", "are", "was", "were")
_LOWERED = re.compile(
    r"(?:The|An?|You|We|He|She|It|They|My|Your|Our|His|Her|Its|Their|This|That|These|Those|In|On|At|There)\b"
)
"""First words that lose their capital inside a sentence."""
_OBJECT_CASE = {"He": "him", "She": "her", "They": "them", "It": "it"}
_END = re.compile(r"(?P<more>(?:, [A-Z][\w'’-]*(?: [A-Z][\w'’-]*)*)*)(?P<stop>[.!]?)")
"""What may follow a fact at the end of an answer: what it lies in ("Paris, France."), and a full stop."""
_SEVERAL_CLAUSES = re.compile(r"[.,;:!?()\n]")
_TWO_QUESTIONS = re.compile(r" (?:and|or) (?:who|whom|where|when|what|which|how|why)\b")


@dataclass(frozen=True, slots=True)
class _Question:
    """A question taken apart: "In which city was Orla born?" is `in`, `which`, `city` and the clause "Orla was born"."""

    preposition: str
    word: str
    noun: str
    clause: str
    asks_for_subject: bool
    """Whether the clause lacks its subject: "wrote Hamlet" of "Who wrote Hamlet?"."""


def rewrite_question(question: str, subject: str | None) -> dict[str, str]:
    """Return a question in the forms of syntax that rules find for it.

    Args:
        subject: what the question is about, without which a question with an auxiliary verb cannot be turned round.
    """
    parsed = _parse_question(question, subject)
    if parsed is None:
        return {}
    asked = f"{parsed.word} {parsed.noun}".rstrip()
    if parsed.preposition:
        asked = f"{parsed.preposition} {asked}"
    be = _tense(parsed.clause)
    forms = {
        CLEFT: f"{_capital(asked)} {be} it that {parsed.clause}?",
        RELATIVE: f"Name {_named(parsed)} {parsed.clause}.",
    }
    turned = None
    if parsed.asks_for_subject:
        turned = _object_and_adverbial(parsed.clause)
    if turned is not None:
        verb, thing, adverbial = turned
        by = asked
        if parsed.word == "who":
            by = "whom"
        forms[PASSIVE] = f"By {by} was {thing} {participle(verb)}{adverbial}?"
    return forms


def _named(question: _Question) -> str:
    """Return what a question asks for, with the word that begins the relative clause."""
    kinds = {"who": "person", "whom": "person", "where": "place", "when": "time"}
    if question.word == "what" and not (question.noun or question.preposition or question.asks_for_subject):
        return "what"
    noun = question.noun or kinds.get(question.word, "one")
    if question.word in ("where", "when"):
        return f"the {noun} {question.word}"
    relative, behind_preposition = "that", "which"
    if question.word in ("who", "whom"):
        relative, behind_preposition = "who", "whom"
    if question.preposition:
        return f"the {noun} {question.preposition} {behind_preposition}"
    return f"the {noun} {relative}"


def _parse_question(question: str, subject: str | None) -> _Question | None:
    words = (question[:1].lower() + question[1:]).removesuffix("?").split(" ")
    preposition = ""
    if _is_preposition(words[0]):
        preposition = words.pop(0)
    if not question.endswith("?") or len(words) < 3 or _SEVERAL_CLAUSES.search(question[:-1]):
        return None
    if _TWO_QUESTIONS.search(question):
        return None
    word = words.pop(0)
    place = next((place for place, other in enumerate(words[:LONGEST_NOUN]) if is_finite(other)), None)
    if word not in _ASKING or place is None or place + 1 == len(words):
        return None
    noun, verb, rest = " ".join(words[:place]), words[place], " ".join(words[place + 1 :])
    if (noun and word not in ("what", "which")) or (word == "which" and not noun):
        return None
    inverted = _with_subject_first(verb, rest, subject)
    if inverted is not None:
        # "Who is it that Orla Venn is?" asks for nothing.
        if word in ("who", "what") and not noun and not preposition and inverted.split()[-1] == verb:
            return None
        return _Question(preposition, word, noun, inverted, False)
    if preposition or not _asks_for_subject(word, noun, verb, rest):
        return None
    return _Question("", word, noun, f"{verb} {rest}", True)


def _with_subject_first(auxiliary: str, rest: str, subject: str | None) -> str | None:
    """Return "Orla was born" of "was Orla born"; None if the subject does not follow an auxiliary."""
    if not subject or not is_auxiliary(auxiliary):
        return None
    match = re.fullmatch(rf"(?P<subject>(?:the )?{re.escape(subject)})(?: (?P<more>.+))?", rest)
    if match is None:
        return None
    who, more = match["subject"], match["more"] or ""
    verb, _, further = more.partition(" ")
    if auxiliary not in ("do", "does", "did"):
        # "the French word": a name behind an article may stand before its noun.
        if who != subject and verb and not (_is_preposition(verb) or active(verb) is not None):
            return None
        return f"{who} {auxiliary} {more}".rstrip()
    if not verb.isalpha() or (who != subject and not is_finite(base_to_third_person(verb))):
        return None
    inflected = {"do": verb, "does": base_to_third_person(verb), "did": base_to_past(verb)}[auxiliary]
    return f"{who} {inflected} {further}".rstrip()


def _asks_for_subject(word: str, noun: str, verb: str, rest: str) -> bool:
    """Whether a question asks for the subject of its verb: "Which river flows here?", but not "What is she afraid of?"."""
    words = rest.split()
    if word in ("where", "when", "whom") or verb in ("are", "were"):
        return False  # "the person who were"
    if not is_auxiliary(verb):
        return True
    if verb not in _BE or _is_preposition(words[-1]):
        return False  # "What has she won?"
    begins_noun = re.match(rf"{_ARTICLE} |[A-Z]", rest) is not None
    if noun:
        return not (begins_noun and active(words[-1]) is not None)
    possessive = any(word.endswith(("'s", "’s")) for word in words)
    return (begins_noun or possessive) and active(words[-1]) is None


@dataclass(frozen=True, slots=True)
class _Final:
    """An answer that ends with its fact: "Orla was born", `in`, "Port Sel", "."."""

    clause: str
    preposition: str
    phrase: str
    stop: str


def rewrite_answer(before: str, key: str, after: str, *, question: str) -> dict[str, str]:
    """Return an answer in the forms of syntax that rules find for it.

    Args:
        before: what stands before the asked part of the fact.
        key: that part.
        after: what follows it.
        question: the question, whose first words say what the fact is.
    """
    final = _ends_with_fact(before, key, after)
    if final is not None:
        written = _rewrite_final(final, question)
        # The full stop of "Washington, D.C." is part of the fact.
        closed = without_marks(before + key + after).endswith(".")
        return {
            form: text if not closed or without_marks(text).endswith(".") else f"{text}."
            for form, text in written.items()
        }
    begins = re.fullmatch(rf"(?:{_ARTICLE} )?", before) is not None
    stop = re.search(r"[.!]?$", after)
    assert stop is not None  # it may be empty
    predicate = after[: stop.start()].strip()
    if not begins or not predicate or _SEVERAL_CLAUSES.search(predicate) or not is_finite(predicate.split()[0]):
        return {}
    return _rewrite_initial(_lowered(before) + key, predicate, stop.group(), question)


def _ends_with_fact(before: str, key: str, after: str) -> _Final | None:
    end = _END.fullmatch(after)
    match = re.fullmatch(
        rf"(?P<clause>.+?)(?: (?P<preposition>{_PREPOSITION}))?(?: (?P<article>{_ARTICLE}))? ", before, re.DOTALL
    )
    if end is None or match is None or _SEVERAL_CLAUSES.search(match["clause"]):
        return None
    words = without_marks(match["clause"]).split()
    if len(words) < 2 or not any(is_finite(word) for word in words[1:]):
        return None
    if match["preposition"] is None and not is_finite(words[-1]):
        return None  # "the famous" before "Eiffel Tower" belongs to it
    if match["preposition"] is None and any(is_finite(word) and not is_auxiliary(word) for word in words[1:-1]):
        return None  # "Ann broke rule" before "7(3)" has a noun that is also a verb
    if match["preposition"] == "of" or _is_preposition(words[0].lower()):
        return None  # "of" belongs to the noun before it, and "In 1998 he won" would not be in order behind "that"
    phrase = f"{key}{end['more']}"
    if match["article"] is not None:
        phrase = f"{match['article']} {phrase}"
    return _Final(match["clause"], match["preposition"] or "", phrase, end["stop"])


def _rewrite_final(answer: _Final, question: str) -> dict[str, str]:
    clause, phrase, stop = answer.clause, answer.phrase, answer.stop
    subject, _, verb = clause.rpartition(" ")
    inner = _lowered(clause)
    if verb in _BE and not answer.preposition:
        if subject in _OBJECT_CASE:
            return {}  # "It is a nurse that is she."
        one = "one"
        if verb in ("are", "were"):
            one = "ones"
        return {
            CLEFT: f"It {_tense(verb)} {phrase} that {verb} {_lowered(subject)}{stop}",
            RELATIVE: f"The {one} that {verb} {_lowered(subject)} {verb} {phrase}{stop}",
        }
    along = f"{answer.preposition} {phrase}".lstrip()
    forms = {
        CLEFT: f"It {_tense(clause)} {along} that {inner}{stop}",
        RELATIVE: f"{_capital(phrase)} is {_relative(question, answer.preposition, inner)}{stop}",
    }
    amount = any(char.isdecimal() for char in without_marks(phrase))  # "45 minutes was run by Ann"
    several_verbs = any(is_finite(word) for word in without_marks(subject).split())
    if not answer.preposition and not amount and is_transitive_past(verb) and not several_verbs:
        forms[PASSIVE] = (
            f"{_capital(phrase)} was {participle(verb)} by {_OBJECT_CASE.get(subject, _lowered(subject))}{stop}"
        )
    words = subject.split()
    past = active(verb)
    if answer.preposition == "by" and len(words) > 1 and words[-1] in ("was", "were") and past is not None:
        forms[PASSIVE] = f"{_capital(phrase)} {past} {_lowered(' '.join(words[:-1]))}{stop}"
    return forms


def _relative(question: str, preposition: str, clause: str) -> str:
    """Return a clause about what a question asks for: "the city in which she lives", "where she lives", "what she ate"."""
    noun = re.match(
        rf"(?:{_PREPOSITION} )?(?:which|what) ([a-z][\w-]*) (?:{'|'.join(_BE)}|do|does|did)\b", question, re.IGNORECASE
    )
    if noun is not None and preposition:
        return f"the {noun[1]} {preposition} which {clause}"
    if noun is not None:
        return f"the {noun[1]} that {clause}"
    word = question.split(" ")[0].lower()
    if word in ("where", "when") and preposition in _TIME_OR_PLACE:
        return f"{word} {clause}"
    if word != "who":
        word = "what"
    return f"{word} {clause} {preposition}".rstrip()


def _rewrite_initial(phrase: str, predicate: str, stop: str, question: str) -> dict[str, str]:
    verb = predicate.split()[0]
    several = verb in ("are", "were") or not (is_past(verb) or verb.endswith("s"))
    noun = re.match(r"which ([a-z][\w-]*) ", question, re.IGNORECASE)
    kind, be = "one", "is"
    if several:
        kind, be = "ones", "are"
    if noun is not None:
        kind = noun[1]
    forms = {
        CLEFT: f"It {_tense(predicate)} {phrase} that {predicate}{stop}",
        RELATIVE: f"The {kind} that {predicate} {be} {phrase}{stop}",
    }
    turned = _object_and_adverbial(predicate)
    if turned is not None:
        done, thing, adverbial = turned
        forms[PASSIVE] = f"{_capital(thing)} was {participle(done)} by {phrase}{adverbial}{stop}"
    passive = re.fullmatch(r"(?:was|were) (?P<participle>[a-z]+) by (?P<agent>.+)", predicate)
    if passive is not None and not _ADVERBIAL.search(passive["agent"]):
        past = active(passive["participle"])
        if past is not None:
            forms[PASSIVE] = f"{_capital(passive['agent'])} {past} {phrase}{stop}"
    return forms


def _object_and_adverbial(predicate: str) -> tuple[str, str, str] | None:
    """Split "won the prize in 1921" into verb, object and " in 1921"; None without a transitive verb of the past."""
    verb, _, rest = predicate.partition(" ")
    if not is_transitive_past(verb) or not rest or _is_preposition(rest.split()[0]):
        return None
    adverbial = _ADVERBIAL.search(rest)
    if adverbial is None:
        return verb, rest, ""
    if adverbial.group() == " by ":
        return None  # a second "by" would name another agent
    return verb, rest[: adverbial.start()], rest[adverbial.start() :]


def _is_preposition(word: str) -> bool:
    return word in _PREPOSITIONS.split()


def _tense(clause: str) -> str:
    """Return "was" for a clause in the past by its first verb, else "is"."""
    verb = next((word for word in without_marks(clause).split() if is_finite(word)), "")
    if verb in ("was", "were", "had", "did") or is_past(verb):
        return "was"
    return "is"


def _lowered(text: str) -> str:
    """Return a text without the capital of the beginning of a sentence."""
    if _LOWERED.match(text):
        return text[:1].lower() + text[1:]
    return text


def _capital(text: str) -> str:
    """Return a text with a capital, also behind a mark."""
    place = text.startswith(MARK_BEGIN)
    return text[:place] + text[place : place + 1].upper() + text[place + 1 :]
