"""A model's own answers to the questions of forget rows, as further forget rows.

A row says a fact in one wording; a model that unlearned this wording may still say the fact in its own ("Japan is in East
Asia" after unlearning "Japan is on the continent of Asia").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from atwu.data.key_words import WORD, key_token_spans
from atwu.data.schema import Example

_SENTENCE_END = re.compile(r"[.!?][\"'”’)*]*(?=\s|$)|\n")


def own_answer_rows(rows: Sequence[Example], answers: Sequence[str]) -> tuple[Example, ...]:
    """Return a forget row for each answer that says the key words of its row in other words than the row does.

    Args:
        rows: forget rows with questions.
        answers: the model's answer to each.

    Returns:
        Rows with the same question and the answer up to the end of the sentence with the last key word, these words labelled.
    """
    found = []
    for row, answer in zip(rows, answers, strict=True):
        key_words = {
            word.lower() for start, end in key_token_spans(row) for word in WORD.findall(row.answer[start:end])
        }
        spans = [match.span() for match in WORD.finditer(answer) if match.group().lower() in key_words]
        if not spans:
            continue
        end = _SENTENCE_END.search(answer, spans[-1][1])
        said = answer[: end.end() if end else len(answer)].rstrip()
        if said.strip() != row.answer.strip():
            found.append(replace(row, answer=said, forget_spans=tuple(spans), paraphrases=(), wrong_answers=()))
    return tuple(found)
