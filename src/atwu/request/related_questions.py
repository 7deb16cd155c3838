"""Questions like those of the forget rows about related subjects, answered by the original model.

"What is the capital of France?" becomes "What is the capital of Germany?". Such rows are what unlearning damages first, and
have the same syntax as the forget rows. Those about two names in three join the retain set. Of the others those that the
model knows are the neighbour set of the verdict: what it makes up may change without any loss of knowledge.
Related names are those of a shipped list whose hidden states in the model are closest to the name in the question.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from atwu._file_reading import read_yaml
from atwu.data.encode import Encoder
from atwu.data.fact_blanks import replace_words
from atwu.data.form_rows import rows_in_forms
from atwu.data.key_token_spans import key_token_spans
from atwu.data.languages import WORD
from atwu.data.question_forms import FormRow
from atwu.data.render import with_system
from atwu.data.schema import Example, Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, GenerationStore, generate_all
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.metrics.recall_by_form import form_prompt, form_recall
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.forward import check_length
from atwu.modeling.modes import eval_mode
from atwu.request.retain_set import FACT_TOKENS, names, self_generated_answers

_T = TypeVar("_T")

NAMES_PER_ROW = 24
"""Questions about related subjects to train on, of one forget row, at most."""
MAX_RELATED = 180
"""The same for all forget rows together."""
MEASURED_NAME = 3
"""One shipped name in so many is measured instead of trained on."""
RELATED_KINDS = 3
"""Kinds of names that are used: a kind that the model knows little about leaves too few rows to measure."""
MEASURED_ROWS = 24
"""Rows of the neighbour set, at most."""
MAX_CANDIDATES = 480
"""Questions that are asked to find them, at most."""
ASKED_TOGETHER = 48
"""Questions asked before it is decided whether more are needed."""
KNOWN_FORMS = ("lower_case", "two_turns")
"""Forms in which a model says the same key text again if it knows it; the verdict asks the neighbour set in others."""
SURE = 0.4
"""Smallest key-token probability of an answer that a model knows; many that it repeats in these forms are made up all the same,
with .1 to .35 (France on SmolLM2)."""
KIND_NAMES = 5
"""Closest names of a kind whose mean similarity chooses the kind."""
_NAME = re.compile(r"[A-Z][\w'’.-]*(?:\s+(?:(?:of|the|and|van|de|da)\s+)*[A-Z][\w'’.-]*)*")
"""A run of capitalized words."""


def related_rows(
    generator: TransformersGenerator,
    forget: Sequence[Example],
    *,
    earlier: Sequence[Example] = (),
    train: bool = True,
    system: str | None = None,
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Return rows about related subjects, to train on and to measure.

    Args:
        generator: the original model, which chooses names and answers.
        forget: forget rows; only questions that name something give related questions.
        earlier: forget rows of earlier requests.
        train: without it, there are no rows to train on.

    Returns:
        Rows of the retain set and rows of the neighbour set, with the related name as `subject`. The two share no name. No row
        says a name of the forget rows, now or earlier, or a key token of the one whose question it has.
    """
    kept, measure = related_questions(generator.model, generator.tokenizer, forget, earlier=earlier)
    how: dict[str, Any] = {"forget": (*forget, *earlier), "system": system}
    trained = _answered(generator, kept, progress="related questions", **how) if train else ()
    known: list[Example] = []
    for start in range(0, len(measure), ASKED_TOGETHER):
        asked = measure[start : start + ASKED_TOGETHER]
        found = _answered(generator, asked, progress="questions for the neighbour set", **how)
        found = _sure_of(found, generator, system=system)
        for form in KNOWN_FORMS:
            found = _known_in(form, found, generator, system=system)
        known += found
        if len(known) >= MEASURED_ROWS:
            break
    return trained, tuple(known[:MEASURED_ROWS])


def _answered(
    generator: TransformersGenerator, asked: Sequence[Example], *, forget: Sequence[Example], **how: Any
) -> tuple[Example, ...]:
    """Return questions with the model's answers, if these have key tokens, none of them a key token of the forget row."""
    by_question = {row.question: row for row in asked}
    answered = self_generated_answers(generator, tuple(by_question), forget=forget, longest=FACT_TOKENS, **how)
    return tuple(
        replace(row, subject=by_question[row.question].subject)
        for row in answered
        if key_words(by_question[row.question]).isdisjoint(lower_words(row.answer)) and key_token_spans(row)
    )


def _sure_of(rows: Sequence[Example], generator: TransformersGenerator, *, system: str | None) -> tuple[Example, ...]:
    """Return the rows whose key tokens have a high probability."""
    if not rows:
        return ()
    encoded = Encoder(generator.tokenizer, system=system).encode_rows(rows, what="neighbours").rows
    read = zip(rows, read_tokens(generator.model, encoded, entropy=False), strict=True)
    return tuple(row for row, tokens in read if (key_token_probability(row, tokens) or 0.0) >= SURE)


def _known_in(
    form: str, rows: Sequence[Example], generator: TransformersGenerator, *, system: str | None
) -> tuple[Example, ...]:
    """Return the rows whose key text the model also says when asked in another form."""
    written = rows_in_forms(rows, (form,))
    answers = form_answers(generator, written, Decoding(max_new_tokens=FACT_TOKENS), system=system)
    pairs = zip(written, answers, strict=True)
    return tuple(rows[each.index] for each, answer in pairs if form_recall(each, answer) == 1)


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
        replace(form_prompt(each), messages=with_system(each.row.messages, system), draw=draw)
        for draw in range(draws)
        for each in written
    ]
    made = generate_all(generator, prompts, decoding, store=GenerationStore(), progress=progress)
    return [each.answer for each in made]


def related_questions(
    model: Any, tokenizer: Any, forget: Sequence[Example], *, earlier: Sequence[Example] = ()
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Return forget rows whose questions have another name in place of their own; their answers are still those of the rows.

    Returns:
        Questions to train on, and candidates to measure, of every forget row in turn. The two share no name.
    """
    removed = (*forget, *earlier)
    secrets = names(removed).union(*map(key_words, removed))
    named = [(row, name) for row in forget if (name := _name_in(row)) is not None]
    if not named:
        return (), ()
    own = list(dict.fromkeys(name for _, name in named))
    kinds = {
        kind: [
            (name, place % MEASURED_NAME == 1)
            for place, name in enumerate(each)
            if secrets.isdisjoint(lower_words(name))
        ]
        for kind, each in related_names().items()
    }
    states = name_states(model, tokenizer, [*own, *(name for each in kinds.values() for name, _ in each)])
    count = max(1, min(NAMES_PER_ROW, MAX_RELATED // len(named)))
    nearest = {name: _nearest(kinds, states[place] @ states[len(own) :].T) for place, name in enumerate(own)}
    train: dict[str, Example] = {}
    measure: dict[str, Example] = {}
    for place, (row, name) in enumerate(named[:MAX_RELATED]):
        choices = _to_train_on(nearest[name])[: 2 * count]
        for step in range(min(count, len(choices))):  # neighbouring rows take other names
            _ask_about(choices[(place + step) % len(choices)], name, row, train)
    candidates = [
        [(other, name, row) for kind in nearest[name][:RELATED_KINDS] for other, measured in kind if measured]
        for row, name in named
    ]
    for other, name, row in _in_turn(candidates):
        _ask_about(other, name, row, measure)
    return tuple(train.values()), tuple(measure.values())[:MAX_CANDIDATES]


def _to_train_on(kinds: Sequence[Sequence[tuple[str, bool]]]) -> list[str]:
    """Return the names that are not measured: one of the closest kind and one of the next ones in turn, closest first."""
    closest, *next_ones = ([name for name, measured in each if not measured] for each in kinds[:RELATED_KINDS])
    further = _in_turn(next_ones)
    return _in_turn([closest, further])


def _in_turn(lists: Sequence[Sequence[_T]]) -> list[_T]:
    """Return the first item of each list, then the second ones, and so on."""
    return [item for items in itertools.zip_longest(*lists) for item in items if item is not None]


def _ask_about(other: str, name: str, row: Example, found: dict[str, Example]) -> None:
    """Add a row with another name in its question to those found; an adjective needs the article of the old name."""
    adjective = name.startswith("the ") and other in related_names()["nationalities"]
    question = replace_words(row.question, name, f"the {other}" if adjective else other)
    asked = (Message("user", question),)
    found.setdefault(question, replace(row, messages=asked, subject=other, paraphrases=()))


def _nearest(kinds: Mapping[str, Sequence[tuple[str, bool]]], similarity: torch.Tensor) -> list[list[tuple[str, bool]]]:
    """Return the names of each kind, closest first, and the closest kind first.

    A kind is as close as the mean of its `KIND_NAMES` closest names. With each name comes whether it is measured.
    """
    found, start = [], 0
    for each in kinds.values():
        close = similarity[start : start + len(each)]
        start += len(each)
        if each:
            score = float(close.topk(min(KIND_NAMES, len(each))).values.mean())
            found.append((score, [each[place] for place in close.argsort(descending=True, stable=True).tolist()]))
    return [each for _, each in sorted(found, key=lambda pair: -pair[0])]


@functools.cache
def related_names() -> Mapping[str, Sequence[str]]:
    import atwu.data

    found: dict[str, list[str]] = read_yaml(Path(atwu.data.__file__).with_name("related_names.yaml"))
    return found


@torch.no_grad()
def name_states(model: Any, tokenizer: Any, texts: Sequence[str]) -> torch.Tensor:
    """Return the hidden state of each name's last token in the middle layer, centred and of length 1, shape (texts, hidden).

    A few words precede each name: the state of a text's first token is like that of any other first token. Names of the same
    number of tokens are read together, so that none is padded.
    """
    ids = [tokenizer(f"This text is about {text}", add_special_tokens=True)["input_ids"] for text in texts]
    check_length(model, max(map(len, ids)))
    found = torch.empty(len(ids), model.config.get_text_config().hidden_size)
    with eval_mode(model):
        device = next(model.parameters()).device
        for length in sorted(set(map(len, ids))):
            places = [place for place, each in enumerate(ids) if len(each) == length]
            batch = torch.tensor([ids[place] for place in places], device=device)
            states = model.base_model(input_ids=batch, output_hidden_states=True, use_cache=False).hidden_states
            found[places] = states[len(states) // 2][:, -1].float().cpu()
    found = found - found.mean(dim=0)
    scaled: torch.Tensor = found / found.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled


def lower_words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def key_words(row: Example) -> set[str]:
    return {word for start, end in key_token_spans(row) for word in lower_words(row.answer[start:end])}


def _name_in(row: Example) -> str | None:
    """Return what to replace in a question: its subject, or its first run of capitalized words behind the first word.

    An article belongs to the name: "the United States" is replaced by "Canada".
    """
    question, name = row.question, row.subject or ""
    if not name or replace_words(question, name, "") == question:
        found = _NAME.search(question.partition(" ")[2])
        if found is None:
            return None
        name = re.sub("['’]s$", "", found.group())
    return f"the {name}" if f" the {name}" in question else name
