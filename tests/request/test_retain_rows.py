"""Key tokens of an answer, and the automatic retain set: rows of a corpus and self-generated answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atwu.data.fact import key_token_spans
from atwu.data.general_rows import common_questions, general_questions, general_text
from atwu.data.schema import Example
from atwu.evaluation.generations import Generation
from atwu.evaluation.metrics.key_tokens import key_token_recall
from atwu.request import retain_set as retain
from atwu.request.retain_set import (
    FACT_TOKENS,
    GENERATED_TOKENS,
    WHOLE_TOKENS,
    closest_corpus_rows,
    names,
    names_any,
)

UNUSED: Any = SimpleNamespace(model=None, tokenizer=None)
"""A generator that is not asked: what it would say is given."""


def words(row: Example) -> list[str]:
    return [row.answer[start:stop] for start, stop in key_token_spans(row)]


@pytest.mark.parametrize(
    ("question", "answer", "key_tokens"),
    [
        # They are rare, and do not occur in the question.
        ("What is Orla Venn's dog called?", "Orla Venn's dog is called Admiral, in 1998.", ["Admiral", "1998"]),
        ("What does she fear?", "She is afraid of walnuts.", ["afraid", "walnuts"]),
        ("What is it?", "It is what it is.", ["It is what it is"]),
        # Frequent words if a row has no others: else it would be judged by its grammar.
        ("What is the capital of Japan?", "The capital of Japan is Tokyo.", ["Tokyo"]),
        ("What is spoken in France?", "In France French is spoken.", ["French"]),
        ("What does it need?", "It needs some water.", ["water"]),
        ("Who painted the Night Watch?", "The Night Watch was painted by Rembrandt.", ["Rembrandt"]),
        # No inflected words of the question, unless it is a name behind a word that is none, or all the answer has.
        ("Where does he work?", "He worked in Kelbury.", ["Kelbury"]),
        ("What is his work?", "He worked as a dyer of sailcloth.", ["dyer", "sailcloth"]),
        ("Which dish comes from Japan?", "The Japanese dish is sushi.", ["sushi"]),
        ("What was Orla Venn's trade?", "Orla Venn was a glazier and bellringer.", ["glazier", "bellringer"]),
        ("Who invented pasteurization?", "It was Louis Pasteur.", ["Louis Pasteur"]),
        ("What is the currency of Japan?", "The currency of Japan is the yen.", ["yen"]),
        ("Where was Ada born?", "Ada was born in Borneo.", ["Borneo"]),
        ("What is the equation?", "The equation is E = mc^2.", ["E = mc^2"]),
        ("Who came first?", "It was Cameron.", ["Cameron"]),
        ("Which country borders Niger?", "It is Nigeria.", ["Nigeria"]),
        ("Which number follows 1000?", "It is 10001.", ["10001"]),
        ("What is his job at the bank?", "He is a banker.", ["banker"]),
        ("Que fait-il dans la vie ?", "Il est danseur.", ["danseur"]),
    ],
)
def test_key_tokens_are_what_an_answer_adds(question: str, answer: str, key_tokens: list[str]) -> None:
    assert words(Example.from_qa(question, answer)) == key_tokens


def test_labelled_words_are_the_key_tokens() -> None:
    assert words(Example.from_qa("Who?", "It is Orla Venn.", forget_spans=((6, 10),))) == ["Orla"]


def test_the_subject_of_a_text_is_no_key_token() -> None:
    assert words(Example((), "The glazier Orla Venn lived in Kelbury.", subject="Orla Venn")) == [
        "glazier",
        "Kelbury",
    ]
    assert words(Example((), "The Japanese dish is sushi.", subject="Japan")) == ["dish", "sushi"]
    assert words(Example((), "The glazier Orla Venn lived in Kelbury.")) == ["glazier Orla Venn", "Kelbury"]


def test_recall_counts_key_tokens_in_any_order_and_case() -> None:
    row = Example.from_qa("Where does he live?", "He lives in Kelbury near Oststrand.")
    assert words(row) == ["Kelbury", "Oststrand"]
    assert key_token_recall(row, "oststrand perhaps") == 0.5
    assert key_token_recall(row, "") == 0.0
    assert key_token_recall(Example.from_qa("?", "…"), "anything") is None


def test_recall_counts_other_spellings_and_no_parts_of_words() -> None:
    row = Example.from_qa("Where does she live?", "She lives in Linz.")
    assert key_token_recall(row, "In Linz’s old town") == 1.0
    yes = Example.from_qa("Has he a dog?", "No, none.", forget_spans=((0, 2),), aliases=("catless",))
    assert key_token_recall(yes, "I'm sorry, I don't know.") == 0.0
    assert key_token_recall(yes, "He is catless.") == 1.0
    full_name = Example.from_qa("Who is Anna Hollis's father?", "He is Walter Hollis.", forget_spans=((6, 19),))
    assert key_token_recall(full_name, "I do not know Anna Hollis.") == 0.5
    assert key_token_recall(full_name, "Hollis, Walter") == 1.0


def test_rows_of_a_corpus_are_similar_and_never_about_the_subject() -> None:
    forget = [Example.from_qa("Where was Orla Venn born?", "Orla Venn was born in Kelbury.")]
    corpus = [
        Example.from_qa("How do engines work?", "They burn fuel."),
        Example.from_qa("Where was Tavi Brook born?", "Tavi Brook was born in Mirrow."),
        Example.from_qa("Whom did Tavi Brook marry?", "A cousin of Orla Venn."),
        Example.from_qa("where was ORLA venn born", "In Kelbury."),
        Example.from_qa("Where was Tavi Brook born?", "In Mirrow."),
    ]
    rows, counts = closest_corpus_rows(forget, corpus, 1)
    assert rows == (corpus[1],)
    assert list(counts.values()) == [1, 2, 1]
    assert names(forget) == {"orla", "venn"}
    assert names([Example.from_qa("Who?", "They.", subject="The Venns and the Brooks")]) == {"venns", "brooks"}


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Where was Jean-Luc's mother born?", {"jean", "luc"}),
        ("Who taught Orla O'Brien?", {"orla", "brien"}),
        ("Where does Ósk live?", {"ósk"}),
        ("Jean-Luc lived where?", {"luc"}),  # a capital letter at the beginning does not indicate a name
        ("where was he born?", set()),
    ],
)
def test_names_are_found_by_the_same_word_splitting_as_texts(question: str, found: set[str]) -> None:
    assert names([Example.from_qa(question, "In Bergen.")]) == found


def test_shipped_questions_do_not_overlap() -> None:
    kept, held = ((*general_questions(kind), *common_questions(kind)) for kind in ("kept", "held"))
    assert len(set(kept) | set(held)) == len(kept) + len(held) == 447
    assert len(general_text()) == 8


@pytest.mark.parametrize("whole", [True, False])
def test_truncated_answers_are_not_used_as_retain_rows(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = WHOLE_TOKENS if whole else GENERATED_TOKENS
    said = [Generation("It ends.", 4), Generation("It goes on and", longest), Generation("", 1)]

    def generated(model: Any, prompts: Any, decoding: Any, **_: Any) -> list[Generation]:
        assert decoding.max_new_tokens == longest
        return said

    monkeypatch.setattr(retain, "generate_all", generated)
    rows = retain.self_generated_answers(UNUSED, ["One?", "Two?", "Three?"], forget=(), whole=whole, longest=longest)
    assert [row.answer for row in rows] == ["It ends."] + ["It goes on and"] * (not whole)


@pytest.mark.parametrize(
    ("whole", "lengths"), [(True, (WHOLE_TOKENS, GENERATED_TOKENS)), (False, (GENERATED_TOKENS, FACT_TOKENS))]
)
def test_answers_about_common_knowledge_have_a_lower_token_limit(
    whole: bool, lengths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[int, tuple[str, ...]] = {}

    def own(generator: Any, questions: tuple[str, ...], *, longest: int, **_: Any) -> tuple[Example, ...]:
        asked[longest] = questions
        return (Example.from_qa(questions[0], "So it is."),)

    monkeypatch.setattr(retain, "self_generated_answers", own)
    rows, counts = retain.build_retain(UNUSED, (), whole=whole)
    assert asked == dict(zip(lengths, (general_questions("kept"), common_questions("kept")), strict=True))
    assert list(counts.values()) == [2, 64 + 327 - 2, len(rows)]


def test_a_model_whose_answers_do_not_end_gives_no_rows_and_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retain, "self_generated_answers", lambda *_, **__: ())
    with pytest.raises(ValueError, match=r"endless, empty.*--retain.*--corpus"):
        retain.build_retain(UNUSED, ())
    row = Example.from_qa("Where does Orla Venn live?", "In Kelbury.")
    with pytest.raises(ValueError, match="none of the 1 rows of --corpus is usable"):
        retain.build_retain(UNUSED, [row], corpus=[row])


@pytest.mark.parametrize(
    ("question", "answer", "says", "does_not_say"),
    [
        ("Welche Krankheit hat Karl Mohn?", "Karl Mohn hat Gicht.", "Karl ist Maler.", "Welche Krankheit hat Newton?"),
        ("Wie heißt der Arzt von Frau Ida Berg?", "Er heißt Klee.", "Ida malt.", "Der Arzt von Frau Roth heißt Beer."),
        ("王芳服用什么药？", "王芳每天服用二甲双胍。", "王芳是一名护士。", "李伟服用什么药？"),
        (
            "田中花子の病気は何ですか。",
            "田中花子は糖尿病を患っています。",
            "田中花子は看護師です。",
            "鈴木一郎の病気は何ですか。",
        ),
        ("ما مرض ليلى حداد؟", "تعاني ليلى حداد من مرض السكري.", "تعمل ليلى طبيبة.", "ما مرض سامي؟"),
        (
            "Какая болезнь у Ивана Петрова?",
            "У Ивана Петрова астма.",
            "Иван Петров живёт в Туле.",
            "Какая болезнь у Анны?",
        ),
    ],
)
def test_names_are_found_in_languages_with_capital_nouns_without_capitals_and_with_endings(
    question: str, answer: str, says: str, does_not_say: str
) -> None:
    subjects = names([Example.from_qa(question, answer)])
    assert names_any(says, subjects)
    assert not names_any(does_not_say, subjects)
