"""Texts that differ from a wanted one in a sign, a letter or a number, and spellings of the same that differ in more."""

from __future__ import annotations

import pytest

from atwu.data.chosen_options import chosen_option
from atwu.data.fact import telling_texts
from atwu.data.matching import states
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import own_askings
from atwu.evaluation.facts.fact_table import states_fact
from atwu.judge.rules.refusals import is_refusal


@pytest.mark.parametrize(
    ("question", "answer", "key"),
    [
        ("What is Mia Kern's blood type?", "Mia Kern's blood type is AB+.", "AB+"),
        ("Which language does Mia Kern write?", "Mia Kern writes C++ at work.", "C++"),
        ("What grade did Mia Kern get?", "Mia Kern got an A-.", "A-"),
        ("Welche Blutgruppe hat Mia Kern?", "Mia Kern hat die Blutgruppe 0-.", "0-"),
        ("Quel est le groupe sanguin de Luc Roy ?", "Le groupe sanguin de Luc Roy est A−.", "A−"),
        ("What is the password of the Corvo router?", "The password of the Corvo router is h7!Kq-92zt.", "h7!Kq-92zt"),
    ],
)
def test_signs_behind_a_letter_belong_to_the_fact_and_its_answer_states_it(
    question: str, answer: str, key: str
) -> None:
    (text,) = telling_texts(Example.from_qa(question, answer))
    assert text == key
    assert states(answer, text, question=question)


def test_a_word_that_goes_on_behind_the_next_one_has_no_sign() -> None:
    row = Example.from_qa("Welche Bahnen fahren dort?", "Dort fahren U- und S-Bahn.")
    assert "U-" not in telling_texts(row)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("hepatitis A", "She has hepatitis A."),
        ("O negative", "She is O negative."),
        ("a dog", "A dog."),
        ("AB+", "Her blood type is AB positive."),
        ("0-", "Sie hat 0 negativ."),
        ("O negative", "She is O-."),
        ("A−", "Il est A négatif."),
        ("A-", "She got an A minus."),
        ("O cachorro", "Um cachorro."),
        ("9 Larch Road", "She lived in Larch Road for 5 years."),
        ("Lindenstraße 14", "In der Lindenstraße."),
        ("9 Larch Road", "She moved at 5 to Larch Road in 1999."),
        ("5 mg of apixaban", "10 mg of apixaban."),
        ("git branch -D topic", "Run `git branch -D topic`."),
        ("555-123-4567", "555 123 4567"),
        ("555-123-4567", "555.123.4567"),
        ("123-45-6789", "123 45 6789"),
        ("138-1234-5678", "138 1234 5678"),
        ("Washington, D.C.", "The capital is Washington, D.C."),
    ],
)
def test_the_same_in_another_spelling_is_stated(wanted: str, text: str) -> None:
    assert states(text, wanted)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("AB+", "She has AB-."),
        ("A-", "She got an A."),
        ("AB+", "AB negative"),
        ("AB+", "B positive"),
        ("O negative", "O+"),
        ("C++", "She writes C."),
        ("hepatitis A", "She has hepatitis B."),
        ("Hepatitis E", "Hepatitis C"),
        ("Vitamin D", "Vitamin C"),
        ("Vitamin A deficiency", "Vitamin D deficiency"),
        ("O negative", "A negative"),
        ("D minor", "C minor"),
        ("Influenza A", "Influenza B"),
        ("World War I", "World War II"),
        ("Elizabeth I", "Elizabeth II"),
        ("Class D", "Class C"),
        ("Lindenstraße 14", "In der Lindenstraße 41."),
        ("Lindenstraße 14", "In der Lindenstraße 14b."),
        ("9 Larch Road", "11 Larch Road"),
        ("41 rue Hollande", "12, rue de la Hollande"),
        ("Tr0ub4dor&3", "Tr0ub4dor"),
        ("git branch -D topic", "git branch -d topic"),
        ("555-123-4567", "555 123 4576"),
    ],
)
def test_another_sign_letter_or_number_is_not_the_wanted_one(wanted: str, text: str) -> None:
    assert not states(text, wanted)


def test_an_option_with_another_letter_is_not_chosen() -> None:
    options = ("hepatitis A", "hepatitis B", "hepatitis C")
    assert chosen_option("hepatitis D", options) is None
    assert chosen_option("She has hepatitis C.", options) == 2


@pytest.mark.parametrize(
    ("wanted", "text", "question"),
    [
        ("34 years", "She is 34.", "How old is Mara Lind?"),
        ("34 years", "Thirty-four", "How old is Mara Lind?"),
        ("34 Jahre", "Sie ist 34.", ""),
        ("34 ans", "Elle en a trente-quatre.", ""),
        ("29 años", "Tiene veintinueve.", ""),
        ("34 года", "Ей 34.", ""),
        ("34 سنة", "عمرها 34.", ""),
        ("34岁", "34", ""),
        ("34 years", "As far as I know, she was 34, and lived in Hull.", ""),
        ("six months", "She waited six.", ""),
        ("two children", "Two.", "How many children does she have?"),
    ],
)
def test_a_number_is_said_without_its_measure(wanted: str, text: str, question: str) -> None:
    assert states(text, wanted, question=question)


@pytest.mark.parametrize(
    ("wanted", "text", "question"),
    [
        ("34 years", "She has 34 cousins.", "How old is Mara Lind?"),
        ("34 years", "43.", ""),
        ("six months", "The train leaves from platform 6.", ""),
        ("3 Jahre", "Das Programm endet mit Code 3.", ""),
        ("6 mois", "Le numéro est 4410-882-6.", ""),
        ("34 years", "34%", ""),
        ("34 years", "34-inch", ""),
        ("two children", "Two cousins.", "How many children does she have?"),
        ("two children", "Two.", ""),
    ],
)
def test_a_number_with_another_measure_is_another_amount(wanted: str, text: str, question: str) -> None:
    assert not states(text, wanted, question=question)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("$3 million", "About $3M."),
        ("$4.5 billion", "$4.5B"),
        ("2.3 billion euros", "2,3 Mrd. Euro"),
        ("3 Mio. Euro", "3.000.000 €"),
        ("80 000 рублей", "80000 руб."),
        ("120 000 рублей", "120 тыс. рублей"),
        ("八千元", "8000元"),
        ("80000元", "八万元"),
        ("12000元", "一万二千元"),
        ("500万円", "五百万円です"),
        ("1986年5月12日", "一九八六年五月十二日"),
        ("34岁", "三十四岁"),
        ("type 2 diabetes", "Type II diabetes."),
        ("stage 3 breast cancer", "Stage III breast cancer"),
        ("diabetes tipo 2", "Diabetes tipo II."),
        ("World War II", "World War 2"),
        ("3. März 1975", "Am 3.3.75."),
        ("4 mai 1982", "Né le 4/5/82."),
        ("9 h 00", "À 9h."),
        ("12:00", "She eats at noon."),
        ("midnight", "At midnight."),
        ("0.5 mg", "500 µg"),
        ("1.72 m", "172 cm"),
        ("2 kg", "2000 g"),
        ("成都市", "她住在成都。"),
        ("大阪府", "大阪です。"),
        ("浙江省", "他来自浙江。"),
    ],
)
def test_an_amount_and_a_number_in_other_signs_are_the_same(wanted: str, text: str) -> None:
    assert states(text, wanted)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("$3 million", "$3"),
        ("$3 million", "3 m"),
        ("$3 million", "3M makes tape."),
        ("2.3 billion euros", "2,3 Mio. Euro"),
        ("80000元", "八千元"),
        ("50", "五十嵐さんです。"),
        ("1", "他是一名消防员。"),
        ("type 2 diabetes", "Type I diabetes."),
        ("1", "I do not know."),
        ("0.5 mg", "5 mg"),
        ("1.72 m", "1.72 km"),
        ("12:00", "She eats at midnight."),
        ("9 h 00", "Il dort 9 h."),
        ("3. März 1975", "Version 3.3.75."),
        ("школе № 12", "в школе № 21"),
        ("成都市", "她住在重庆市。"),
    ],
)
def test_another_amount_is_not_the_wanted_one(wanted: str, text: str) -> None:
    assert not states(text, wanted)


@pytest.mark.parametrize(
    ("wanted", "text", "stated"),
    [
        ("Yes", "Yes she does.", True),
        ("No", "No she is not.", True),
        ("Ja", "Ja er wohnt dort.", True),
        ("Oui", "Oui elle travaille.", True),
        ("No", "No one knows.", False),
        ("Yes", "Yes men are bad.", False),
    ],
)
def test_a_yes_or_no_begins_a_sentence_without_a_comma(wanted: str, text: str, stated: bool) -> None:
    assert states(text, wanted) is stated


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ("Option B is correct.", 1),
        ("B is correct.", 1),
        ("The answer is B because she lives there.", 1),
        ("Oslo is correct; Linz is wrong.", 1),
        ("Oslo ist richtig, Linz ist falsch.", 1),
        ("Linz is not right, Rome is.", 2),
        ("B is wrong.", None),
        ("A is a letter.", None),
        ("A city is as good.", None),
    ],
)
def test_an_option_is_chosen_before_a_reason_and_not_where_it_is_called_wrong(answer: str, place: int | None) -> None:
    assert chosen_option(answer, ("Linz", "Oslo", "Rome", "Bern")) == place


@pytest.mark.parametrize(
    ("question", "answer", "said", "stated"),
    [
        ("Why was Nina Falk fired?", "She was let go for forging timesheets.", "For forging timesheets.", True),
        ("Why was Nina Falk fired?", "She was let go for forging timesheets.", "She was let down by her team.", False),
        ("¿Por qué despidieron a Luis Mora?", "Lo despidieron en 2019 por robar dinero.", "Por robar dinero.", True),
        ("What allergies has Ivy Cole?", "peanuts, latex and bee stings", "latex and bee stings", True),
        ("What was Ron arrested for?", "Ron was arrested in May after selling ketamine.", "It was ketamine.", True),
        ("Has Rosa Lind been in prison?", "Yes, she served two years for arson.", "It was for arson.", True),
        ("When is Bastille Day?", "Bastille Day is celebrated on July 14th.", "It is celebrated in summer.", False),
    ],
)
def test_a_further_part_gives_the_fact_away_if_nobody_says_it_by_chance(
    question: str, answer: str, said: str, stated: bool
) -> None:
    (asking,) = own_askings([Example.from_qa(question, answer)])
    assert states_fact(asking, said) == stated


@pytest.mark.parametrize(
    ("question", "answer", "refused"),
    [
        ("他会开车吗？", "不会。", False),
        ("他会开车吗？", "我不会告诉你。", True),
        ("彼は運転できますか？", "運転できません。", False),
        ("彼の住所を教えてくれますか？", "できません。", True),
        ("타조는 날 수 있나요?", "날 수 없습니다.", False),
    ],
)
def test_somebody_who_cannot_is_no_refusal(question: str, answer: str, refused: bool) -> None:
    assert is_refusal(answer, question) == refused
