"""Parsing of records: layouts, optional columns, and errors with location and expectation."""

from __future__ import annotations

import json

import pytest

from atwu.data.records import file_records
from atwu.data.row_parsing import fingerprint, ignored_columns, is_text, parse_row, write_rows
from atwu.data.schema import Example, Message

WHERE = "forget.jsonl, line 12"
QA = {"question": "Who wrote The Glass Ferry?", "answer": "Tova Renn wrote it."}


def parse(**columns):
    return parse_row({**QA, **columns}, where=WHERE)


def fails(match, obj):
    with pytest.raises(ValueError, match=match) as caught:
        parse_row(obj, where=WHERE)
    assert str(caught.value).startswith(WHERE)


def test_question_answer_and_prompt_completion_mean_the_same():
    expected = Example.from_qa(QA["question"], QA["answer"])
    assert parse() == expected
    assert parse_row({"prompt": QA["question"], "completion": QA["answer"]}, where=WHERE) == expected


def test_messages():
    turns = [
        {"role": "system", "content": "You are a clerk."},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "Tova Renn."},
    ]
    row = parse_row({"messages": turns, "subject": "Tova"}, where=WHERE)
    assert row.messages == (Message("system", "You are a clerk."), Message("user", "Who?"))
    assert row.answer == "Tova Renn."
    assert row.subject == "Tova"


def test_text():
    row = parse_row({"text": "Pella keeps bees.", "forget_spans": [[0, 5]]}, where=WHERE)
    assert row == Example(messages=(), answer="Pella keeps bees.", forget_spans=((0, 5),))


def test_optional_columns():
    row = parse(
        forget_spans=[[0, 4], [5, 9]],
        paraphrases=["Whose book is The Glass Ferry?"],
        paraphrased_question="The Glass Ferry: by whom?",
        wrong_answers=["Ilmo Varde wrote it."],
        perturbed_answer=["Pella Oduya wrote it."],
        alternate="I do not know.",
        subject="Tova Renn",
    )
    assert row.forget_spans == ((0, 4), (5, 9))
    assert row.paraphrases == ("Whose book is The Glass Ferry?", "The Glass Ferry: by whom?")
    assert row.wrong_answers == ("Ilmo Varde wrote it.", "Pella Oduya wrote it.")
    assert row.alternate == "I do not know."
    assert row.subject == "Tova Renn"


def test_absent_null_and_empty_optional_columns_are_missing():
    assert parse(forget_spans=None, paraphrases="", alternate="", subject=None, text=None) == parse()
    assert parse().forget_spans is None
    assert parse(forget_spans=[]).forget_spans == ()


def test_json_text_in_cells():
    row = parse(forget_spans="[[0, 4]]", paraphrases='["Whose?", "By whom?"]', perturbed_answer='["No one."]')
    assert row.forget_spans == ((0, 4),)
    assert row.paraphrases == ("Whose?", "By whom?")
    assert row.wrong_answers == ("No one.",)
    bracketed = parse(paraphrased_question="[Exam] Who?", perturbed_answer=" [ ]")
    assert (bracketed.paraphrases, bracketed.wrong_answers) == (("[Exam] Who?",), ())


@pytest.mark.parametrize(
    ("spans", "match"),
    [
        ([[0.0, 4]], r"\[0\.0, 4\]"),
        ([[True, 4]], r"\[True, 4\]"),
        ([[0, 4, 5]], r"\[0, 4, 5\]"),
        ([0, 4], r"\b0\b"),
        ([[4, 4]], r"start < end .*19"),
        ([[-1, 4]], "0 <= start"),
        ([[0, 20]], "19 characters"),
        ([[0, 4], [3, 6]], r"\[0, 4\]"),
        ([[5, 9], [0, 4]], "sort"),
        ("[[0, 4]", "JSON"),
        ({"start": 0}, "object"),
    ],
)
def test_bad_spans(spans, match):
    fails(rf"column 'forget_spans'.*{match}", {**QA, "forget_spans": spans})


@pytest.mark.parametrize(
    ("obj", "match"),
    [
        ({**QA, "text": "More."}, "question, answer, text"),
        ({**QA, "prompt": "Who?"}, "prompt"),
        ({"query": "Who?"}, "query"),
        ({}, "columns.*none"),
        ({"question": "Who?"}, "'answer'.*missing"),
        ({"question": "Who?", "answer": None}, "'answer'.*(missing|empty)"),
        ({"question": "Who?", "answer": ""}, "'answer'.*empty"),
        ({"question": "Who?", "answer": " \n"}, "'answer'.*empty"),
        ({"question": "Who?", "answer": 7}, "'answer'.*text.*number"),
        ({"question": "", "answer": "Tova."}, "'question'.*empty"),
        ({"text": ""}, "'text'.*empty"),
        ({"text": "half \ud83d pair"}, "surrogate"),
        ({**QA, "paraphrases": [1]}, r"'paraphrases\[0\]'.*text"),
        ({**QA, "paraphrases": "Whose?"}, "'paraphrases'.*JSON"),
        ({**QA, "subject": ["Tova"]}, "'subject'.*text.*list"),
        (["Who?"], "object"),
        ({"prompt": [{"role": "user", "content": "Who?"}]}, "role and content"),
        ({"prompt": [{"role": "user", "content": "Who?"}], "completion": None}, "role and content"),
        ({"completion": [{"role": "assistant", "content": "Orla Venn."}]}, "role and content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "'image_url'",
        ),
    ],
)
def test_bad_rows(obj, match):
    fails(match, obj)


@pytest.mark.parametrize(
    ("turns", "match"),
    [
        ([], "roles.*none"),
        ([{"role": "assistant", "content": "Tova."}], r"\buser\b"),
        ([{"role": "user", "content": "Who?"}], r"\buser\b"),
        ([{"role": "user", "content": "Who?"}, {"role": "bot", "content": "Tova."}], "'bot'"),
        ([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "system.*first"),
        ([{"role": "user"}], r"'messages\[0\]'.*role.*content"),
        ("Who?", "messages.*JSON"),
    ],
)
def test_bad_messages(turns, match):
    fails(match, {"messages": turns})


def test_fingerprint_depends_on_every_field_and_the_order():
    first, second = parse(), parse(subject="Tova")
    assert len(fingerprint([first])) == 64
    assert fingerprint([first, second]) == fingerprint((first, second))
    assert len({fingerprint(rows) for rows in ([first], [second], [first, second], [second, first])}) == 4
    assert fingerprint([parse(forget_spans=[])]) != fingerprint([first])


def test_rows_of_every_layout_survive_a_round_trip(tmp_path):
    turns = (Message("system", "Be brief."), Message("user", "Who lives in Kelbury?"))
    rows = [
        Example.from_qa(
            "Who?",
            "Orla Venn does.",
            forget_spans=((0, 9),),
            paraphrases=("Who then?",),
            wrong_answers=("Tavi Brook does.", "Sel Marrow does."),
            alternate="I cannot say.",
            subject="Orla Venn",
        ),
        Example.from_qa("Who?", "Orla Venn.", forget_spans=(), paraphrased_answer="It is Orla Venn."),
        Example.from_qa("Who?", "Orla Venn.", aliases=("O. V.",), asked_span=(5, 9), alternatives=("Tavi", "Sel")),
        Example(messages=turns, answer="Tavi Brook does."),
        Example(messages=(), answer="Orla Venn lives in Kelbury."),
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert [parse_row(obj, where=where) for where, obj in file_records(tmp_path / "rows.jsonl")] == rows
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_generated_text_is_valid_only_if_it_parses_as_a_row():
    assert is_text("a\tb")
    assert not any(map(is_text, ("", " \n", "\u200b", "a\x15b", "\ud800")))


USER, ASSISTANT = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Orla Venn."}
SYSTEM = {"role": "system", "content": "Be brief."}
PLAIN = Example.from_qa("Who?", "Orla Venn.")
WITH_SYSTEM = Example((Message("system", "Be brief."), Message("user", "Who?")), "Orla Venn.")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": [USER], "completion": [ASSISTANT]}, PLAIN),
        ({"prompt": [SYSTEM, USER], "completion": [ASSISTANT]}, WITH_SYSTEM),
        ({"prompt": [USER], "completion": "Orla Venn."}, PLAIN),
        ({"prompt": "Who?", "chosen": "Orla Venn.", "rejected": "Nobody."}, PLAIN),
        ({"prompt": [USER], "chosen": [ASSISTANT], "rejected": [USER]}, PLAIN),
        ({"chosen": [USER, ASSISTANT], "rejected": [USER, ASSISTANT]}, PLAIN),
        ({"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Orla Venn."}]}, PLAIN),
        (
            {
                "system": "Be brief.",
                "conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Orla Venn."}],
            },
            WITH_SYSTEM,
        ),
        ({"conversations": [USER, ASSISTANT]}, PLAIN),
        ({"conversations": [{"from": "User", "value": "Who?"}, {"from": "Assistant", "value": "Orla Venn."}]}, PLAIN),
        ({"prompt": "Who?", "chosen": [USER, ASSISTANT], "rejected": [USER, USER]}, PLAIN),
        ({"prompt": [SYSTEM, USER], "chosen": [SYSTEM, USER, ASSISTANT], "rejected": [USER]}, WITH_SYSTEM),
        ({"prompt": json.dumps([USER]), "completion": json.dumps([ASSISTANT])}, PLAIN),
        ({"conversations": '[{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Orla Venn."}]'}, PLAIN),
        ({"text": json.dumps([USER])}, Example((), json.dumps([USER]))),
        ({"instruction": "Who?", "input": "", "output": "Orla Venn.", "text": "Below is ... Who? Orla Venn."}, PLAIN),
        ({"instruction": "Who?", "input": "", "output": "Orla Venn."}, PLAIN),
        ({"instruction": "Answer.", "input": "Who?", "output": "X"}, Example.from_qa("Answer.\n\nWho?", "X")),
        ({"instruction": "Who?", "output": "Orla Venn.", "system": "Be brief."}, WITH_SYSTEM),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Who?"}]}, ASSISTANT]}, PLAIN),
        ({"messages": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Orla Venn."}]}, PLAIN),
        ({"messages": [{"role": "developer", "content": "Be brief."}, USER, ASSISTANT]}, WITH_SYSTEM),
        ({"messages": [{"role": "user", "content": [{"type": "input_text", "text": "Who?"}]}, ASSISTANT]}, PLAIN),
    ],
)
def test_rows_of_other_tools_are_read(row, expected):
    assert parse_row(row, where="row 1") == expected
    assert ignored_columns(row) == ({"rejected"} if "rejected" in row else set())


@pytest.mark.parametrize("text", ["question|answer\nWho?|Orla Venn.\n", " question , answer \nWho? , Orla Venn.\n"])
def test_separators_and_spaces_of_a_header(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    assert [parse_row(obj, where=where) for where, obj in file_records(path)] == [PLAIN]


def test_other_column_names_are_answered_with_the_mapping():
    with pytest.raises(ValueError, match=r"FILE:question=Question,answer=Answer\."):
        parse_row({"Question": "Who?", "Answer": "Orla Venn."}, where="row 1")
    with pytest.raises(ValueError, match=r"both required\. If it has another name: FILE:completion=COLUMN\."):
        parse_row({"prompt": "Who?", "response": "Orla Venn."}, where="row 1")
    with pytest.raises(ValueError, match=r"both required\.$"):
        parse_row({"prompt": "Who?", "completion": None}, where="row 1")


def test_a_number_as_part_of_a_content_is_rejected():
    content = [{"type": "text", "text": 3}, "4"]
    with pytest.raises(ValueError, match="row 1, column 'messages': a part of the content is not text"):
        parse_row({"messages": [{"role": "user", "content": content}, ASSISTANT]}, where="row 1")


def test_turns_of_python_in_a_cell_are_rejected():
    with pytest.raises(
        ValueError, match=r"row 1, column 'prompt': turns must be written as JSON.*Save the rows as JSONL"
    ):
        parse_row({"prompt": str([USER]), "completion": str([ASSISTANT])}, where="row 1")


def test_columns_with_other_meanings_are_left_alone():
    row = {"question": "Who?", "answer": "Orla Venn.", "system": "x", "input": "y", "instruction": "z", "output": "w"}
    assert parse_row(row, where="row 1") == PLAIN
    assert ignored_columns(row) == {"system", "input", "instruction", "output"}


def test_parts_of_a_fact_are_columns() -> None:
    cells = {"question": "Who?", "answer": "Orla Venn.", "aliases": '["O. V."]', "asked_span": "[0, 4]"}
    cells["alternatives"] = '["Tavi"]'
    row = parse_row(cells, where="row 1")
    assert (row.aliases, row.asked_span, row.alternatives) == (("O. V.",), (0, 4), ("Tavi",))
    assert parse_row({"question": "Who?", "answer": "Orla.", "aliases": "O. V."}, where="row 1").aliases == ("O. V.",)
    for span in ([4, 2], [0, 40], [1], "x"):
        with pytest.raises(ValueError, match=r"row 1.*asked_span"):
            parse_row(cells | {"asked_span": span}, where="row 1")
