"""Questions like those of the forget rows about related subjects, answered by the original model.

"What is the capital of France?" becomes "What is the capital of Germany?". Such rows are what unlearning damages first, and
have the same syntax as the forget rows. Those of three names in four join the retain set, the others are the neighbour set of
the verdict.
Related names are those of a shipped list whose hidden states in the model are closest to the name in the question.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from atwu._file_reading import read_yaml
from atwu.data.key_token_spans import WORD, key_token_spans
from atwu.data.question_forms import replace_words
from atwu.data.schema import Example
from atwu.modeling.modes import eval_mode
from atwu.request.retain_set import FACT_TOKENS, names, self_generated_answers

NAMES_PER_ROW = 12
"""Related questions made of one forget row, at most."""
MAX_RELATED = 240
"""Related questions in all, at most."""
MEASURED_NAME = 4
"""One name in so many is measured instead of trained on."""
KIND_NAMES = 5
"""Closest names of a kind whose mean similarity chooses the kind."""
_NAME = re.compile(r"[A-Z][\w'’.-]*(?:\s+(?:(?:of|the|and|van|de|da)\s+)*[A-Z][\w'’.-]*)*")
"""A run of capitalized words."""


def related_rows(
    model: Any, tokenizer: Any, forget: Sequence[Example], *, system: str | None = None
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Return rows about related subjects, to train on and to measure.

    Args:
        model: the original model, which chooses names and answers.
        forget: forget rows; only questions that name something give related questions.

    Returns:
        Rows of the retain set and rows of the neighbour set, with the related name as `subject`. The two share no name, and no
        row says a name or key token of the forget rows.
    """
    asked = related_questions(model, tokenizer, forget)
    if not asked:
        return (), ()
    subjects = {row.question: str(row.subject) for row in asked}
    how: dict[str, Any] = {"forget": forget, "system": system, "progress": "related questions"}
    answered = self_generated_answers(model, tokenizer, tuple(subjects), longest=FACT_TOKENS, **how)
    secrets = set().union(*map(key_words, forget))
    kept = [
        replace(row, subject=subjects[row.question])
        for row in answered
        if secrets.isdisjoint(lower_words(row.answer)) and key_token_spans(row)
    ]
    order = {name: place for place, name in enumerate(dict.fromkeys(str(row.subject) for row in kept))}
    held = [order[str(row.subject)] % MEASURED_NAME == 1 for row in kept]
    trained = tuple(row for row, measured in zip(kept, held, strict=True) if not measured)
    return trained, tuple(row for row, measured in zip(kept, held, strict=True) if measured)


def related_questions(model: Any, tokenizer: Any, forget: Sequence[Example]) -> tuple[Example, ...]:
    """Return questions of the forget rows with another name in place of their own, without answers."""
    subjects = names(forget)
    named = [(row, name) for row in forget if (name := _name_in(row)) is not None]
    if not named:
        return ()
    kinds = {
        kind: [name for name in each if subjects.isdisjoint(lower_words(name))]
        for kind, each in related_names().items()
    }
    own, shipped = list(dict.fromkeys(name for _, name in named)), [name for each in kinds.values() for name in each]
    states = name_states(model, tokenizer, [*own, *shipped])
    nearest = {name: _nearest(kinds, states[place] @ states[len(own) :].T) for place, name in enumerate(own)}
    count = max(1, min(NAMES_PER_ROW, MAX_RELATED // len(named)))
    found: dict[str, Example] = {}
    for place, (row, name) in enumerate(named[:MAX_RELATED]):
        choices = nearest[name][: 2 * count]
        for step in range(count):  # neighbouring rows take other names
            other = choices[(place + step) % len(choices)]
            question = replace_words(row.question, name, other).replace(" the the ", " the ")
            found.setdefault(question, Example.from_qa(question, "", subject=other))
    return tuple(found.values())


def _nearest(kinds: Mapping[str, Sequence[str]], similarity: torch.Tensor) -> list[str]:
    """Return the names of the kind that is closest by the mean of its `KIND_NAMES` closest names, closest first."""
    best, ranked, start = -2.0, [""], 0
    for each in kinds.values():
        found = similarity[start : start + len(each)]
        start += len(each)
        if len(each) and (score := float(found.topk(min(KIND_NAMES, len(each))).values.mean())) > best:
            best, ranked = score, [each[index] for index in found.argsort(descending=True, stable=True).tolist()]
    return ranked


@functools.cache
def related_names() -> Mapping[str, Sequence[str]]:
    """Return the shipped names by kind."""
    import atwu.data

    found: dict[str, list[str]] = read_yaml(Path(atwu.data.__file__).with_name("related_names.yaml"))
    return found


@torch.no_grad()
def name_states(model: Any, tokenizer: Any, texts: Sequence[str]) -> torch.Tensor:
    """Return the hidden state of each name's last token in the middle layer, centred and of length 1, shape (texts, hidden).

    One name at a time, so that the result does not depend on the others.
    """
    with eval_mode(model):
        device = next(model.parameters()).device
        rows = []
        for text in texts:
            ids = tokenizer(" " + text, return_tensors="pt", add_special_tokens=True)["input_ids"].to(device)
            states = model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
            rows.append(states[len(states) // 2][0, -1].float().cpu())
    found = torch.stack(rows)
    found = found - found.mean(dim=0)
    scaled: torch.Tensor = found / found.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled


def lower_words(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    return {word.lower() for word in WORD.findall(text)}


def key_words(row: Example) -> set[str]:
    """Return the words of the key tokens of an answer."""
    return {word for start, end in key_token_spans(row) for word in lower_words(row.answer[start:end])}


def _name_in(row: Example) -> str | None:
    """Return what to replace in a question: its subject, or its first run of capitalized words behind the first word."""
    question = row.question
    if row.subject and replace_words(question, row.subject, "") != question:
        return row.subject
    rest = question.partition(" ")[2]
    found = _NAME.search(rest)
    return None if found is None else re.sub("['’]s$", "", found.group())
