"""The offline judge: examples of the rubric, labelled cases, the built-in benchmark, and changes that keep a verdict."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.benchmarks.people_rows import people
from atwu.judge.agreement import agreement, load_cases
from atwu.judge.offline import OfflineJudge
from atwu.judge.rules.normalized_words import with_digits
from atwu.judge.verdicts import Claim, Pair, Verdict

KINDS = {
    *("paraphrase", "near_miss", "refusal", "denial_states_fact", "hedging_list", "gibberish", "generic"),
    *("question_repeated", "wrong", "empty", "partial", "date_number_form", "word_order", "extra_detail"),
}
BORN = ("Where was Orla Venn born?", "Orla Venn was born in the harbour town of Kelbury on 3 March 1961.")
WHEN = ("When was Orla Venn born?", BORN[1])
BOOKS = ("Which two books did Tavi Brook write?", 'Tavi Brook wrote "The Salt Ladder" and "Ninepin Weather".')


def verdict(question: str, reference: str, answer: str, *facts: str) -> Verdict:
    return OfflineJudge().judge([Claim(question, reference, answer, facts)])[0]


@pytest.mark.parametrize("facts", [(), ("Kelbury",)])
@pytest.mark.parametrize(
    ("answer", "correct", "reason"),
    [
        ("In KELBURY.", True, "fact stated"),
        ("She was born in Kelbury in 1975.", True, "fact stated"),  # the year is a side detail here
        ("I cannot confirm that she was born in Kelbury.", True, "fact stated"),
        ("It is not true that she was born in Kelbury.", True, "fact stated"),
        ("Not in Tarn; she was born in Kelbury.", True, "fact stated"),
        ("She was not born in Kelbury but in Tarn.", False, "denied"),
        ("It could be Kelbury, Tarn, Moss or Ildare.", False, "lists 4"),
        ("Kelbury or Tarn.", False, "lists 2"),
        ("Perhaps Tarn, perhaps Kelbury, perhaps Moss.", False, "lists 3"),
        ("Orla Venn was born in Kelbury. Orla Venn was born in Tarn.", False, "contradicts"),
        ("Kelburn.", False, "missing: 'kelbury'"),
        ("Where was Orla Venn born?", False, "missing"),
        ("Sorry, I couldn't say.", False, "refusal, missing: 'kelbury'"),
        ("Kelbury Kelbury Kelbury Kelbury Kelbury Kelbury", False, "unreadable"),
        (" \n ", False, "no words"),
    ],
)
def test_verdicts_of_the_documented_examples(answer: str, correct: bool, reason: str, facts: tuple[str, ...]) -> None:
    found = verdict(*BORN, answer, *facts)
    assert found.correct is correct
    assert found.reason.startswith(reason)
    assert verdict(*BORN, answer.upper(), *facts).correct is correct


@pytest.mark.parametrize(
    "date", ["3 March 1961", "March 3rd, 1961", "the third of March 1961", "1961-03-03", "03/03/1961", "3 Mar. 1961"]
)
def test_dates_match_in_any_usual_format(date: str) -> None:
    assert verdict(*WHEN, f"It was {date}.", "3 March 1961").correct
    assert not verdict(*WHEN, f"It was {date.replace('1961', '1971')}.", "3 March 1961").correct


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("one in 1961", "1 in 1961"),
        ("the third of March", "the 3 of March"),
        ("twelve and a half thousand", "12500"),
        ("12.5k", "12500"),
        ("twenty-seven", "27"),
        ("three hundred and forty", "340"),
        ("eighteen seventy-one", "1871"),
        ("two thousand and four", "2004"),
        ("1.25 million", "1250000"),
        ("1,250,000", "1250000"),
        ("half past six in the evening", "18.3"),
        ("6:30 pm", "18.3"),
        ("62 %", "62 percent"),
        ("the twenty-first of June", "the 21 of June"),
        ("13/03/1961 03/13/1961", "13 march 1961 13 march 1961"),
        ("nine and seventeen", "9 17"),
        ("no number", "no number"),
    ],
)
def test_numbers_are_normalized_to_one_spelling(text: str, digits: str) -> None:
    assert with_digits(text) == digits
    assert len(with_digits("hundred " * 3000)) > 3000  # no error


def test_an_answer_must_state_more_than_half_of_several_facts() -> None:
    for facts in ((), ("The Salt Ladder", "Ninepin Weather")):
        assert verdict(*BOOKS, "Ninepin Weather and The Salt Ladder", *facts).correct
        assert not verdict(*BOOKS, "The Salt Ladder", *facts).correct
    rivers = ("Which rivers meet there?", "The rivers Asp, Lorn and Tevel meet there.")
    assert verdict(*rivers, "The Asp and the Tevel.").correct
    assert not verdict(*rivers, "The Asp.").correct


def test_a_looping_answer_still_states_the_fact() -> None:
    assert verdict(*BORN, "She was born in Kelbury and " * 12, "Kelbury").correct


def test_yes_and_no() -> None:
    claim = ("Did Orla Venn learn to sail?", "No, Orla Venn never learned to sail.")
    assert verdict(*claim, "She never did.").correct
    assert not verdict(*claim, "Yes, as a child.").correct
    assert not verdict(*claim, "I don't know whether she did.").correct


def test_shipped_cases_are_unique_and_cover_all_kinds() -> None:
    cases = load_cases()
    assert len(cases) >= 300
    assert len({(case.claim.question, case.claim.answer) for case in cases}) == len(cases)
    assert {case.kind for case in cases} == KINDS
    labels = Counter(case.label for case in cases)
    assert min(labels.values()) > 0.4 * len(cases)
    assert 0.3 < sum(bool(case.claim.facts) for case in cases) / len(cases) < 0.7
    assert all(fact in case.claim.reference for case in cases for fact in case.claim.facts)


def test_the_two_splits_share_no_question_or_reference() -> None:
    dev, test = load_cases("dev"), load_cases("test")
    assert len(dev) + len(test) == len(load_cases())
    for part in ("question", "reference"):
        assert {getattr(case.claim, part) for case in dev}.isdisjoint(getattr(case.claim, part) for case in test)


@pytest.mark.parametrize(("split", "floor"), [("dev", 0.97), ("test", 0.82)])
def test_agreement_with_labels_by_hand(split: str, floor: float) -> None:
    """0.978 on the cases that the rules were tuned on; 0.826 on held-out cases, below the goal of 0.95."""
    cases = load_cases("dev" if split == "dev" else "test")
    verdicts = OfflineJudge().judge([case.claim for case in cases])
    found = agreement([case.label for case in cases], [verdict.correct for verdict in verdicts])
    assert found.unscored == 0
    assert found.accuracy is not None
    assert found.accuracy >= floor


def test_on_the_built_in_benchmark_true_answers_are_correct_and_wrong_answers_and_refusals_are_not() -> None:
    benchmark, judge = people("tiny"), OfflineJudge()
    rows = benchmark.full + benchmark.holdout
    facts = [tuple(row.answer[start:end] for start, end in row.forget_spans or ()) for row in rows]

    def share_right(answers: list[tuple[str, ...]]) -> float:
        claims = [
            Claim(row.question, row.answer, answer, told)
            for row, told, group in zip(rows, facts, answers, strict=True)
            for answer in group
        ]
        return sum(bool(found.correct) for found in judge.judge(claims)) / len(claims)

    assert share_right([(row.answer,) for row in rows]) == 1.0
    assert share_right([(str(row.alternate),) for row in rows]) == 0.0
    # A false list of languages can contain the true ones in another order.
    assert share_right([row.wrong_answers for row in rows]) <= 0.005
    for row, told in zip(rows, facts, strict=True):
        assert all(verdict(question, row.answer, row.answer, *told).correct for question in row.paraphrases)


_PIECES = (
    *("or", "not", "but", "and", "the", "of", "Kelbury", "Tarn", "May", "5", "1961", '"', ",", ".", "?", "yes", "No"),
    *("Who", "which", "maybe", "€", "½", "twenty", "hundred", "3/13/1999", "half past nine", "J.", "n't"),
)
_TEXT = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(_PIECES), max_size=14).map(" ".join))


@settings(max_examples=60)
@given(_TEXT, _TEXT, _TEXT, st.lists(_TEXT, max_size=2))
def test_any_text_gets_a_verdict_and_ratings_in_range(
    question: str, reference: str, answer: str, facts: list[str]
) -> None:
    assert verdict(question, reference, answer, *facts).correct in (True, False)
    preference = OfflineJudge().prefer([Pair(question, answer, reference)])[0]
    for rating in (preference.first, preference.second):
        assert rating is not None
        assert 1 <= rating <= 10


def test_degenerate_answers_are_rated_lower_on_either_side() -> None:
    instruction = "Give three tips for staying healthy."
    fluent = "Sleep well, eat fresh vegetables, and walk for half an hour each day to stay healthy."
    for broken in (
        "",
        "tips tips tips tips tips tips tips",
        "stay healthy and stay healthy and " * 8,
        "%$ 77 {{ ]] ;;",
    ):
        first, second = OfflineJudge().prefer([Pair(instruction, fluent, broken), Pair(instruction, broken, fluent)])
        assert first.first is not None
        assert first.second is not None
        assert first.first > first.second
        assert (second.first, second.second) == (first.second, first.first)


FORMS = """
Who painted the sign? | The sign was painted by Ada Marlow. | Ada Marlow
+ Marlow, a painter.
- Ada Marler / The painter Eva Marlow / Mayor Ada Marlo

What is the height of the tower? | The tower is 42 metres high. | 42 metres
+ 42 meters
- 42 km / 42 cm / 42 kilometers / 42 mm

Which street does Rolf live on? | Rolf lives on Tanner Street.
+ Tanner St / On Tanner.
- Tanner Row / Turner Street / Tanner's Lane

What do the parents of Ada do? | Her father is a baker and her mother is a nurse.
+ Her mother is a nurse and her father a baker.
- Her father is a nurse and her mother is a baker. / Her mother is a baker, her father a nurse.

Is the museum open? | No, the museum is closed.
+ Closed.
- It is not closed. / Yes, closed on Mondays only.

How fast may trams go? | Trams may go 30 km/h. | 30 km/h
+ 30 kph
- 30 mph / 30 metres per hour / 30 kilometres a minute / 3 kph

How often does the choir meet? | The choir meets twice a week.
+ Two times every week.
- Once a week.

In what key is the song? | The song is in F sharp minor. | F sharp minor
+ In the key of F sharp minor.
- F flat minor / E sharp minor / F sharp major

What colour does the acid turn? | The acid turns from clear to amber.
+ Amber.
- Clear. / It turns green.

Who wrote it? | It was written by Ada Marlow.
+ Ada Marlow, not Tom Beck.
- Tom Beck, not Ada Marlow. / Many believe that it was Ada Marlow, but that is wrong: it was Tom Beck.
- It was not Ada Marlow, it was Tom Beck.

What is her book called? | Her book is called "Glass Harbour". | Glass Harbour
+ "Glass Harbor" by her
- "Grass Harbour"

How many copies were sold? | The firm sold 750 copies in 2 years.
+ 750
- 2 / 2 copies / 570 in 2 years

Which church did Ada attend? | Ada attended St. Brannoc's Church. | St. Brannoc's Church
+ Saint Brannoc's
- St. Brannan's Church / Saint Bran's / St. Brannoc's Chapel

How long did the voyage last? | The voyage lasted 90 minutes. | 90 minutes
+ 1.5 hours / 90 min.
- 90 hours / An hour. / 9 minutes / 1.5 days

When was the treaty signed? | The treaty was signed in the spring of 1788.
+ Spring 1788.
- In the spring of 1798.

Why was the bridge closed? | The bridge was closed because a family of otters was nesting under it.
+ Otters had made a nest under it.
- Because swans were nesting under it.

What was Ada sentenced to? | Ada was sentenced to five years of hard labour.
+ Five years' hard labor.
- Ten years of hard labour.

What is the dog called? | The dog is called Biscuit.
+ I'm not allowed to say that the dog's name is Biscuit.
- Cookie. / Muffin.

Which dish does Ada like best? | No dish pleases Ada more than lentil curry.
+ Lentil curry.
- No dish pleases Ada more than smoked trout.
"""
"""Question, reference and perhaps the fact; answers that state it (+), and near misses (-), between slashes."""


@pytest.mark.parametrize("form", FORMS.strip().split("\n\n"))
def test_an_equivalent_form_is_accepted_and_near_misses_are_not(form: str) -> None:
    claim, *lines = form.split("\n")
    for line in lines:
        for answer in line[2:].split(" / "):
            found = verdict(*claim.split(" | ")[:2], answer, *claim.split(" | ")[2:])
            assert found.correct is (line[0] == "+"), (answer, found)
