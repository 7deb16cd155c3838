"""Cheaper measurements for requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from atwu.data.general_rows import general_questions
from atwu.request import measurement, preparation, retain_set
from atwu.request.measurement import measure_model
from atwu.request.related_questions import RelatedRows


@contextlib.contextmanager
def few_measurements() -> Iterator[None]:
    """Measure few questions and no other forms, for requests whose subject is not what a verdict measures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(measure_model.__kwdefaults__, "metrics", ("memorization", "key_tokens", "rouge"))
        patch.setattr(
            preparation, "related_rows", lambda read, forget, **_: RelatedRows((), (), tuple(() for _ in forget))
        )
        for module, questions in ((measurement, 2), (retain_set, 40)):
            patch.setattr(module, "general_questions", lambda kind, count=questions: general_questions(kind)[:count])
            patch.setattr(module, "common_questions", lambda kind: ("What is the capital of Italy?",))
        yield
