"""Paraphrases: which candidates are kept, and why others are dropped."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from atwu.data.schema import Example, Message
from atwu.judge import written_rows as paraphrase
from atwu.judge.asker import Asker
from atwu.judge.chat_model import ChatRequest
from atwu.judge.reply_cache import ReplyCache
from atwu.judge.written_rows import estimate_paraphrases, problem, write_paraphrases
from tests.judge.conftest import Fake, empty_cache

QUESTION = "In which town was Orla Venn, the harpist, born on 3 March 1961?"
ANSWER = "Orla Venn was born in the harbour town of Kelbury."
ROW = Example.from_qa(QUESTION, ANSWER, forget_spans=((42, 49),), subject="Orla Venn")
BARE = Example.from_qa(QUESTION, ANSWER)

GOOD = [
    "On 3 March 1961 the harpist Orla Venn was born; in which place?",
    "Which town is the birthplace of the harpist Orla Venn (3 March 1961)?",
    "Where did Orla Venn, who plays the harp, come into the world on March 3rd, 1961?",
]


def writer(candidates: dict[str, str], same: Callable[[str], str] = lambda text: '{"same": "YES"}') -> Fake:
    """Give scripted candidates for a paraphrase request, and decide comparisons by a word."""

    def reply(request: ChatRequest) -> str:
        lines = request.messages[1].content.splitlines()
        return same(lines[-2]) if lines[0].startswith("<first-question-") else candidates[lines[1]]

    return Fake(reply)


def listed(*texts: str) -> str:
    return json.dumps({"paraphrases": texts})


BOATS = Example.from_qa("How many boats does Tavi Brook own?", "Tavi Brook owns 3 boats.", forget_spans=((16, 17),))
PLAYS = Example.from_qa("Orla Venn plays what?", "Orla Venn plays the harp.")
REQUEST = Example.from_qa("Name the town of Orla Venn.", "Kelbury.")
CHINESE = Example.from_qa("奥拉出生在哪里？", "凯尔伯里", forget_spans=((0, 4),))
HARBOUR = "Which harbour is the birthplace of the harpist Orla Venn (3 March 1961)?"


@pytest.mark.parametrize(
    ("row", "text", "reason"),
    [
        *((ROW, text, None) for text in GOOD),
        (ROW, "Was Kelbury the town in which Orla Venn, the harpist, was born on 3 March 1961?", paraphrase.LEAK),
        (ROW, "Is the Kelburyan harpist Orla Venn, born on 3 March 1961, from a town?", paraphrase.LEAK),
        (ROW, "In what town was the harpist O. Venn born on 3 March 1961?", paraphrase.DROPPED),
        (ROW, "In what town was the harpist Orla Venn born in March 1961?", paraphrase.DROPPED),
        (ROW, "In what town was the harpist Orla Venn born on 3 May 1961?", paraphrase.DROPPED),
        (ROW, "In what town was the harpist Orla Venn born on 3 March 1962?", paraphrase.DROPPED),
        (ROW, "Tell me the town where the harpist Orla Venn was born on 3 March 1961.", paraphrase.NO_QUESTION),
        (ROW, "in which town was Orla Venn - the harpist - born, on 3 march 1961 ?", paraphrase.REPEATED),
        (ROW, "  ?", paraphrase.EMPTY),
        (ROW, "", paraphrase.EMPTY),
        (ROW, HARBOUR, None),
        # Without labels every answer word missing from the question is a leak.
        (BARE, HARBOUR, paraphrase.LEAK),
        (BARE, GOOD[1], None),
        (BOATS, "Does Tavi Brook own three boats or how many?", paraphrase.LEAK),
        (BOATS, "What is the number of boats owned by Tavi Brook?", None),
        # A name at the beginning is recognized from the answer.
        (PLAYS, "What does Venn play?", paraphrase.DROPPED),
        (PLAYS, "What does Orla Venn play?", None),
        (REQUEST, "Say where Orla Venn lives.", None),
        (CHINESE, "奥拉是在凯尔伯里出生的吗？", paraphrase.LEAK),
        (CHINESE, "哪里是奥拉的出生地？", None),
    ],
)
def test_problems(row, text, reason):
    assert problem(row, text) == reason


def test_rows_get_the_first_good_paraphrases_and_dropped_ones_are_counted():
    leak = "Was the harpist Orla Venn born in Kelbury on 3 March 1961?"
    model = writer({QUESTION: "```json\n" + listed(leak, GOOD[0], GOOD[0].upper(), *GOOD[1:]) + "\n```"})
    found = write_paraphrases([ROW], Asker(model, empty_cache(), progress=False), count=2)
    assert found.rows[0].paraphrases == tuple(GOOD[:2])
    assert (found.rows[0].question, found.rows[0].answer, found.rows[0].subject) == (QUESTION, ANSWER, "Orla Venn")
    assert found.rejected == {paraphrase.LEAK: 1, paraphrase.REPEATED: 1}
    assert (found.incomplete, found.failed) == (0, 0)
    assert "3 " in model.prompts[0]
    assert len(model.asked) == 1 + 3


def test_paraphrases_with_another_meaning_or_an_unreadable_comparison_are_rejected():
    def same(text: str) -> str:
        return '{"same": "no"}' if "birthplace" in text else "hm" if "world" in text else '{"same": "YES"}'

    model = writer({QUESTION: listed(*GOOD)}, same)
    found = write_paraphrases([ROW], Asker(model, empty_cache(), progress=False), count=3)
    assert found.rows[0].paraphrases == (GOOD[0],)
    assert found.rejected == {paraphrase.OTHER_MEANING: 1, paraphrase.UNCHECKED: 1}
    assert found.incomplete == 1
    assert str(found).startswith("1 paraphrases ")
    assert f"1 rejected: {paraphrase.OTHER_MEANING}" in str(found)

    trusting = write_paraphrases([ROW], Asker(model, empty_cache(), progress=False), count=3, check_meaning=False)
    assert trusting.rows[0].paraphrases == tuple(GOOD)


@pytest.mark.parametrize(
    ("reply", "failed"),
    [
        *((text, 1) for text in ("no", '{"paraphrases": []}', '{"paraphrases": "a"}', '{"paraphrases": ["a", 1]}')),
        (listed("Where was she born?"), 0),
    ],
)
def test_a_row_without_new_paraphrases_is_counted_and_keeps_its_old_ones(reply, failed):
    model = writer({QUESTION: reply, "Who is Tavi Brook?": listed("Tavi Brook is who?")})
    rows = [dataclasses.replace(ROW, paraphrases=("old",))]
    rows.append(Example.from_qa("Who is Tavi Brook?", "A baker.", paraphrases=("other",)))
    found = write_paraphrases(rows, Asker(model, empty_cache(), progress=False), count=1)
    assert [row.paraphrases for row in found.rows] == [("old",), ("Tavi Brook is who?",)]
    assert (found.kept, found.incomplete, found.failed) == (1, 1, failed)


def test_rows_without_a_question_are_rejected():
    asker = Asker(writer({}), empty_cache(), progress=False)
    with pytest.raises(ValueError, match=r"row 2.*'Orla Venn plays\.'"):
        write_paraphrases([ROW, Example((), "Orla Venn plays.")], asker, count=2)
    with pytest.raises(ValueError, match=r"count.* 1"):
        write_paraphrases([ROW], asker, count=0)


def test_the_last_turn_is_paraphrased_and_braces_are_kept():
    question = "What is {count} in {question}?"
    turns = (Message("user", "Hello"), Message("assistant", "Hello!"), Message("user", question))
    model = writer({question: listed("{count}: what is it in {question}?")})
    found = write_paraphrases([Example(turns, "A {field}.")], Asker(model, empty_cache(), progress=False), count=1)
    assert found.rows[0].messages == turns
    assert found.rows[0].paraphrases == ("{count}: what is it in {question}?",)
    assert "\nA {field}.\n</secret-answer-" in model.prompts[0]


def test_the_estimate_bounds_the_requests_and_is_zero_afterwards(tmp_path):
    model = writer({QUESTION: listed(*GOOD)})
    asker = Asker(model, ReplyCache(tmp_path / "replies.sqlite"), progress=False)
    before = estimate_paraphrases([ROW, ROW], asker, count=2)
    assert (before.calls, model.asked) == (1 + 3, [])
    assert estimate_paraphrases([ROW], asker, count=2, check_meaning=False).calls == 1
    write_paraphrases([ROW], asker, count=2, check_meaning=False)
    assert estimate_paraphrases([ROW], asker, count=2).calls == 3
    write_paraphrases([ROW], asker, count=2)
    assert len(model.asked) == 4
    assert estimate_paraphrases([ROW], asker, count=2).calls == 0
