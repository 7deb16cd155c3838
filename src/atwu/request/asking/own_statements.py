"""What a model says about a subject by itself, turned into questions by the model: a source beside the templates.

Nothing here has to be right: every question is asked like any other, and what the model does not repeat is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from atwu.data.answer_units import candidate_spans
from atwu.data.fact_blanks import find_mentions
from atwu.data.matching import states
from atwu.data.passages import sentences
from atwu.data.schema import Example
from atwu.evaluation.generations import Prompt
from atwu.request.asking.subject_asker import SubjectAsker, SubjectPrompt
from atwu.request.asking.subject_templates import OWN_QUESTION, SubjectQuestion

_REQUESTS = (
    "Tell me some facts about {name}.",
    "What should everybody know about {name}?",
    "Write three short sentences about the history of {name}.",
)
STATEMENT_TEMPERATURE, STATEMENT_DRAWS = 0.7, 2
"""How each request is answered: above temperature 0 a model tells more, and what it makes up is dropped when it is asked. One
temperature is one batch: of so few texts, each token costs as much time as of many."""
_STATEMENT_TOKENS = 64
_QUESTION_TOKENS = 20
MOST_STATEMENTS = 12
"""Statements that are turned into questions, at most."""
_LONGEST_STATEMENT = 30
"""Words of a statement, at most: of longer ones small models ask vague questions."""
_SHOWN = (
    ("The Amazon flows through Brazil.", "Which river flows through Brazil?"),
    ("Marie Curie won the Nobel Prize in Physics in 1903.", "Which prize did Marie Curie win in 1903?"),
    ("Toyota has its headquarters in Aichi.", "Where does Toyota have its headquarters?"),
)
"""Statements with their questions, as the model is shown them."""


def own_questions(asker: SubjectAsker, subject: str) -> list[SubjectQuestion]:
    """Return questions whose answers are what a model says about a subject by itself."""
    requests = [request.replace("{name}", subject) for request in _REQUESTS]
    askings = [
        asker.question(request, temperature=STATEMENT_TEMPERATURE, draw=draw, tokens=_STATEMENT_TOKENS)
        for draw in range(STATEMENT_DRAWS)
        for request in requests
    ]
    texts = asker.ask(askings, progress=f"what it says about {subject} by itself")
    statements = [sentence for text in texts for sentence in sentences(text) if _is_statement(sentence, subject)]
    chosen = list(dict.fromkeys(statements))[:MOST_STATEMENTS]
    questions = questions_from(asker, chosen, subject=subject, source=OWN_QUESTION).values()
    return list({question.question.lower(): question for question in questions}.values())


def questions_from(
    asker: SubjectAsker, statements: Sequence[str], *, source: str, subject: str | None = None
) -> dict[str, SubjectQuestion]:
    """Return statement -> a question of the model that it answers, without questions that show their answer.

    Args:
        subject: what every question must name; None if it may be about anything.
    """
    askings = [_question_asking(asker, statement) for statement in statements]
    written = asker.ask(askings, stop=("\n",), progress="questions about its statements")
    questions: dict[str, SubjectQuestion] = {}
    for statement, text in zip(statements, written, strict=True):
        question = text.partition("?")[0].strip() + "?"
        if _asks_for_part(question, statement, subject):
            questions[statement] = SubjectQuestion((question,), source, subject, statement)
    return questions


def _question_asking(asker: SubjectAsker, statement: str) -> SubjectPrompt:
    shown = "\n\n".join(f"Sentence: {said}\nQuestion: {question}" for said, question in _SHOWN)
    text = f"{shown}\n\nSentence: {statement}\nQuestion:"
    if asker.read is not None:
        return SubjectPrompt(Prompt((), prefill=text), tokens=_QUESTION_TOKENS)
    return asker.question(f"Write one question that the last sentence answers.\n\n{text}", tokens=_QUESTION_TOKENS)


def _is_statement(sentence: str, subject: str) -> bool:
    named = bool(find_mentions(sentence, subject))
    return named and sentence.endswith((".", "。")) and len(sentence.split()) <= _LONGEST_STATEMENT


def _asks_for_part(question: str, statement: str, subject: str | None) -> bool:
    """Whether a question has enough words, names the subject, and leaves out something that the statement says."""
    if len(question.split()) < 4:
        return False
    if subject is not None and not find_mentions(question, subject):
        return False
    row = Example.from_qa(question, statement)
    parts = [statement[start:end] for start, end in candidate_spans(row)]
    return any(not states(question, part) for part in parts)
