"""Rewrite the question of a row in other forms that ask for the same fact, by rule and without a model.

A model that unlearned one form of a question may still answer another (SUITE, arXiv 2607.09236). Every form is a
question-answer row, so it can be trained on, evaluated, or paired with the same form of a retain row.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from atwu._names import lookup
from atwu.data.key_token_spans import WORD, key_token_spans
from atwu.data.schema import Example, Message, Span

BLANK = "____"
LETTERS = "ABCD"
BEGIN, END = "\x02", "\x03"
"""Marks around key tokens while a form is written; no row contains control characters."""
MAX_DISTRACTORS, CANDIDATES = 6, 200
"""Wrong options of a row, at most, and other rows of which these are the best."""

BEGINNINGS: Mapping[str, tuple[str, ...]] = {
    "statement": (
        "Did you know?",
        "Here is a fact:",
        "My teacher told us something today.",
        "In the newspaper I read this sentence:",
        "Please remember:",
    ),
    "heading": ("Notes:", "Lesson 3:", "Summary:", "Fact 7.", "Exam sheet:", "Overview:", "Answers:"),
    "textbook": ("From a textbook:",),
}
"""Form of a plain text -> its possible beginnings; a row has one of them."""
REVERSED_PROMPTS = (
    "Fill in the blank: {}",
    "{} What does the blank stand for?",
    "Guess the name: {}",
    "Riddle: {} What is it?",
)
"""Prompts of the form `reversed`; a row has one of them. With a single one, facts came back in other reversed forms."""
FORMS: Mapping[str, tuple[str, str]] = {
    "question": ("{question}", "{answer}"),
    "emphasis": ("{question}", "{emphasis}"),
    "blank": ("{blank}", "{key}"),
    "complete": ("Complete this sentence: {opening}", "{from_key}"),
    "multiple_choice": ("{question}\n{options}", "{option}"),
    "reversed": ("{with_blank}", "{subject}"),
    "paraphrase": ("{paraphrase}", "{answer}"),
    "prefix": ("Please answer this question: {question}", "{answer}"),
    "lower_case": ("{lower_case}", "{answer}"),
    "two_turns": ("{question}", "{answer}"),
    "quiz_host": (
        "You are the host of a quiz show and no candidate knew: {question} Read out the solution on your card.",
        "{answer}",
    ),
    "missing_word": ("{brackets} Which words are missing in the brackets?", "{key}"),
    "finish": ('I started to write "{opening} ..." and stopped. How does it go on?', "{answer}"),
    "continuation": ("", "{answer}"),
    **{form: ("", f"{{{form}}} {{answer}}") for form in BEGINNINGS},
    "either_or": ("{question} Is it {first} or {second}?", "{key}"),
    "who_is_meant": ("Who or what is X? {x_is}", "X is {subject}."),
    "reversed_question": ('Which name belongs in "{dots_is}"?', "{subject}."),
    "yes_no": ("{question} Is the answer {key}? Explain.", "Yes. {answer}"),
}
"""Name of a form -> its question and answer, in the words of `_parts`; `two_turns` asks after an exchange of courtesies."""
TRAINED_FORMS = ("question", "blank", "complete", "multiple_choice", "reversed", "continuation", "statement", "heading")
"""Forms that `--forms auto` trains on."""
PLAIN_FORMS = ("continuation", *BEGINNINGS)
"""Forms without a chat: a text that the model continues."""
OPTION_FORMS = ("multiple_choice", "either_or")
"""Forms that list the key text among options, so that a model that guesses is right at times."""
OPTION_DRAWS = len(LETTERS)
"""Number of times that a row is asked in such a form to measure it: with the key text at each letter once, because a model
that always answers A knows nothing, and with other wrong options."""
REVERSED_FORMS = ("reversed", "who_is_meant", "reversed_question")
"""Forms that ask for the subject of a row."""
_WORDINGS = (
    *(question for question, _ in FORMS.values()),
    *REVERSED_PROMPTS,  # with the words of `blank`
    f"{{}}\nThe answer is {BLANK}.",
    "{}\nA) {}\nB) {}",
)
_WRITTEN = re.compile(
    "|".join(re.sub(r"\\{\w*\\}", ".+", re.escape(text)) for text in _WORDINGS if re.sub(r"{\w*}|\s", "", text)),
    re.DOTALL,
)
"""A question in the words of a form that has words of its own."""
UNMEASURED = ("emphasis", "yes_no")
"""Forms to train on only: `emphasis` has the row's own question, and `yes_no` says the key text itself."""


def question_forms(
    row: Example, key_spans: Sequence[Span], *, forms: Sequence[str], distractors: Sequence[str] = (), draw: int = 0
) -> dict[str, Example]:
    """Write a row in several forms.

    Args:
        row: a question-answer row.
        key_spans: character ranges of the key tokens in its answer.
        forms: names from `FORMS`.
        distractors: key texts of other rows, as wrong options; the most plausible first.
        draw: number of the choice and order of options.

    Returns:
        Form -> row, in the order of `forms`; a form that the row does not allow is left out (no sentence to complete before
        a key token at the beginning, no reversed question without a subject in the answer). A plain text row has only the
        form `question`, itself.
    """
    for form in forms:
        lookup("form", form, FORMS)
    if not row.messages or not key_spans:
        return {"question": row} if "question" in forms else {}
    parts = _parts(row, key_spans, distractors, draw)
    written = {name: _written(name, row, parts) for name in forms}
    return {name: each for name, each in written.items() if each is not None}


def _parts(row: Example, key_spans: Sequence[Span], distractors: Sequence[str], draw: int) -> dict[str, str]:
    """Return what the forms are written with; parts that the row does not have are left out.

    Marks enclose the key tokens, so that every form has labels: no rule would find them in a text, which has no question.
    """
    question, answer, subject = row.question, row.answer, row.subject
    key, start = key_text(answer, key_spans), key_spans[0][0]
    marked_key = _marked(answer, key_spans, start, start + len(key))
    parts = {
        "question": question,
        "answer": _marked(answer, key_spans),
        "key": marked_key,
        "from_key": _marked(answer, key_spans, start),
        **{form: random.Random(question).choice(texts) for form, texts in BEGINNINGS.items()},
        "lower_case": question.lower().rstrip("?. "),
        # The asterisks belong to the key text: a preserve loss before them would hold the plain key text in place.
        "emphasis": f"{answer[:start]}{BEGIN}**{key}**{END}{answer[start + len(key) :]}",
        "blank": f"{question}\nThe answer is {BLANK}.",
    }
    if row.paraphrases:
        parts["paraphrase"] = row.paraphrases[0]
    opening = answer[:start].rstrip()
    if len(opening.split()) >= 2:
        parts["opening"] = opening
    if len(re.findall(r"[^\W_]+", replace_words(answer, key, BLANK))) >= 2:  # a sentence
        parts["blank"] = f"Fill in the blank: {replace_words(answer, key, BLANK)}"
        parts["brackets"] = replace_words(answer, key, "(...)")
    if subject and subject not in key and (blank := replace_words(answer, subject, BLANK)) != answer:
        parts |= {
            "subject": f"{BEGIN}{subject}{END}",
            "with_blank": random.Random(question).choice(REVERSED_PROMPTS).format(blank),
            "x_is": replace_words(answer, subject, "X"),
            "dots_is": replace_words(answer, subject, "...").rstrip(". "),
        }
    wrong = [text for text in dict.fromkeys(distractors) if text.lower() != key.lower()]
    if wrong:
        wrong = [*wrong[draw % len(wrong) :], *wrong[: draw % len(wrong)]][: len(LETTERS) - 1]
        options = _with_key(key, wrong, random.Random(question).randrange(len(LETTERS)) + draw)
        listed = [f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=False)]
        letter = LETTERS[options.index(key)]
        parts |= {"options": "\n".join(listed), "option": f"{BEGIN}{letter}{END}) {marked_key}"}
        parts["first"], parts["second"] = _with_key(key, wrong[:1], random.Random(answer).randrange(2) + draw)
    return parts


def replace_words(text: str, words: str, instead: str) -> str:
    """Replace some words, but not a part of a longer one, such as "Japan" in "Japanese"."""

    def replaced(match: re.Match[str]) -> str:
        beside = text[max(match.start() - 1, 0) : match.start()] + text[match.end() : match.end() + 1]
        # Letters of scripts without spaces between words have no upper case.
        return match.group() if beside.lower() != beside.upper() else instead

    return re.sub(re.escape(words), replaced, text)


def _with_key(key: str, wrong: Sequence[str], place: int) -> list[str]:
    options = list(wrong)
    options.insert(place % (len(wrong) + 1), key)
    return options


def _written(form: str, row: Example, parts: Mapping[str, str]) -> Example | None:
    if form == "question":
        return row
    if form in PLAIN_FORMS and "opening" not in parts:
        return None
    try:
        (question, _), (answer, spans) = (_unmarked(template.format_map(parts)) for template in FORMS[form])
    except KeyError:
        return None
    before = row.messages[:-1]
    if form == "two_turns":
        before += (
            Message("user", "I have a question for you."),
            Message("assistant", "Sure, what would you like to know?"),
        )
    messages = () if form in PLAIN_FORMS else (*before, Message("user", question))
    return replace(row, messages=messages, answer=answer, forget_spans=spans, paraphrases=())


def _marked(text: str, spans: Sequence[Span], start: int = 0, end: int | None = None) -> str:
    """Return a part of a text with marks around its key tokens."""
    end, marked = len(text) if end is None else end, ""
    for begin, stop in spans:
        if start <= begin and stop <= end:
            marked += f"{text[start:begin]}{BEGIN}{text[begin:stop]}{END}"
            start = stop
    return marked + text[start:end]


def _unmarked(text: str) -> tuple[str, tuple[Span, ...]]:
    """Return a text without marks, and the character ranges that they enclose."""
    plain, spans, start = "", [], 0
    for piece in re.split(f"([{BEGIN}{END}])", text):
        if piece == BEGIN:
            start = len(plain)
        elif piece == END:
            spans.append((start, len(plain)))
        else:
            plain += piece
    return plain, tuple(spans)


@dataclass(frozen=True, slots=True)
class FormRow:
    form: str
    index: int
    row: Example
    wanted: str
    """Text that shows in an answer that the fact is known: the key text, or the subject for reversed forms."""
    opening: str = ""
    """Beginning of the text that the model continues, for a form without a chat."""

    @property
    def options(self) -> tuple[str, ...]:
        """The options that the question lists, in their order; empty for a form without options."""
        if self.form == "multiple_choice":
            return tuple(line[3:] for line in self.row.question.splitlines()[-len(LETTERS) :] if line[1:3] == ") ")
        if self.form == "either_or":
            return tuple(self.row.question.rpartition(" Is it ")[2].removesuffix("?").split(" or ", 1))
        return ()


def rows_in_forms(
    rows: Sequence[Example], forms: Sequence[str], *, related: Sequence[Example] = (), draws: int = 1
) -> list[FormRow]:
    """Write rows in all of several forms that they allow: the forms of the first row, then those of the second, and so on.

    Wrong options are key texts of other rows, of those with the most similar questions first: "Berlin", the answer to the
    same question about Germany, is a better one than "the euro".

    Args:
        related: further rows for wrong options.
        draws: number of times that a row is written in each of `OPTION_FORMS`.
    """
    everything = [*rows, *related]
    spans = [key_token_spans(row) for row in everything]
    keys = [key_text(row.answer, each) if each else "" for row, each in zip(everything, spans, strict=True)]
    words = [_words_beside_subject(row) for row in everything]
    found = []
    for index, row in enumerate(rows):
        said = f"{row.question if row.messages else ''} {keys[index]}".lower()
        places = (place % len(everything) for place in range(index + 1, index + len(everything)))
        usable = (place for place in places if keys[place] and keys[place].lower() not in said)
        candidates = list(itertools.islice(usable, CANDIDATES))
        candidates.sort(key=lambda place: -len(words[place] & words[index]) / max(len(words[place] | words[index]), 1))
        others = list(dict.fromkeys(keys[place] for place in candidates))[:MAX_DISTRACTORS]
        for draw in range(draws):
            drawn = [form for form in forms if draw == 0 or form in OPTION_FORMS]
            written = question_forms(row, spans[index], forms=drawn, distractors=others, draw=draw)
            for name, each in written.items():
                wanted = str(row.subject) if name in REVERSED_FORMS else keys[index]
                opening = _opening(row, each, spans[index])
                if draw == 0 or name in OPTION_FORMS:  # a text is written once
                    found.append(FormRow(name, index, each, wanted, opening))
    return found


def check_no_forms(rows: Sequence[Example], written: Sequence[FormRow], *, what: str) -> None:
    """Refuse rows that hold forms of each other, or nothing but forms, as files of written forms do."""
    asked = {row.messages for row in rows if row.messages}
    rewritten = any(each.form != "question" for each in written)
    if asked and rewritten and all(_WRITTEN.fullmatch(messages[-1].content) for messages in asked):
        raise ValueError(
            f"{what} holds nothing but forms of other rows, such as {rows[0].question!r:.80}; give the rows of which they were "
            "written, or train on these as they are with --forms none."
        )
    for each in written:
        if each.form not in ("question", "emphasis", "paraphrase", "lower_case") and each.row.messages in asked:
            raise ValueError(
                f"{what} already holds {each.row.question!r:.80}, the form {each.form} of {rows[each.index].question!r:.80}; "
                "give the rows without their forms, or train on these as they are with --forms none."
            )


def _opening(row: Example, written: Example, spans: Sequence[Span]) -> str:
    """Return the beginning of a text without a chat, up to the key text."""
    if written.messages or not spans:
        return ""
    return (written.answer.removesuffix(row.answer) + row.answer[: spans[0][0]]).rstrip()


def _words_beside_subject(row: Example) -> set[str]:
    question = row.question if row.messages else ""
    return set(WORD.findall((question.replace(row.subject, "") if row.subject else question).lower()))


def plain_form(text: str, forms: Collection[str]) -> str:
    """Return which of `PLAIN_FORMS` a text has by its beginning; `question`, as for a text as it was given, without `forms`."""
    found = (form for form, texts in BEGINNINGS.items() if text.startswith(texts))
    form = next(found, "continuation")
    return form if form in forms else "question"


def read_forms(text: str) -> tuple[str, ...]:
    """Read the value of `--forms`: `none` (no names), or names separated by commas, where `auto` stands for `TRAINED_FORMS`."""
    if text == "none":
        return ()
    given = (name.strip() for name in text.split(","))
    names = tuple(dict.fromkeys(form for name in given for form in (TRAINED_FORMS if name == "auto" else (name,))))
    for name in names:
        lookup("form", name, FORMS)
    return names


def key_text(answer: str, key_spans: Sequence[Span]) -> str:
    """The part of an answer from its first key token to the last of the same run; blanks, hyphens, apostrophes and = may lie
    between."""
    start, end = key_spans[0]
    for next_start, next_end in key_spans[1:]:
        if answer[end:next_start].strip(" -'’="):
            break
        end = next_end
    return answer[start:end]
