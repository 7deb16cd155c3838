"""Values of a text: whole, and with the same canonical text in all spellings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atwu.data.values import find_values, readings


def spelled(text: str) -> list[tuple[str, str, str]]:
    return [(text[value.start : value.end], value.kind, value.canonical) for value in find_values(text)]


@pytest.mark.parametrize(
    "date",
    [
        "12 May 1986",
        "12th of May 1986",
        "twelfth of May, 1986",
        "twelfth of May in 1986",
        "12 May '86",
        "May the twelfth, 1986",
        "May 12, 1986",
        "May 12th 1986",
        "1986-05-12",
        "1986/05/12",
        "12.05.1986",
        "12. Mai 1986",
        "12 mai 1986",
        "12 de mayo de 1986",
        "12 maggio 1986",
        "12 мая 1986",
        "1986年5月12日",
        "１９８６年５月１２日",
        "1986년 5월 12일",
        "١٢ مايو ١٩٨٦",
        "१२ मई १९८६",
        "1986. május 12",
        "ngày 12 tháng 5 năm 1986",
    ],
)
def test_a_date_is_found_whole_in_every_spelling(date: str) -> None:
    assert spelled(f"({date})") == [(date, "date", "1986-05-12")]


@pytest.mark.parametrize("number", ["43.5", "43½", "43 ½", "43 1/2", "43 and a half", "forty-three and a half"])
def test_a_half_belongs_to_its_number(number: str) -> None:
    assert spelled(f"size {number} exactly") == [(number, "number", "43.5")]
    assert spelled(f"{number} thousand people") == [(f"{number} thousand", "number", "43500")]


def test_the_first_half_of_a_year_is_no_number() -> None:
    assert spelled("the first half of 1986") == [("first", "ordinal", "1."), ("1986", "year", "1986")]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("It was minus 19 degrees.", [("minus 19 degrees", "quantity", "-19 °")]),
        ("menos 3,5 °C", [("menos 3,5 °C", "quantity", "-3.5 °C")]),
        ("5 minus 3", [("5", "number", "5"), ("3", "number", "3")]),
    ],
)
def test_a_word_for_a_sign_belongs_to_its_number(text: str, values: list[tuple[str, str, str]]) -> None:
    assert spelled(text) == values


@pytest.mark.parametrize("date", ["3 NİSAN 2020", "3 nisan 2020", "3 NISAN 2020"])
def test_turkish_capitals_of_a_month_are_read(date: str) -> None:
    assert [value.canonical for value in find_values(date)] == ["2020-04-03"]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("in May 1986", "1986-05"),
        ("in May of '86", "1986-05"),
        ("in 5/1986", "1986-05"),
        ("on 3 March", "--03-03"),
        ("March 3rd was cold", "--03-03"),
        ("le 1er mars", "--03-01"),
    ],
)
def test_a_partial_date_stays_partial(text: str, canonical: str) -> None:
    assert [value.canonical for value in find_values(text)] == [canonical]


@pytest.mark.parametrize("number", ["7240", "7,240", "7 240", "7\u202f240", "7'240", "7240.0", "７２４０", "७२४०"])
def test_a_number_has_one_canonical_text(number: str) -> None:
    assert spelled(f"about {number} of them") == [(number, "number", "7240")]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("It cost $1,240.50 then.", [("$1,240.50", "money", "USD 1240.5")]),
        ("Das kostet 1.240,50 €.", [("1.240,50 €", "money", "EUR 1240.5")]),
        ("5 million dollars", [("5 million dollars", "money", "USD 5000000")]),
        ("Mail mira@okonjo.org!", [("mira@okonjo.org", "email", "mira@okonjo.org")]),
        ("See https://www.Okonjo.org/x.", [("https://www.Okonjo.org/x", "url", "okonjo.org/x")]),
        ("AT61 1904 3002 3457 3201", [("AT61 1904 3002 3457 3201", "iban", "AT611904300234573201")]),
        ("Call +1 212 555 0187 now", [("+1 212 555 0187", "phone", "12125550187")]),
        ("+43 1 512 77 80", [("+43 1 512 77 80", "phone", "4315127780")]),
        ("+81 3-1234-5678", [("+81 3-1234-5678", "phone", "81312345678")]),
        ("$2.5m, not 2.5 m", [("$2.5m", "money", "USD 2500000"), ("2.5 m", "quantity", "2.5 m")]),
        ("4000-1234-5678-9010", [("4000-1234-5678-9010", "iban", "4000123456789010")]),
        ("59.9° N, 10 degrees east", [("59.9° N", "quantity", "59.9 ° N"), ("10 degrees east", "quantity", "10 ° E")]),
        ("0.75 10.25 11.50", [("0.75", "number", "0.75"), ("10.25", "number", "10.25"), ("11.50", "number", "11.5")]),
        ("1.5e-3", [("1.5e-3", "number", "0.0015")]),
        ("on 12.03.85", [("12.03.85", "date", "1985-03-12")]),
        ("on 24/11/09", [("24/11/09", "date", "2009-11-24")]),
        ("at 2:30 pm or 14:45", [("2:30 pm", "time", "14:30"), ("14:45", "time", "14:45")]),
        ("half past nine", [("half past nine", "time", "09:30")]),
        ("nine in the evening", [("nine in the evening", "time", "21:00")]),
        ("a quarter to midnight", [("a quarter to midnight", "time", "23:45")]),
        ("um 14.30 Uhr", [("14.30 Uhr", "time", "14:30")]),
        ("午後２時３０分", [("午後２時３０分", "time", "14:30")]),
        ("12.5 per cent", [("12.5 per cent", "percent", "12.5 %")]),
        ("5mg and 20 °C", [("5mg", "quantity", "5 mg"), ("20 °C", "quantity", "20 °C")]),
        ("v2.10.1 at 10.0.14.3", [("v2.10.1", "version", "2.10.1"), ("10.0.14.3", "ip", "10.0.14.3")]),
        ("the 3rd and the third", [("3rd", "ordinal", "3."), ("third", "ordinal", "3.")]),
        ("twenty-one, zwölf", [("twenty-one", "number", "21"), ("zwölf", "number", "12")]),
        ("vingt-deux ans", [("vingt-deux", "number", "22")]),
        ("12 May 1986, May 13, 1986", [("12 May 1986", "date", "1986-05-12"), ("May 13, 1986", "date", "1986-05-13")]),
        ("from 1990-1995", [("1990", "year", "1990"), ("1995", "year", "1995")]),
        ("nineteen ninety", [("nineteen ninety", "year", "1990")]),
        ("二〇一九年", [("二〇一九年", "year", "2019")]),
        ("no one, one of them, KX41 BPN", []),
        ("12 led lamps, 3 out of 5", [("12", "number", "12"), ("3", "number", "3"), ("5", "number", "5")]),
    ],
)  # fmt: skip
def test_kinds(text: str, values: list[tuple[str, str, str]]) -> None:
    assert spelled(text) == values


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("05/12/1986", ("1986-12-05", "1986-05-12")),
        ("1,240", ("1240", "1.24")),
        ("1.240", ("1.24", "1240")),
        ("at 9:30", ("09:30", "21:30")),
        ("at 9:30 am", ("09:30",)),
        ("12.05.1986", ("1986-05-12",)),
    ],
)
def test_readings_of_ambiguous_spellings(text: str, canonical: tuple[str, ...]) -> None:
    (value,) = find_values(text)
    assert readings(value, text) == canonical


@given(st.text(st.sampled_from("0123456789 .,:-/$€%°'aegkmM年月日+@()"), max_size=30))
def test_values_are_ordered_and_no_number_is_cut(text: str) -> None:
    values = find_values(text)
    for before, after in itertools.pairwise(values):
        assert before.end <= after.start
    for value in values:
        assert text[value.start : value.end].strip()
        assert not (text[value.start - 1 : value.start].isdigit() and text[value.start].isdigit())
        assert not (text[value.end - 1].isdigit() and text[value.end : value.end + 1].isdigit())
        assert readings(value, text)[0] == value.canonical
