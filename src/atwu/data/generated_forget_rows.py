"""Self-generated answers to forget rows in their forms, as further forget rows.

A row says a fact in one wording; a model that unlearned this wording may still say the fact in its own. It answers a blank
with a sentence, and after unlearning "Japan is on the continent of Asia" it says "Japan is in East Asia".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from atwu.data.key_token_spans import WORD
from atwu.data.question_forms import FormRow
from atwu.data.schema import Example

_SENTENCE_END = re.compile(r"[.!?][\"'”’)*]*(?=\s|$)|\n")


def generated_forget_rows(written: Sequence[FormRow], answers: Sequence[str]) -> tuple[Example, ...]:
    """Return a forget row for each answer that says the wanted words of its row in another way than the row does.

    Args:
        written: forget rows in forms of their question.
        answers: the model's answer to each.

    Returns:
        Rows with the same question and the answer up to the end of the sentence with the last wanted word, these words
        labelled.
    """
    found = []
    for each, answer in zip(written, answers, strict=True):
        wanted = {word.lower() for word in WORD.findall(each.wanted)}
        spans = [match.span() for match in WORD.finditer(answer) if match.group().lower() in wanted]
        if not spans or not each.row.messages:
            continue
        end = _SENTENCE_END.search(answer, spans[-1][1])
        said = answer[: end.end() if end else len(answer)].rstrip()
        if said.strip() != each.row.answer.strip():
            found.append(replace(each.row, answer=said, forget_spans=tuple(spans), paraphrases=(), wrong_answers=()))
    return tuple(found)
