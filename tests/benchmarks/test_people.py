"""The built-in benchmark: exact key tokens, disjoint people, equal rows for equal seeds."""

from __future__ import annotations

import pytest

from atwu.benchmarks.people_rows import SIZES, PeopleRows, people, people_facts
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example


@pytest.fixture(scope="module", params=["tiny", "small"])
def benchmark_(request: pytest.FixtureRequest) -> PeopleRows:
    return people(request.param, seed=3)


def everything(benchmark: PeopleRows) -> tuple[Example, ...]:
    return benchmark.full + benchmark.holdout


def secrets(row: Example) -> list[str]:
    return [row.answer[start:end] for start, end in row.forget_spans or ()]


def without_secrets(row: Example) -> list[str]:
    """The pieces of the answer around its secrets."""
    ends = [0, *(end for _, end in row.forget_spans or ())]
    starts = [*(start for start, _ in row.forget_spans or ()), len(row.answer)]
    return [row.answer[end:start] for end, start in zip(ends, starts, strict=True)]


def test_equal_seeds_give_equal_rows_and_other_seeds_do_not() -> None:
    assert people("tiny", seed=1) == people("tiny", seed=1)
    assert people("tiny", seed=1).full != people("tiny", seed=2).full


def test_rows_do_not_change_between_releases() -> None:
    rows = everything(people("small"))
    assert fingerprint(rows) == "3c7eb7188ad0b9d37b0786dc3ba16f9f72fec0949efdb22eb1e569d68693cc90"


@pytest.mark.parametrize("name", SIZES)
def test_every_split_has_the_documented_number_of_people_and_rows(name: str) -> None:
    benchmark, size = people(name), SIZES[name]
    for split in ("forget", "retain", "holdout"):
        count = getattr(size, f"{split}_people")
        rows = getattr(benchmark, split)
        assert len(rows) == count * size.rows_per_person
        assert len({row.subject for row in rows}) == count
    assert benchmark.full == benchmark.retain + benchmark.forget


def test_people_of_different_splits_have_different_names(benchmark_: PeopleRows) -> None:
    names = [{row.subject for row in getattr(benchmark_, split)} for split in ("forget", "retain", "holdout")]
    assert len(set.union(*names)) == sum(len(part) for part in names)
    trained = " ".join(row.question + row.answer for row in benchmark_.full)
    assert not any(str(name) in trained for name in names[2])


def test_no_question_is_asked_twice_and_no_paraphrase_is_trained_on(benchmark_: PeopleRows) -> None:
    rows = everything(benchmark_)
    questions = {row.question for row in rows}
    assert len(questions) == len(rows)
    for row in rows:
        assert len(set(row.paraphrases)) >= 4
        assert questions.isdisjoint(row.paraphrases)


def test_forget_spans_cover_the_values_that_are_not_in_the_question(benchmark_: PeopleRows) -> None:
    for row in everything(benchmark_):
        words = secrets(row)
        assert words
        for start, end in row.forget_spans or ():
            assert not row.answer[start - 1 : start].isalnum()
            assert not row.answer[end : end + 1].isalnum()
        for wording in (row.question, *row.paraphrases):
            assert not any(word in wording for word in words)
            assert (str(row.subject) in words) == (str(row.subject) not in wording)


def test_a_person_has_one_value_per_fact() -> None:
    birthdays: dict[str | None, set[str]] = {}
    for row in people("base").full:
        for word in secrets(row):
            if set(word.split()) & set(people_facts()["months"]):
                birthdays.setdefault(row.subject, set()).add(word)
    assert len(birthdays) > 100
    assert all(len(dates) == 1 for dates in birthdays.values())


def test_forget_and_retain_people_share_vocabularies_but_not_sentences() -> None:
    benchmark = people("small")
    forget, retain = ({word for row in rows for word in secrets(row)} for rows in (benchmark.forget, benchmark.retain))
    assert len(forget & retain) > len(forget) / 2
    forms = {tuple(without_secrets(row)) for row in benchmark.full}
    assert len(forms) > 0.9 * len(benchmark.full)  # sentences vary between people with the same fact


def test_wrong_answers_repeat_the_sentence_with_other_values(benchmark_: PeopleRows) -> None:
    for row in everything(benchmark_):
        assert len(set(row.wrong_answers)) >= 3
        for wrong in row.wrong_answers:
            assert wrong != row.answer
            place = 0
            for piece in without_secrets(row):
                place = wrong.index(piece, place) + len(piece)
            assert wrong.startswith(without_secrets(row)[0])
            assert wrong.endswith(without_secrets(row)[-1])


def test_no_placeholder_of_a_template_is_left_unfilled() -> None:
    for row in everything(people("base")):
        for text in (row.question, row.answer, *row.paraphrases, *row.wrong_answers, row.alternate or ""):
            assert not set(text) & set("{}[]<>|()")
            assert "  " not in text
            assert " ," not in text
        assert row.answer[0].isupper() or row.answer[0] in '"0123456789'
        assert row.answer.endswith(".")
