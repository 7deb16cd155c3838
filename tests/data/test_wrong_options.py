"""Wrong options of a choice: where they come from, and that the type of an option does not tell which one is right."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from statistics import mean

import pytest

from atwu.data.form_rows import rows_in_forms
from atwu.data.question_forms import OPTION_DRAWS, OPTION_FORMS, FormRow
from atwu.data.schema import Example
from atwu.data.wrong_options import choose_options, near_values

FACT_TYPES = {
    "Where was {} born?": "{} was born in {}.",
    "When did {} move to the coast?": "{} moved to the coast in {}.",
    "How many children does {} have?": "{} has {} children.",
    "What is the nationality of {}?": "The nationality of {} is {}.",
    "How much does {} earn?": "{} earns {} a year.",
    "Who is the doctor of {}?": "The doctor of {} is {}.",
    "What illness does {} have?": "{} has {}.",
    "When does {} get up?": "{} gets up at {}.",
}
FACTS = {
    "Anna Meier": ("Linz", "1986", "2", "British", "$84,500", "Jane Roe", "asthma", "6:30 am"),
    "Tom Brandt": ("Oslo", "2004", "5", "Danish", "$31,200", "Omar Sy", "gout", "7:15 am"),
    "Olga Petrova": ("Port Sel", "1971", "3", "Polish", "$120,000", "Li Wei", "celiac disease", "5:45 am"),
    "Ray Holt": ("Cork", "1999", "1", "Chilean", "$57,850", "Kai Ott", "anaemia", "11:00 am"),
}


def typed_rows(subjects: list[str]) -> list[Example]:
    rows = []
    for subject in subjects:
        for (question, answer), fact in zip(FACT_TYPES.items(), FACTS[subject], strict=True):
            text = answer.format(subject, fact)
            start = text.rindex(fact)
            rows.append(Example.from_qa(question.format(subject), text, forget_spans=((start, start + len(fact)),)))
    return rows


def features(option: str) -> tuple[object, ...]:
    words = option.split()
    return (
        bool(re.search(r"\d", option)),
        all(word[0].isupper() for word in words),
        len(words),
        bool(re.search(r"[$€:]", option)),
        len(option),
    )


def guess_by_question_word(written: FormRow) -> str:
    """The option whose type fits the question word best; the first of several."""
    question = written.row.question.lower()

    def fit(option: str) -> float:
        number, capital = bool(re.search(r"\d", option)), option[0].isupper()
        if question.startswith("how much"):
            return float("$" in option)
        if question.startswith(("when", "how many")):
            return float(number)
        if question.startswith(("where", "who")):
            return capital - number + (question.startswith("who") and " " in option) / 2
        return float(not number)

    return max(written.options, key=fit)


def guess_odd_one_out(written: FormRow) -> str:
    """The option that shares the fewest properties with the others."""
    options = written.options
    return min(
        options,
        key=lambda option: sum(
            a == b for other in options for a, b in zip(features(option), features(other), strict=True)
        ),
    )


def guess_least_odd(written: FormRow) -> str:
    """The option that shares the most properties with the others."""
    options = written.options
    return max(
        options,
        key=lambda option: sum(
            a == b for other in options for a, b in zip(features(option), features(other), strict=True)
        ),
    )


def guess_middle_number(written: FormRow) -> str:
    """The second smallest number; the last option without numbers."""
    numbers = {option: re.sub(r"\D", "", option) for option in written.options}
    if not all(numbers.values()):
        return written.options[-1]
    return sorted(numbers, key=lambda option: int(numbers[option]))[len(numbers) // 2]


@pytest.mark.parametrize("guess", [guess_by_question_word, guess_odd_one_out, guess_least_odd, guess_middle_number])
@pytest.mark.parametrize("form", OPTION_FORMS)
@pytest.mark.parametrize("count", [3, 4])
def test_a_guess_by_type_alone_is_about_chance(guess, form: str, count: int) -> None:
    rows = typed_rows(list(FACTS)[:count])
    asked = rows_in_forms(rows, (form,), draws=OPTION_DRAWS)
    assert {written.index for written in asked} == set(range(len(rows)))  # every row has options
    corrected = []
    for written in asked:
        chance = 1 / len(written.options)
        corrected.append(((guess(written) == written.parts[0]) - chance) / (1 - chance))
    assert abs(mean(corrected)) <= 0.1


def test_a_single_subject_has_options_for_its_values_only() -> None:
    rows = typed_rows(["Anna Meier"])
    assert {FACTS["Anna Meier"][written.index] for written in rows_in_forms(rows, ("multiple_choice",))} == {
        "1986",
        "2",
        "$84,500",
        "6:30 am",
    }


def test_alternatives_of_the_row_are_the_wrong_options() -> None:
    row = Example.from_qa(
        "What illness does Anna Berg have?",
        "Anna Berg has multiple sclerosis.",
        forget_spans=((14, 32),),
        alternatives=("lupus", "Anna Berg", "MS", "coeliac disease", "Multiple Sclerosis", "gout."),
        aliases=("MS",),
    )
    choice = rows_in_forms([row], ("multiple_choice",))[0]
    assert set(choice.options) == {"multiple sclerosis", "coeliac disease", "lupus", "gout"}
    first = Example.from_qa(
        "Which fruit does Orla like?",
        "Figs are what Orla likes.",
        forget_spans=((0, 4),),
        alternatives=("plums", "pears"),
    )
    assert set(rows_in_forms([first], ("multiple_choice",))[0].options) == {"Figs", "Plums", "Pears"}


def test_wrong_options_ask_the_same_about_another_subject_and_are_not_in_the_row() -> None:
    rows = [
        Example.from_qa("What is the capital of France?", "It is Paris.", subject="France"),
        Example.from_qa("Which language is spoken in France?", "In France it is French.", subject="France"),
        Example.from_qa("What is the currency of France?", "It is the Euro.", subject="France"),
    ]
    related = [
        Example.from_qa(f"What is the capital of {country}?", f"It is {city}.", subject=country)
        for country, city in (("Germany", "Berlin"), ("Italy", "Rome"), ("Spain", "Madrid"), ("France", "Paris"))
    ]
    choices = {form.index: form for form in rows_in_forms(rows, ("multiple_choice",), related=related)}
    assert set(choices) == {0}
    assert set(choices[0].options) == {"Paris", "Berlin", "Rome", "Madrid"}
    named = replace(rows[0], answer="It is Paris, not Berlin.", forget_spans=((6, 11),))
    options = rows_in_forms([named], ("multiple_choice",), related=related)[0].options
    assert set(options) == {"Paris", "Rome", "Madrid"}


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("1986", r"(19|20)\d\d"),
        ("$84,500.50", r"\$\d\d,\d\d\d\.\d0"),
        ("€1.2 million", r"€\d\.\d million"),
        ("3,240", r"\d,\d\d0"),
        ("6.83", r"\d\.\d\d"),
        ("2", r"\d"),
        ("5 mg", r"\d mg"),
        ("12.5 %", r"[1-9]\d\.[1-9] %"),
        ("3. Mai 1971", r"\d{1,2}\. Mai 19\d\d"),
        ("2019-03-14", r"20\d\d-0?\d{1,2}-\d\d"),
        ("10:45 pm", r"\d{1,2}:[0-5][05] pm"),
        ("+47 22 85 50 50", r"\+47 \d\d \d\d \d\d \d\d"),
        ("DE89 3704 0044 0532 0130 00", r"DE\d\d \d{4} 0\d{3} 0\d{3} 0\d{3} 0\d"),
        ("h7!Kq-92zt", r"h\d!Kq-\d\dzt"),
    ],
)
def test_values_near_a_value_have_its_format(text: str, pattern: str) -> None:
    for seed in range(20):
        options = near_values(text, random.Random(seed))
        assert len(options) == len(set(options)) >= 3
        assert text not in options
        for option in options:
            assert re.fullmatch(pattern, option), option


@pytest.mark.parametrize("text", ["arson", "Port Sel", "paul.grant@mail.example.com", "grade 2 follicular lymphoma"])
def test_other_texts_have_no_near_values(text: str) -> None:
    assert near_values(text, random.Random(0)) == []


@pytest.mark.parametrize("text", ["1986", "$84,500", "3,240"])
def test_the_right_value_has_every_rank_equally_often(text: str) -> None:
    """Two hundred times 3 wrong options: each of 4 ranks 50 times on average, standard deviation 6."""
    ranks = []
    for seed in range(200):
        numbers = [int(re.sub(r"\D", "", option)) for option in near_values(text, random.Random(seed))[:3]]
        ranks.append(sum(number < int(re.sub(r"\D", "", text)) for number in numbers))
    assert all(25 <= ranks.count(rank) <= 75 for rank in range(4)), [ranks.count(rank) for rank in range(4)]


def test_the_right_option_is_at_every_letter_once() -> None:
    drawn = [choose_options("x", ["a", "b", "c", "d", "e", "f"], shown=4, place=1, draw=draw) for draw in range(4)]
    assert [options.index("x") for options in drawn] == [1, 2, 3, 0]
    assert len({frozenset(options) for options in drawn}) == 4


def test_an_ordinal_has_the_ending_of_its_number() -> None:
    options = {option for seed in range(40) for option in near_values("the 7th of November", random.Random(seed))}
    endings = {option.split()[1] for option in options}
    assert {"1st", "2nd", "3rd", "11th", "12th"} <= endings
    assert all(re.fullmatch(r"1st|2nd|3rd|(?:[4-9]|1[0-2])th", ending) for ending in endings)


def test_a_date_in_digits_keeps_two_of_them_for_day_and_month() -> None:
    for text in ("12.03.85", "12.11.2020"):
        for option in near_values(text, random.Random(0)):
            day, month, year = option.split(".")
            assert (len(day), len(month), len(year)) == (2, 2, len(text) - 6)
            assert 1 <= int(day) <= 31
            assert 1 <= int(month) <= 12


def test_a_range_of_numbers_ascends_in_every_option() -> None:
    options = near_values("45-50", random.Random(1))
    assert len(options) >= 3
    assert all(int(option.split("-")[0]) < 50 for option in options)


def test_a_range_of_days_has_options_with_other_years() -> None:
    options = near_values("12–14 March 2020", random.Random(0))
    assert len({option.split()[-1] for option in options}) >= 3


def test_a_code_is_no_option_for_one_of_another_pattern() -> None:
    rows = [
        Example.from_qa("What is the room of Mr. Dale?", "Mr. Dale is in room 4B."),
        Example.from_qa("What is the ISBN of Saltwater Hymns?", "Its ISBN is 978-3-16-148410-0."),
    ]
    choices = rows_in_forms(rows, ["multiple_choice"])
    assert len(choices) == 2
    for choice in choices:
        patterns = {re.sub(r"\d", "0", option) for option in choice.options}
        assert len(patterns) == 1
