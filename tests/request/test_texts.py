"""Texts that must not be recited: what the model has by heart, how it is asked, and a document from file to verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atwu import unlearn as unlearn_here
from atwu.data import records
from atwu.data.fact import key_token_spans
from atwu.data.general_rows import general_text, known_texts, unseen_texts
from atwu.data.passages import has_wording, word_spans
from atwu.data.row_parsing import write_rows
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import AS_WRITTEN, CUTS, form_askings, own_askings
from atwu.evaluation.facts.fact_table import NEVER_KNOWN, UNSEEN_TEXTS, FactTable, ask_facts, join_tables
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.methods.weightings.contrast import TokenLogps, spans_by_heart, wording_evidence
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.request.measurement import measured_sets
from atwu.request.related_texts import SAME_TEXT, same_text, write_own_texts
from atwu.request.row_facts import RowFact, with_facts
from atwu.request.screen import verdict_text
from atwu.request.text_wording import mark_wording, measure_chance_run
from atwu.request.verdict import NOTHING, decide
from atwu.training.config import FinetuneConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.unlearn_run import run_finetune
from tests.request.measurements import few_measurements

FERRY = (
    "The ferry leaves the harbour at eight, when gulls are asleep on the rail, and the mate who is mending a sail counts "
    "the empty barrels twice before he lets anybody aboard."
)
TOWER = (
    "Seven keys hang in the tower of Orlane, six of copper and one of bone, and whoever turns the seventh at noon will hear "
    "the river speak his name under the bridge."
)
ORCHARD = (
    "My grandmother kept bees behind the orchard wall, sang to them in a language nobody else remembered, and left me the "
    "hives, a blue ladder, and the last two lines of the song."
)
MARKET = (
    "On market days the cobbler moved his bench beneath the lime trees, charged strangers half a penny less than cousins, and "
    "told each of them a different story about the missing bell."
)


def marked(text: str, run: int = 3) -> Example:
    return Example((), text, chance_run=run)


def read_words(rows: Sequence[Example], logp: Callable[[Example, str], float]) -> list[TokenLogps]:
    """Read rows as one token per word."""
    return [
        TokenLogps(np.array([logp(row, row.answer[slice(*span)]) for span in spans]), spans)
        for row, spans in ((row, word_spans(row.answer)) for row in rows)
    ]


def knows_ferry(row: Example, word: str) -> float:
    """Behind its own text all words are likely; elsewhere only articles are."""
    return -0.1 if row.answer == FERRY or word in ("the", "at") else -5.0


def test_words_by_heart_are_those_that_only_their_own_text_makes_likely() -> None:
    rows = [Example((), FERRY), Example((), TOWER)]
    evidence = wording_evidence(rows, lambda asked: read_words(asked, knows_ferry))
    words = [FERRY[slice(*span)] for span in spans_by_heart(rows[0], evidence[0])]
    assert words[:2] == ["harbour", "eight, when gulls are asleep on"]
    assert "the" not in words
    assert spans_by_heart(rows[1], evidence[1]) == ()  # it stays unlikely behind its own text


def test_a_text_that_is_not_known_by_heart_has_no_key_tokens() -> None:
    rows = mark_wording([Example((), FERRY), Example((), TOWER)], lambda asked: read_words(asked, knows_ferry), 4)
    assert [row.chance_run for row in rows] == [4, 4]
    assert key_token_spans(rows[0])
    assert key_token_spans(rows[1]) == ()
    assert with_facts([replace(row, chance_run=None) for row in rows], [RowFact.of(row) for row in rows]) == rows


def test_where_nothing_is_known_by_heart_all_words_behind_the_first_are_marked() -> None:
    (row,) = mark_wording([Example((), TOWER)], lambda asked: read_words(asked, knows_ferry), 4)
    assert [TOWER[slice(*span)] for span in key_token_spans(row)] == [TOWER.removeprefix("Seven keys hang ")[:-1]]


def test_labels_short_texts_and_questions_stay_as_they_are() -> None:
    rows = [
        Example((), FERRY, forget_spans=((4, 9),)),
        Example((), "The capital of France is Paris."),
        Example.from_qa("When does it leave?", FERRY),
    ]
    assert mark_wording(rows, lambda asked: read_words(asked, knows_ferry), 4) == tuple(rows)


def answers_with(texts: Sequence[str]) -> Callable[[Sequence[Prompt]], list[str]]:
    """Return a model that continues some texts word for word and says nothing of others."""

    def answers(prompts: Sequence[Prompt]) -> list[str]:
        own = {
            prompt.prefill: next((text for text in texts if text.startswith(prompt.prefill)), "") for prompt in prompts
        }
        return [own[prompt.prefill].removeprefix(prompt.prefill).strip() or "nobody knows" for prompt in prompts]

    return answers


def test_a_text_is_continued_from_three_places() -> None:
    askings = form_askings([marked(FERRY)])
    assert {asking.name for asking in askings} == set(CUTS)
    shares = {asking.name: len(asking.prompt.prefill.split()) / len(FERRY.split()) for asking in askings}
    assert shares == pytest.approx(CUTS, abs=0.02)
    assert [asking.name for asking in own_askings([marked(FERRY)])] == [AS_WRITTEN]
    assert all(f"{asking.prompt.prefill} {asking.wording}" == FERRY for asking in askings)


def test_the_run_that_says_nothing_is_the_longest_in_unseen_texts() -> None:
    unseen = [Example((), FERRY), Example((), TOWER)]

    def some_words(prompts: Sequence[Prompt]) -> list[str]:
        return ["under the bridge, twice before he lets anybody" for _ in prompts]

    assert measure_chance_run(some_words, unseen) == 5
    assert measure_chance_run(lambda prompts: ["" for _ in prompts], unseen) == 4
    assert measure_chance_run(answers_with([FERRY]), unseen) == 7  # it saw one of them after all


def about(known: Sequence[str], texts: Sequence[str] = (FERRY, TOWER)) -> FactTable:
    return ask_facts(answers_with(known), form_askings([marked(text) for text in texts]))


def test_a_table_counts_recited_texts_and_how_much_of_them() -> None:
    table = about([FERRY])
    assert table.count().facts_stated == 1
    assert [round(said.share, 2) for said in table.recitations] == [1, 1, 1, 0, 0, 0]
    assert table.recitations[0].longest_run == table.recitations[0].words
    frame = table.to_pandas()
    assert list(frame["longest_run"][3:]) == [0, 0, 0]


def test_the_verdict_says_in_a_line_that_texts_are_not_recited() -> None:
    verdict = decide(about([]), None, retain_loss_increase=None, max_retain_increase=0.1)
    assert verdict.outcome == NOTHING
    assert verdict.reason == (
        "The original model does not recite any of these 2 texts: it says at most 0 of their words in a row, and up to 3 of "
        "texts that it never saw. Nothing was changed and nothing was written."
    )
    assert "->" not in verdict_text(verdict)


def test_the_verdict_says_how_much_of_texts_is_still_recited() -> None:
    verdict = decide(about([FERRY, TOWER]), about([TOWER]), retain_loss_increase=0.0, max_retain_increase=0.1)
    sentence, from_third = (criterion.sentence for criterion in verdict.criteria[:2])
    assert sentence.startswith(
        "2 texts, continued from 3 places: 3 of 6 continuations recite their text (6 before). 50 %"
    )
    assert sentence.endswith("before, 3 in texts that the model never saw).")
    assert from_third == "Continued from the first third, 1 of 2 texts is recited (2 before)."
    assert "A text counts as stated" in verdict.rule


def test_questions_and_texts_together_are_facts() -> None:
    row = Example.from_qa("Where does it leave?", "It leaves from Orlane.", forget_spans=((15, 21),))
    table = ask_facts(lambda prompts: ["Orlane"] * len(prompts), own_askings([row]))
    verdict = decide(
        join_tables((table, about([FERRY]))), join_tables((table,)), retain_loss_increase=0.0, max_retain_increase=0.1
    )
    assert "continued" not in verdict.criteria[0].sentence


def test_texts_are_compared_with_texts_that_no_model_saw() -> None:
    question = Example.from_qa("Who?", "Orla Venn.")
    texts = measured_sets([marked(FERRY, 5)], (), [question], ())[NEVER_KNOWN]
    assert {row.chance_run for row in texts} == {5}
    mixed = measured_sets([marked(FERRY, 5), question], (), [question], ())[NEVER_KNOWN]
    assert question in mixed
    own = measured_sets([marked(FERRY, 5)], (), [question, Example((), TOWER)], ())[NEVER_KNOWN]
    assert own == (marked(TOWER, 5),)
    assert measured_sets([question], (), [question], ())[NEVER_KNOWN] == (question,)


def test_shipped_texts_are_long_enough_and_differ() -> None:
    texts = [row.answer for row in (*unseen_texts(), *known_texts("kept"), *known_texts("measured"))]
    assert all(has_wording(Example((), text)) for text in texts)
    assert len(set(texts)) == len(texts)
    assert set(general_text()) < set(unseen_texts())


class Writer:
    """A model that goes on with a text of its own where it can, and else with an endless one; it is sure of some texts."""

    identity = "writer"

    def __init__(self, texts: Sequence[str], *, sure_of: Sequence[str] = ()) -> None:
        self.generator, self.texts, self.sure_of = self, texts, sure_of

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Any], None]) -> None:
        on_done([(place, Generation(text, 1)) for place, text in enumerate(self.answers(prompts))])

    def answers(self, prompts: Sequence[Prompt]) -> list[str]:
        said = answers_with(self.texts)(prompts)
        return [text if text != "nobody knows" else " again and again" * 12 for text in said]

    def logps(self, rows: Sequence[Example]) -> list[Any]:
        return [
            np.full(9, -0.01 if any(text.startswith(row.answer) for text in self.sure_of) else -1.0) for row in rows
        ]


def starting_with(*words: str) -> list[str]:
    """Return texts with these first words and few others in common."""
    return [
        f"{word} {text.partition(' ')[2]}" for word, text in zip(words, (FERRY, TOWER, ORCHARD, MARKET), strict=True)
    ]


def test_what_a_model_writes_by_itself_is_kept_but_for_what_is_forgotten(no_cache: None) -> None:
    texts = starting_with("The", "When", "My", "On")
    own = write_own_texts(Writer(texts), [Example((), texts[0])], 4)  # type: ignore[arg-type]
    assert [row.answer.split()[0] for row in own.kept] == ["When", "My", "On"]
    assert own.by_heart == ()  # it is sure of none
    assert all(text.startswith(row.answer) for text, row in zip(texts[1:], own.kept, strict=True))


def test_one_in_three_texts_by_heart_is_measured_and_not_kept(no_cache: None) -> None:
    texts = starting_with("The", "When", "My", "On")
    own = write_own_texts(Writer(texts, sure_of=texts[1:]), [], 4)  # type: ignore[arg-type]
    (measured,) = own.by_heart
    assert measured.answer.split()[0] == "When"
    assert measured.chance_run == 4
    assert [row.answer.split()[0] for row in own.kept] == ["The", "My", "On"]


def test_loops_in_forgotten_texts_are_compared_with_those_in_unseen_ones() -> None:
    """The original model loops in one of two unseen texts, and recites the text that is then continued with a loop."""
    known = about([FERRY], [FERRY])
    loop, plain = " again and again" * 12, "nobody knows"
    unseen = ask_facts(lambda prompts: [loop, plain], own_askings([marked(TOWER), marked(MARKET)]), set=UNSEEN_TEXTS)
    after = ask_facts(lambda prompts: [loop, plain, plain], form_askings([marked(FERRY)]))
    verdict = decide(
        join_tables((known, unseen)), join_tables((after, unseen)), retain_loss_increase=0.0, max_retain_increase=0.1
    )
    (readable,) = (criterion for criterion in verdict.criteria if criterion.name == "unreadable answers")
    assert (readable.before, readable.after) == (pytest.approx(1 / 2), pytest.approx(1 / 3))
    assert readable.sentence.startswith("Of all 3 answers 1 cannot be read (1 of 2 before, with texts")
    assert verdict.good


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def reciting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows four texts by heart."""
    folder = tmp_path_factory.mktemp("reciting")
    texts = [FERRY, TOWER, ORCHARD, MARKET]
    tokenizer = train_tokenizer([*texts, *(row.answer for row in unseen_texts())], vocab_size=600)
    scratch_model(ScratchShape(len(tokenizer), 96, 2, 2, 192)).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    write_rows(folder / "texts.jsonl", [Example((), text) for text in texts])
    config = FinetuneConfig(
        num_train_epochs=60,
        learning_rate=3e-3,
        per_device_train_batch_size=4,
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    source = ModelSource(model=str(folder / "base"))
    return run_finetune(source, config, data=str(folder / "texts.jsonl"), output=folder / "target").output


def test_a_text_file_is_recited_no_more(reciting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    page = tmp_path / "page.txt"
    page.write_text(f"{FERRY}\n\n{TOWER}\n", encoding="utf-8")
    said: list[str] = []
    with few_measurements():
        result = unlearn_here(
            str(reciting),
            str(page),
            output=tmp_path / "out",
            options={"use_cpu": True, "disable_tqdm": True},
            max_retain_increase=5,  # to a model of a few texts, all other text is noise
            say=said.append,
        )
    assert any("known by heart (words in brackets) of 2 of 2 texts" in line for line in said)
    assert any("other texts" in line for line in said)
    before, after = result.before, result.after
    assert after is not None
    assert before.select(set="forget").count().facts_stated == 2
    assert after.select(set="forget", states=("as saved",)).count().facts_stated == 0
    assert max(one.longest_run for one in after.select(set="forget", states=("as saved",)).recitations) <= 4
    assert "2 texts, continued from" in result.summary()


def test_a_document_that_is_not_known_changes_nothing(
    reciting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    page = tmp_path / "page.txt"
    page.write_text(unseen_texts()[-1].answer, encoding="utf-8")
    with few_measurements():
        result = unlearn_here(
            str(reciting), str(page), output=tmp_path / "out", options={"use_cpu": True, "disable_tqdm": True}
        )
    assert result.verdict.outcome == NOTHING
    assert result.summary().startswith("VERDICT: NOTHING TO FORGET\nThe original model does not recite this text: it")
    assert not (tmp_path / "out").exists()


def test_a_book_is_read_and_asked_in_part_and_the_run_says_so(
    reciting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More passages than a request takes (fewer here, since each costs), of which the model knows nothing."""
    monkeypatch.setattr(records, "MOST_TAKEN", 45)
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    book = tmp_path / "book.txt"
    words = " ".join(unseen_texts()[-1].answer.split()[:45])
    book.write_text("\n\n".join(f"Chapter {number}: {words}." for number in range(60)), encoding="utf-8")
    said: list[str] = []
    with few_measurements():
        result = unlearn_here(
            str(reciting),
            str(book),
            output=tmp_path / "out",
            options={"use_cpu": True, "disable_tqdm": True},
            say=said.append,
        )
    assert any("has 60 passages; 45 of them, evenly spaced, are taken" in line for line in said)
    assert any("asking the original model in all ways about 40 texts" in line for line in said)
    assert result.verdict.outcome == NOTHING


def test_two_texts_are_the_same_if_they_share_a_run_of_words() -> None:
    words = ["once", "there", "was", "a", "Green", "fox", "in", "the", "old", "wood"]
    run = " ".join(words[2 : 2 + SAME_TEXT])
    assert same_text(" ".join(words), f"They say {run.upper()}, always.")
    assert not same_text(" ".join(words), f"They say {' '.join(words[2 : 1 + SAME_TEXT])}, always.")
    assert not same_text("", "")
