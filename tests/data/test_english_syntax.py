"""English questions and answers in other syntax: worked sentences, sentences that are left alone, and words that stay."""

from __future__ import annotations

import re

import pytest

from atwu.data.english_syntax import CLEFT, PASSIVE, RELATIVE, SYNTAX_FORMS, rewrite_answer, rewrite_question
from atwu.data.english_verbs import active, base_to_past, base_to_third_person, participle


def rewrite(answer: str, key: str, question: str = "Which one?") -> dict[str, str]:
    before, after = answer.split(key, maxsplit=1)
    return rewrite_answer(before, key, after, question=question)


@pytest.mark.parametrize(
    ("question", "subject", "expected"),
    [
        (
            "Who carved the Ostby altar?",
            None,
            (
                "Who was it that carved the Ostby altar?",
                "Name the person who carved the Ostby altar.",
                "By whom was the Ostby altar carved?",
            ),
        ),
        (
            "Which Norwegian firm built the Lindo bridge in 1931?",
            None,
            (
                "Which Norwegian firm was it that built the Lindo bridge in 1931?",
                "Name the Norwegian firm that built the Lindo bridge in 1931.",
                "By which Norwegian firm was the Lindo bridge built in 1931?",
            ),
        ),
        (
            "In which valley does the Halden clinic stand?",
            "Halden clinic",
            (
                "In which valley is it that the Halden clinic stands?",
                "Name the valley in which the Halden clinic stands.",
                None,
            ),
        ),
        (
            "When did Rhea Stoll marry?",
            "Rhea Stoll",
            ("When was it that Rhea Stoll married?", "Name the time when Rhea Stoll married.", None),
        ),
        (
            "What is Ivo Marsh afraid of?",
            "Ivo Marsh",
            ("What is it that Ivo Marsh is afraid of?", "Name what Ivo Marsh is afraid of.", None),
        ),
        (
            "What is the motto of the Corvo club?",
            "Corvo",
            (
                "What is it that is the motto of the Corvo club?",
                "Name the one that is the motto of the Corvo club.",
                None,
            ),
        ),
    ],
)
def test_questions_by_hand(question, subject, expected):
    written = rewrite_question(question, subject)
    assert tuple(written.get(form) for form in SYNTAX_FORMS) == expected


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("Who is Zada Finch?", "Zada Finch"),  # asks for nothing behind "it is"
        ("How many daughters does Zada Finch have?", "Zada Finch"),
        ("Which prize has the author won?", None),  # the author may win, or be won by
        ("What is the dog of Zada Finch called?", None),
        ("Who were the parents of Zada Finch?", None),
        ("What is her name and where was she born?", None),
        ("Did Zada Finch write it?", "Zada Finch"),
        ("Name her dog.", None),
        ("What are the colours of the Merrow flag?", "Merrow"),
        ("What ratio does the Hake mortar have?", "Hake"),  # "mortar" is no verb
    ],
)
def test_questions_that_no_rule_covers_are_left_alone(question, subject):
    assert rewrite_question(question, subject) == {}


@pytest.mark.parametrize(
    ("answer", "key", "question", "expected"),
    [
        (
            "The motto of the club is Never Again.",
            "Never Again",
            "What is the motto of the club?",
            (
                "It is Never Again that is the motto of the club.",
                "The one that is the motto of the club is Never Again.",
                None,
            ),
        ),
        (
            "Pell Quint repaired the tower clock.",
            "tower clock",
            "What did Pell Quint repair?",
            (
                "It was the tower clock that Pell Quint repaired.",
                "The tower clock is what Pell Quint repaired.",
                "The tower clock was repaired by Pell Quint.",
            ),
        ),
        (
            "He stole the silver spoon.",
            "silver spoon",
            "Which object did Pell Quint steal?",
            (
                "It was the silver spoon that he stole.",
                "The silver spoon is the object that he stole.",
                "The silver spoon was stolen by him.",
            ),
        ),
        (
            "The treaty was signed in Vale Cross, Norland.",
            "Vale Cross",
            "Where was the treaty signed?",
            (
                "It was in Vale Cross, Norland that the treaty was signed.",
                "Vale Cross, Norland is where the treaty was signed.",
                None,
            ),
        ),
        (
            "Tavi Brook wrote the anthem in 1903.",
            "Tavi Brook",
            "Who wrote the anthem?",
            (
                "It was Tavi Brook that wrote the anthem in 1903.",
                "The one that wrote the anthem in 1903 is Tavi Brook.",
                "The anthem was written by Tavi Brook in 1903.",
            ),
        ),
        (
            "The Lantern was drawn by Tavi Brook.",
            "Lantern",
            "Which picture was drawn by Tavi Brook?",
            (
                "It was the Lantern that was drawn by Tavi Brook.",
                "The picture that was drawn by Tavi Brook is the Lantern.",
                "Tavi Brook drew the Lantern.",
            ),
        ),
        (
            "The seat of the firm is Mirrow, N.L.",
            "Mirrow, N.L.",
            "What is the seat of the firm?",
            (
                "It is Mirrow, N.L. that is the seat of the firm.",
                "The one that is the seat of the firm is Mirrow, N.L.",
                None,
            ),
        ),
    ],
)
def test_answers_by_hand(answer, key, question, expected):
    written = rewrite(answer, key, question)
    assert tuple(written.get(form) for form in SYNTAX_FORMS) == expected


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        ("Kelbury", "Kelbury"),
        ("The museum in Kelbury.", "museum"),  # no sentence
        ("She lives in Molde, above a bakery.", "Molde"),  # goes on behind its fact
        ("In 1998 he received the Silver Otter.", "Silver Otter"),
        ("He owns the famous Silver Otter.", "Silver Otter"),  # "famous" belongs to it
        ("Orla left Kelbury; she moved to Ulm.", "Ulm"),
        ("Orla is the author of Silver Otter.", "Silver Otter"),
        ("It is Silver Otter.", "Silver Otter"),
        ("Kim broke rule 7(3).", "7(3)"),  # "rule" is a noun
    ],
)
def test_answers_that_no_rule_covers_are_left_alone(answer, key):
    assert rewrite(answer, key) == {}


@pytest.mark.parametrize("sentence", ["Orla became a judge.", "Orla told her son stories.", "Orla lived near Ulm."])
def test_verbs_that_have_no_passive_get_none(sentence):
    assert PASSIVE not in rewrite(sentence, sentence.split(" ", 2)[2].rstrip("."))
    assert PASSIVE not in rewrite(sentence, "Orla")


def test_an_amount_or_a_score_gets_no_passive():
    assert PASSIVE not in rewrite("Orla ran 45 minutes.", "45 minutes")
    assert PASSIVE not in rewrite("The derby ended 2:2.", "2:2")


def test_a_noun_behind_a_name_with_an_article_is_no_predicate():
    written = rewrite_question("What is the French word for cat?", "French")
    assert written[CLEFT] == "What is it that is the French word for cat?"


def test_a_passive_of_the_present_does_not_become_a_past():
    assert PASSIVE not in rewrite("Ophelia is played by Zoe Costa.", "Zoe Costa")


def test_you_loses_its_capital_inside_a_sentence():
    assert (
        rewrite("You can reach her at Mill Lane.", "Mill Lane")[CLEFT] == "It is at Mill Lane that you can reach her."
    )


def test_marks_move_with_their_words():
    written = rewrite_answer(
        "Pell Quint repaired the ", "\x02tower\x03 \x02clock\x03", ".", question="What did he repair?"
    )
    assert written[RELATIVE] == "The \x02tower\x03 \x02clock\x03 is what Pell Quint repaired."
    capital = rewrite_answer("Pell Quint repaired ", "\x02clocks\x03", ".", question="What did he repair?")
    assert capital[PASSIVE] == "\x02Clocks\x03 was repaired by Pell Quint."
    both = rewrite_answer("\x02Pell\x03 Quint repaired ", "\x02clocks\x03", ".", question="What did he repair?")
    assert both[CLEFT] == "It was \x02clocks\x03 that \x02Pell\x03 Quint repaired."


def test_the_words_of_an_answer_stay():
    """All words but articles, forms of "be" and the verb of a passive are those of the answer."""
    answer = "The old bell of Vale Cross was cast by Joss Ardley."
    for text in rewrite(answer, "Joss Ardley", "Who cast the bell?").values():
        words = {
            word for word in re.findall(r"[a-z]+", text.lower()) if word not in ("it", "that", "who", "is", "was", "by")
        }
        assert words == {"the", "old", "bell", "of", "vale", "cross", "cast", "joss", "ardley"}


@pytest.mark.parametrize(
    ("base", "past"), [("marry", "married"), ("move", "moved"), ("play", "played"), ("steal", "stole")]
)
def test_pasts_by_ending_and_from_the_list(base, past):
    assert base_to_past(base) == past


def test_forms_of_verbs_that_rules_need():
    assert (participle("wrote"), participle("painted")) == ("written", "painted")
    assert (active("written"), active("painted"), active("wrote"), active("Paris")) == ("wrote", "painted", None, None)
    assert [base_to_third_person(base) for base in ("study", "teach", "play", "have")] == [
        "studies",
        "teaches",
        "plays",
        "has",
    ]
