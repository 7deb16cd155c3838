"""Rewrite the question of a row in other forms that ask for the same fact, by rule and without a model.

A model that unlearned one form of a question may still answer another (SUITE, arXiv 2607.09236). Every form is a
question-answer row, so it can be trained on, evaluated, or paired with the same form of a retain row. The words of a form are
those of the row's language (`form_phrases.yaml`); `rows_in_forms` writes the rows of a set.
"""

from __future__ import annotations

import functools
import random
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from atwu._names import lookup
from atwu.data.english_syntax import SYNTAX_FORMS, rewrite_answer, rewrite_question
from atwu.data.fact import gives_away, telling_texts
from atwu.data.fact_blanks import (
    LEAST_WORDS,
    MARK_BEGIN,
    MARK_END,
    FactParts,
    find_fact,
    find_mentions,
    replace_words,
    unmarked,
    with_marks,
)
from atwu.data.languages import WORD, Phrases, count_words, form_phrases, is_unspaced, polar_word, row_language
from atwu.data.question_types import word_list
from atwu.data.row_subject import as_question, as_sentence, find_subject, names_in_question
from atwu.data.schema import Example, Message, Span, merged_spans
from atwu.data.wrong_options import choose_options

BLANK = "____"
LETTERS = "ABCD"

FORMS: Mapping[str, str] = {
    "question": "{answer}",
    "emphasis": "{emphasis}",
    "blank": "{blanked}",
    "complete": "{rest}",
    "multiple_choice": "{option}",
    "reversed": "{subject}",
    "paraphrase": "{answer}",
    "prefix": "{answer}",
    "lower_case": "{answer}",
    "two_turns": "{answer}",
    "quiz_host": "{answer}",
    "missing_word": "{blanked}",
    "finish": "{answer}",
    "tell_about": "{answer}",
    "summary": "{answer}",
    "continuation": "{answer}",
    "statement": "{beginning}{answer}",
    "heading": "{beginning}{answer}",
    "textbook": "{beginning}{answer}",
    "either_or": "{offered}",
    "who_is_meant": "{subject}",
    "reversed_question": "{subject}",
    "yes_no": "{answer}",
    "cleft": "{cleft_answer}",
    "relative_clause": "{relative_clause_answer}",
    "passive": "{passive_answer}",
}
"""Name of a form -> its answer, in the words of `_Writer`."""
_WORDLESS: Mapping[str, str] = {
    "question": "{question}",
    "emphasis": "{own_question}",
    "paraphrase": "{paraphrase}",
    "lower_case": "{lower_case}",
    "multiple_choice": "{question}\n{options}",
    "continuation": "{opening}",
    "cleft": "{cleft_question}",
    "relative_clause": "{relative_clause_question}",
    "passive": "{passive_question}",
}
"""Forms without words of a language."""
_BARE: Mapping[str, str] = {"blank": "{with_blanks}", "reversed": "{subject_blank}"}
"""Forms of a row in a language without phrases: the sentence with its blank alone."""
TRAINED_FORMS = (
    *("question", "blank", "complete", "multiple_choice", "reversed", "tell_about"),
    *("continuation", "statement", "heading"),
)
"""Forms that `--forms auto` trains on."""
BEGINNING_FORMS = ("statement", "heading", "textbook")
"""Forms of a plain text by its beginning."""
PLAIN_FORMS = ("continuation", *BEGINNING_FORMS)
"""Forms without a chat: a text that the model continues."""
OPTION_FORMS = ("multiple_choice", "either_or")
"""Forms that list the key text among options, so that a model that guesses is right at times."""
OPTION_DRAWS = len(LETTERS)
"""Number of times that a row is asked in such a form to measure it: with the key text at each letter once, because a model
that always answers A knows nothing, and with other wrong options."""
OPEN_FORMS = ("tell_about", "summary")
"""Forms that name only the subject of a row: the answer is free to state the fact or not."""
REVERSED_FORMS = ("reversed", "who_is_meant", "reversed_question")
"""Forms that ask for the subject of a row."""
BLANK_FORMS = ("blank", "missing_word")
"""Forms that ask for the blanked parts of a fact."""
OPENING_FORMS = ("complete", "finish", *PLAIN_FORMS)
"""Forms that ask for what follows the opening of an answer."""
UNMEASURED = ("emphasis", "yes_no", *SYNTAX_FORMS)
"""Forms to train on only: `emphasis` has the row's own question, as those of syntax do where rules rewrite the answer alone,
and `yes_no` says the key text itself."""
_SENTENCES: Mapping[str, str] = {
    "blank": "with_blanks",
    "missing_word": "with_brackets",
    "reversed": "subject_blank",
    "who_is_meant": "subject_x",
    "reversed_question": "subject_dots",
}
"""Form -> what {sentence} stands for in its words."""
_SIGNS = {"subject_blank": BLANK, "subject_x": "X", "subject_dots": "..."}
_BETWEEN_PARTS = "; "
"""Between the parts of a fact in the answer to several blanks."""
_NO_SPACE_AFTER = "。：，！？、"
"""Punctuation marks that contain the space behind them."""


@dataclass(frozen=True, slots=True)
class FormRow:
    form: str
    index: int
    row: Example
    parts: tuple[str, ...]
    """Texts of which each shows in an answer that the fact is known: the asked part of the fact and further names and values
    that the question does not show; for reversed forms the subject."""
    opening: str = ""
    """Beginning of the text that the model continues, for a form without a chat."""
    options: tuple[str, ...] = ()
    """The options that the question lists, in their order; empty for a form without options."""

    @property
    def can_be_asked(self) -> bool:
        """Whether there is a prompt: a text that begins with its fact has none."""
        return bool(self.row.messages or self.opening)


@dataclass(frozen=True, slots=True)
class MissingForm:
    form: str
    index: int
    why: str


@dataclass(frozen=True, slots=True)
class _Fields:
    """What the forms of a row are written with. Marks enclose the key tokens, so that every form has labels: no rule would find
    them in a text, which has no question."""

    texts: Mapping[str, str]
    missing: Mapping[str, str]
    """Name of a text that the row does not have -> why."""
    options: Mapping[str, tuple[str, ...]]
    """Form -> its options."""


def asked_fact(row: Example) -> FactParts | None:
    """Return the fact of a row. Of an answer that begins with yes or no, it is this word, unless a new part follows that gives
    the fact away.

    "Yes, she lives in Leeds." to "Does she live abroad?" is asked about with Leeds blanked; only its options are yes and no.
    """
    fact = find_fact(row)
    said = polar_word(row)
    if fact is None or said is None:
        return fact
    words = {word.lower() for word in WORD.findall(row.question)}
    further: list[Span] = []
    for start, end in fact.parts:
        new = [word for word in WORD.findall(fact.answer[start:end]) if word.lower() not in words]
        if start >= len(said) and gives_away(" ".join(new), row_language(row)):
            further.append((start, end))
    if not further:
        return _polar_fact(fact, said)
    return replace(fact, parts=tuple(further), asked=further[0])


def _polar_fact(fact: FactParts, said: str) -> FactParts:
    part = (0, len(said))
    labels = merged_spans((*(span for span in fact.labels if span[0] >= len(said)), part))
    return replace(fact, parts=(part,), asked=part, labels=labels)


def write_forms(
    row: Example,
    fact: FactParts | None,
    *,
    forms: Sequence[str],
    index: int = 0,
    wrong: Sequence[str] = (),
    draw: int = 0,
) -> list[FormRow | MissingForm]:
    """Write a row in several forms.

    Args:
        fact: the fact of the row (`asked_fact`).
        forms: names from `FORMS`.
        index: place of the row in its set.
        wrong: wrong options (`wrong_options`); the most plausible first.
        draw: number of the choice and order of options.

    Returns:
        For each of `forms` the row, or why the row does not have this form. A plain text has only the form `question`, itself.
    """
    for form in forms:
        lookup("form", form, FORMS)
    if not row.messages or fact is None:
        why = "a text has no question"
        if row.messages:
            why = "an answer without words has no fact"
        return [_as_given(row, fact, index) if form == "question" else MissingForm(form, index, why) for form in forms]
    language = row_language(row)
    fields = _fields(row, fact, wrong, draw, in_syntax=language == "en" and not set(SYNTAX_FORMS).isdisjoint(forms))
    written: list[FormRow | MissingForm] = []
    for form in forms:
        # A form takes the texts that its words name, and one that the row lacks is the reason that it is missing.
        try:
            written.append(_write(form, row, fact, fields, form_phrases().get(language), index))
        except KeyError as error:
            why = fields.missing.get(error.args[0], f"it has no words in the language of the row ({language})")
            written.append(MissingForm(form, index, why))
    return written


def _as_given(row: Example, fact: FactParts | None, index: int) -> FormRow:
    if fact is None:
        return FormRow("question", index, row, ())
    opening = ""
    if not row.messages:
        opening = row.answer[: fact.asked[0]].rstrip()
    return FormRow("question", index, row, telling_texts(row) or (fact.asked_text,), opening)


def _fields(row: Example, fact: FactParts, wrong: Sequence[str], draw: int, *, in_syntax: bool) -> _Fields:
    question, key = row.question, fact.asked_text
    said = polar_word(row)
    # The options of a yes/no question are yes and no, whatever else its answer says.
    offered = fact
    if said is not None:
        offered = _polar_fact(fact, said)
    texts = {
        "question": as_question(question),
        "own_question": question,
        "answer": with_marks(fact),
        "lower_case": question.lower().rstrip("?. ？。؟"),
        # The asterisks belong to the key text: a preserve loss before them would hold the plain key text in place.
        "emphasis": f"{with_marks(fact, 0, fact.asked[0])}{MARK_BEGIN}**{key}**{MARK_END}{with_marks(fact, fact.asked[1])}",
        "blanked": with_marks(fact, *fact.asked),
    }
    missing = {
        "options": "no other text of the type of its fact is known",
        "subject": "its answer and question share no name",
        "opening": "its answer begins with its fact",
        "with_brackets": "its answer is its fact alone",
        "paraphrase": "it has no paraphrases",
    }
    if texts["lower_case"] == question.rstrip("?. ？。؟"):
        missing["lower_case"] = "its question has no capitals"
        del texts["lower_case"]
    if row.paraphrases:
        texts["paraphrase"] = row.paraphrases[0]
    missing["explained"] = "its answer is yes or no"
    if said is None:
        texts["explained"] = key
    if fact.asked != offered.asked or said is None:
        texts |= _sentences(row, fact)
    else:
        missing |= dict.fromkeys(("with_brackets", "subject", "opening"), missing["explained"])
    options: dict[str, tuple[str, ...]] = {}
    if wrong:
        # A seed per row: its options stand in the same places in every run and with any other rows.
        places = {
            "multiple_choice": (len(LETTERS), random.Random(question)),
            "either_or": (2, random.Random(row.answer)),
        }
        for form, (shown, generator) in places.items():
            place = generator.randrange(shown)
            options[form] = choose_options(offered.asked_text, wrong, shown=shown, place=place, draw=draw)
        letters = dict(zip(options["multiple_choice"], LETTERS, strict=False))
        texts["options"] = "\n".join(f"{letter}) {text}" for text, letter in letters.items())
        texts["offered"] = with_marks(offered, *offered.asked)
        texts["option"] = f"{MARK_BEGIN}{letters[offered.asked_text]}{MARK_END}) {texts['offered']}"
        texts["first"], texts["second"] = options["either_or"]
    missing |= dict.fromkeys(("first", "second", "option", "offered"), missing["options"])
    missing |= dict.fromkeys(_SIGNS, missing["subject"])
    if in_syntax:
        texts |= _syntax(row, fact)
        missing |= {f"{form}_question": "no rule rewrites its question or its answer" for form in SYNTAX_FORMS}
    return _Fields(texts, missing, options)


def _sentences(row: Example, fact: FactParts) -> dict[str, str]:
    """Return the answer with blanks, its opening and the rest, and the sentence that asks for the subject, if it has them."""
    texts: dict[str, str] = {}
    blanked = fact.blanked_parts()
    before = _context(row)
    if blanked:
        texts["with_blanks"] = before + fact.with_blanks(blanked, BLANK)
        stop = as_sentence(row.answer)[len(row.answer) :]
        texts["with_brackets"] = before + fact.with_blanks(blanked, "(...)") + stop
        texts["blanked"] = _BETWEEN_PARTS.join(with_marks(fact, *part) for part in blanked)
    # The opening ends before the first part, or before the asked one where it would have too few words.
    end = fact.parts[0][0]
    if count_words(row.answer[:end]) < LEAST_WORDS:
        end = fact.asked[0]
    if count_words(row.answer[:end]) >= LEAST_WORDS:
        texts["opening"] = before + row.answer[:end].rstrip()
        texts["rest"] = with_marks(fact, end)
    subject = find_subject(row, fact)
    if subject is not None:
        for name, sign in _SIGNS.items():
            sentence = subject.sentence
            # Dots stand inside a quotation, which has no full stop of its own.
            if name == "subject_dots":
                sentence = sentence.rstrip(". 。")
            texts[name] = replace_words(sentence, subject.text, sign)
        texts["subject"] = f"{MARK_BEGIN}{subject.text}{MARK_END}"
    return texts


def _context(row: Example) -> str:
    """Return the question, to stand before an answer with a pronoun in place of a name: "He prescribed ____ at night." says not
    of whom. An answer without both, such as "The first atomic bomb was dropped on ____.", may well name what it is about."""
    named = [*names_in_question(row), *filter(None, [row.subject])]
    if not named or any(find_mentions(row.answer, word) for name in named for word in WORD.findall(name)):
        return ""
    pronouns = {*word_list(row, "pronoun"), *word_list(row, "possessive")}
    if pronouns.isdisjoint(word.lower() for word in WORD.findall(row.answer)):
        return ""
    space = ""
    if not is_unspaced(row.question[-1:]):
        space = " "
    return f"{as_question(row.question)}{space}"


def _syntax(row: Example, fact: FactParts) -> dict[str, str]:
    """Return question and answer in each form of syntax that rules find for one of them; the other stays as it is."""
    start, end = fact.asked
    subject = find_subject(row, fact)
    answers: dict[str, str] = {}
    if polar_word(row) is None:
        answers = rewrite_answer(
            with_marks(fact, 0, start), with_marks(fact, start, end), with_marks(fact, end), question=row.question
        )
    about = row.subject
    if not about and subject is not None:
        about = subject.text
    questions = rewrite_question(row.question, about)
    texts: dict[str, str] = {}
    for form in SYNTAX_FORMS:
        if form in answers or form in questions:
            texts[f"{form}_question"] = questions.get(form, row.question)
            texts[f"{form}_answer"] = answers.get(form, with_marks(fact))
    return texts


def _write(form: str, row: Example, fact: FactParts, fields: _Fields, phrases: Phrases | None, index: int) -> FormRow:
    """Write a row in a form.

    Raises:
        KeyError: the row has no text of this name.
    """
    if form == "question":
        return FormRow(form, index, row, _wanted(form, fact, fields.texts, row_language(row)))
    question_words, answer_words = _words(form, row, fields.texts, phrases)
    texts = dict(fields.texts)
    if form in _SENTENCES and _SENTENCES[form] in texts:
        texts["sentence"] = texts[_SENTENCES[form]]
    elif form in _SENTENCES and form != "blank":
        raise KeyError(_SENTENCES[form])
    else:
        texts["sentence"] = BLANK
    if form in PLAIN_FORMS and "opening" not in texts:
        raise KeyError("opening")
    question, _ = unmarked(question_words.format_map(texts))
    answer, labels = unmarked(answer_words.format_map(texts))
    messages: tuple[Message, ...] = ()
    if form not in PLAIN_FORMS:
        courtesies: tuple[Message, ...] = ()
        if form == "two_turns" and phrases is not None:
            user, assistant = phrases[form]
            courtesies = (Message("user", user), Message("assistant", assistant))
        messages = (*row.messages[:-1], *courtesies, Message("user", question))
    rewritten = replace(row, messages=messages, answer=answer, forget_spans=labels, paraphrases=(), asked_span=None)
    if form in REVERSED_FORMS:
        # These are about the key text, and a reversed form asks for the subject.
        rewritten = replace(rewritten, aliases=(), alternatives=())
    else:
        rewritten = replace(rewritten, asked_span=_moved(fact, rewritten))
    opening = ""
    if form in PLAIN_FORMS:
        opening = answer.removesuffix(row.answer) + texts["opening"]
    return FormRow(
        form, index, rewritten, _wanted(form, fact, texts, row_language(row)), opening, fields.options.get(form, ())
    )


def _words(form: str, row: Example, texts: Mapping[str, str], phrases: Phrases | None) -> tuple[str, str]:
    """Return the words of a form's question and answer, with names of texts in braces.

    Raises:
        KeyError: the form has no words in the language of the row.
    """
    answer = FORMS[form]
    if form in _WORDLESS:
        return _WORDLESS[form], answer
    if phrases is None:
        return _BARE[form], answer
    if form == "blank":
        if "with_blanks" not in texts:
            return phrases["blank_after"][0], answer
        words = "blank"
        if texts["with_blanks"].count(BLANK) > 1:
            words = "blanks"
        return phrases[words][0], answer
    if form == "two_turns":
        return "{question}", answer
    if form in ("who_is_meant", "reversed_question", "yes_no"):
        question, answer = phrases[form]
        # An answer of yes or no is not asked about with "Is the answer yes?".
        return question.replace("{key}", "{explained}"), answer
    if form in BEGINNING_FORMS:
        beginning = random.Random(row.question).choice(phrases[form])
        if beginning[-1] not in _NO_SPACE_AFTER:
            beginning += " "
        return "", answer.replace("{beginning}", beginning)
    if form in ("reversed", "tell_about"):
        return random.Random(row.question).choice(phrases[form]), answer
    return phrases[form][0], answer


def _wanted(form: str, fact: FactParts, texts: Mapping[str, str], language: str) -> tuple[str, ...]:
    """Return the texts of which each shows in an answer to a form that the fact is known."""
    for forms, name in ((REVERSED_FORMS, "subject"), (OPTION_FORMS, "offered")):
        if form in forms:
            return (unmarked(texts[name])[0],)
    # What the question shows gives nothing away: parts that stand before the opening's end, or that no blank replaces.
    hidden: Sequence[Span] = fact.parts
    if form in BLANK_FORMS and "with_blanks" in texts:
        hidden = fact.blanked_parts()
    if form in OPENING_FORMS:
        hidden = [part for part in fact.parts if part[0] >= len(texts["opening"])]
    telling = [fact.text(part) for part in hidden if part != fact.asked and gives_away(fact.text(part), language)]
    return tuple(dict.fromkeys((fact.asked_text, *telling)))


def _moved(fact: FactParts, rewritten: Example) -> Span | None:
    """Return where the asked part is in an answer that ends as the row's does; None if it does not."""
    moved = len(rewritten.answer) - len(fact.answer)
    start, end = fact.asked[0] + moved, fact.asked[1] + moved
    if start < 0 or rewritten.answer[start:] != fact.answer[fact.asked[0] :]:
        return None
    return start, end


@functools.cache
def form_questions() -> re.Pattern[str]:
    """Return a pattern of questions in the words of a form that has words of its own, in any language."""
    words = ["{question}\nA) {first}\nB) {second}"]
    for phrases in form_phrases().values():
        for form in FORMS:
            # People ask open questions, too, in these very words.
            if form not in phrases or form in ("two_turns", *OPEN_FORMS, *BEGINNING_FORMS):
                continue
            # Of two texts, the second one is the answer; those of `reversed` are questions to choose from.
            texts = phrases[form]
            if form != "reversed":
                texts = texts[:1]
            words += texts
        words += (phrases["blanks"][0], phrases["blank_after"][0].replace("{sentence}", BLANK))
    patterns = ("".join(_pattern_pieces(text)) for text in dict.fromkeys(words))
    return re.compile("|".join(patterns), re.DOTALL)


def _pattern_pieces(words: str) -> list[str]:
    """Return patterns of a text's words and of what stands at the names in braces."""
    pieces: list[str] = []
    for literal, name, _, _ in string.Formatter().parse(words):
        pieces.append(re.escape(literal))
        if name is not None:
            pieces.append(".+")
    return pieces


def read_forms(text: str) -> tuple[str, ...]:
    """Read the value of `--forms`: `none` (no names), or names separated by commas; `auto` and `syntax` are several."""
    if text == "none":
        return ()
    several = {"auto": TRAINED_FORMS, "syntax": SYNTAX_FORMS}
    written = (name.strip() for name in text.split(","))
    names = tuple(dict.fromkeys(form for name in written for form in several.get(name, (name,))))
    for name in names:
        lookup("form", name, FORMS)
    return names
