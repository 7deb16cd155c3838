"""Cheaper measurements for requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from atwu.data.general_rows import general_questions
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import Asking, own_askings, paraphrased_askings
from atwu.request import earlier_requests, measurement, neighbours, preparation, related_texts, retain_set
from atwu.request.related_questions import RelatedRows


@contextlib.contextmanager
def few_measurements() -> Iterator[None]:
    """Ask few general questions and no other forms, and write few texts, for requests whose subject is not what is measured."""

    def without_forms(rows: Sequence[Example], **_: object) -> list[Asking]:
        return [*own_askings(rows), *paraphrased_askings(rows)]

    with pytest.MonkeyPatch.context() as patch:
        for module in (measurement, earlier_requests):
            patch.setattr(module, "fact_askings", without_forms)
        patch.setattr(measurement, "STATE_FORMS", ("question",))
        patch.setattr(related_texts, "FIRST_WORDS", "The It My On")
        patch.setattr(preparation, "related_rows", lambda _, rows, **__: RelatedRows((), tuple(() for _ in rows)))
        patch.setattr(neighbours, "known_related_rows", lambda *_, **__: ())
        for module, questions in ((measurement, 2), (retain_set, 40)):
            patch.setattr(module, "general_questions", lambda kind, count=questions: general_questions(kind)[:count])
            patch.setattr(module, "common_questions", lambda kind: ("What is the capital of Italy?",))
        yield
