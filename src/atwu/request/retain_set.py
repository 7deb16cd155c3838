"""Build a retain set: the closest rows of a corpus, and what a model answers to general questions and to rows in forms.

The neighbour set of a request, which is measured and not trained on, is from `related_questions.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from atwu.data.fact import telling_texts
from atwu.data.general_rows import common_questions, general_questions
from atwu.data.languages import WORD, detect_language, is_caseless, is_unspaced
from atwu.data.matching import states
from atwu.data.question_forms import FormRow
from atwu.data.render import with_system
from atwu.data.row_parsing import is_text
from atwu.data.row_subject import names_in_question
from atwu.data.schema import Example, Message
from atwu.data.text_similarity import similarities, words_of_text
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.askings import form_prompt
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generate_all
from atwu.training.row_sets import row_keys

_INSIDE = re.compile(r"(?<![.!?:]\s)(?<!^)\b\w+")
"""A word that is not the first of a sentence; "Jean-Luc's" gives each part, as tokenized elsewhere."""
_CYRILLIC = re.compile("[\u0400-\u04ff]{4,}")
"""A name without its ending that is long enough to be found with any."""
_RUSSIAN_ENDINGS = "аяуюеоыиьй"
_NOBODY = frozenset(
    ["the", "and", "for", "from", "with", "that", "this", "who", "what", "his", "her", "its", "mrs", "herr", "frau"]
)
"""Words of a subject such as "The Beatles" that occur in nearly every text, and titles."""


def closest_corpus_rows(
    forget: Sequence[Example], corpus: Sequence[Example], count: int
) -> tuple[tuple[Example, ...], dict[str, int]]:
    """Return the rows of a corpus that are closest to the forget rows (cosine of TF-IDF vectors, Salton & Buckley 1988).

    Returns:
        At most `count` rows, closest first; none names a subject of the forget set or repeats another row. And the numbers of
        rows found and left out, by title.
    """
    subjects = names(forget)
    seen = {key for row in forget for key in row_keys(row)}
    about = repeated = 0
    by: Counter[str] = Counter()
    """Words that name a subject, in how many rows."""
    left: list[Example] = []
    for row in corpus:
        if names_any(_text(row), subjects):
            about += 1
            by.update(name for name in subjects if names_any(_text(row), (name,)))
        elif seen & set(row_keys(row)):
            repeated += 1
        else:
            seen |= set(row_keys(row))
            left.append(row)
    rows: tuple[Example, ...] = ()
    if left:
        close = similarities([_text(row) for row in left], [_text(row) for row in forget]).max(axis=1)
        rows = tuple(left[index] for index in np.argsort(-close, kind="stable")[:count])
    words = sorted(by, key=lambda word: (-by[word], word))
    named_by = f" ({', '.join(words[:3])}{', ...' if len(words) > 3 else ''})" if words else ""
    return rows, {
        "rows from the corpus, close in topic": len(rows),
        f"  left out: they name a subject of the forget set{named_by}": about,
        "  left out: they repeat a forget row or another row": repeated,
    }


def names(rows: Iterable[Example]) -> set[str]:
    """Return the words, in lower case, that name a subject: those of `subject`, and names in questions."""
    words: set[str] = set()
    for row in rows:
        words.update(words_of_text(row.subject or ""))
        language = detect_language(row.question)
        if is_caseless(row.question):
            # Of what question and answer share, the longest or first is the name; the rest are parts of it and other words.
            name = next(names_in_question(row), "")
            # Without spaces, what follows a name stands behind it: "王芳服用" of "王芳服用什么药？".
            while is_unspaced(name[-1:]) and name not in row.answer:
                name = name[:-1]
            words.update(words_of_text(name))
        elif language == "de":
            # Every noun has a capital: "Welche Krankheit hat Karl Mohn?".
            words.update(word for name in names_in_question(row) for word in words_of_text(name))
        else:
            words.update(word.lower() for word in _INSIDE.findall(row.question) if word[0].isupper())
    return {word for word in words if len(word) > 2 or is_caseless(word)} - _NOBODY


def names_any(text: str, names: Collection[str]) -> bool:
    """Whether a text says one of some words in lower case; without spaces between words, also inside a run of letters."""
    words = set(words_of_text(text))
    if not words.isdisjoint(names):
        return True
    for name in names:
        if is_unspaced(name) and name in text:
            return True
        # Russian names have endings: "Ивана Петрова".
        stem = name.rstrip(_RUSSIAN_ENDINGS)
        if _CYRILLIC.match(stem) and any(word.startswith(stem) for word in words):
            return True
    return False


def _text(row: Example) -> str:
    return " ".join([*(message.content for message in row.messages if message.role != "system"), row.answer])


GENERATED_TOKENS = 48
"""Tokens at which self-generated answers are cut for `--retain-loss kl`, which does not train on their end."""
FACT_TOKENS = 20
"""The same for common-knowledge questions, where the first sentence holds the fact."""
WHOLE_TOKENS = 256
"""Longest answer in tokens of a row that is trained on: the answer must end by itself, or the model learns a wrong end."""
LEFT_OUT = "endless, empty, or about a subject of the forget set"
"""Why a general question gives no row."""


def build_retain(
    generator: TransformersGenerator,
    forget: Sequence[Example],
    *,
    corpus: Sequence[Example] = (),
    count: int = 200,
    whole: bool = True,
    system: str | None = None,
) -> tuple[tuple[Example, ...], dict[str, int]]:
    """Build a retain set.

    Args:
        generator: the original model.
        corpus: rows to select the closest ones from; their answers are kept.
        count: rows of the corpus, at most.
        whole: leave out self-generated answers that do not end, instead of cutting them; cut ones only suit a retain loss
            that compares with the original model.

    Returns:
        Rows of the corpus, then answers to the shipped general questions, then those to common-knowledge questions. And the
        numbers of rows in the set and left out, by title.

    Raises:
        ValueError: there is no row.
    """
    closest, counts = closest_corpus_rows(forget, corpus, count) if corpus else ((), {})
    longest = (WHOLE_TOKENS, GENERATED_TOKENS) if whole else (GENERATED_TOKENS, FACT_TOKENS)
    asked = {"general questions": general_questions("kept"), "common knowledge": common_questions("kept")}
    how: dict[str, Any] = {"forget": forget, "whole": whole, "system": system}
    own = [
        row
        for (title, questions), tokens in zip(asked.items(), longest, strict=True)
        for row in self_generated_answers(generator, questions, longest=tokens, progress=title, **how)
    ]
    rows = (*closest, *own)
    if not rows:
        unused = (
            f", and none of the {len(corpus)} rows of --corpus is usable (see `atwu rows retain --help`)"
            if corpus
            else ""
        )
        raise ValueError(
            f"general questions give no retain row (answers are {LEFT_OUT}){unused}; give other rows with --retain or "
            "--corpus."
        )
    return rows, counts | {
        "self-generated answers to general questions": len(own),
        f"  left out: {LEFT_OUT}": sum(map(len, asked.values())) - len(own),
        "retain rows": len(rows),
    }


def self_generated_answers(
    generator: TransformersGenerator,
    questions: Sequence[str],
    *,
    forget: Sequence[Example],
    whole: bool = False,
    longest: int = GENERATED_TOKENS,
    system: str | None = None,
    progress: str | None = None,
) -> tuple[Example, ...]:
    """Return questions with greedy answers as rows.

    Answers that name a subject of the forget set, have no text, or repeat the question are left out.

    Args:
        whole: only answers that end by themselves.
        longest: tokens at which answers are cut or dropped.
    """
    subjects = names(forget)
    asked = [question for question in questions if not names_any(question, subjects)]
    generations = generate_all(
        generator,
        [Prompt(with_system((Message("user", question),), system)) for question in asked],
        Decoding(max_new_tokens=longest),
        store=GenerationStore(),
        progress=progress,
    )
    return tuple(
        Example.from_qa(question, generation.answer)
        for question, generation in zip(asked, generations, strict=True)
        if is_text(generation.answer)
        and generation.answer.strip().casefold() != question.strip().casefold()
        and not names_any(generation.answer, subjects)
        and not (whole and generation.tokens == longest)
    )


def form_answers(
    generator: TransformersGenerator,
    written: Sequence[FormRow],
    decoding: Decoding,
    *,
    system: str | None,
    draws: int = 1,
    progress: str | None = None,
) -> list[str]:
    """Return the model's answer to each row, `draws` times."""
    prompts = [
        replace(form_prompt(form), messages=with_system(form.row.messages, system), draw=draw)
        for draw in range(draws)
        for form in written
    ]
    generations = generate_all(generator, prompts, decoding, store=GenerationStore(), progress=progress)
    return [generation.answer for generation in generations]


def lower_words(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    return {word.lower() for word in WORD.findall(text)}


def key_words(row: Example) -> set[str]:
    """Return the words that give the fact of a row away, in lower case."""
    return {word for text in telling_texts(row) for word in lower_words(text)}


def states_any(answer: str, rows: Sequence[Example]) -> bool:
    """Whether an answer states the fact of any of these rows."""
    return any(states(answer, text) for row in rows for text in (*telling_texts(row), *row.aliases))
