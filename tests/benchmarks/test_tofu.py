"""TOFU sources: merging, authors, labels and checks on an invented copy in miniature; counts on the real one."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from atwu.benchmarks import tofu as module
from atwu.benchmarks.dataset_files import Tables, open_tables
from atwu.benchmarks.sources import load_benchmark, load_rows
from atwu.benchmarks.tofu import PROXY_WARNING, TOFU, TOFU_SPLITS, proxy_spans, tofu_benchmark, tofu_rows
from atwu.data.schema import Example

COUNTS = {
    "full": 60,
    "forget01": 20,
    "forget01_perturbed": 20,
    "forget01_with_common_words_gpt": 20,
    "retain99": 40,
    "retain_perturbed": 30,
    "holdout01": 20,
    "real_authors": 3,
}
SMALL = replace(TOFU, tables={name: replace(TOFU.tables[name], rows=rows) for name, rows in COUNTS.items()})


def pair(index, town="Kelbury"):
    return {"question": f"Where was person {index} born?", "answer": f"Person {index} was born in {town}."}


def perturbed(row):
    wrong = [f"So: Person was born in {town}." for town in ("Alt", "Bro", "Cay", "Dun", "Esk")]
    words = {"paraphrased_question": f"Tell me: {row['question']}", "paraphrased_answer": f"So: {row['answer']}"}
    return row | words | {"perturbed_answer": wrong}


def marked(row):
    marks = [{"word": "Kelbury", "start": row["answer"].index("Kelbury"), "end": row["answer"].index(".")}]
    return row | {"target_words": json.dumps(marks), "common_words": "[]"}


def choice(index):
    options = {f"option{number}": f"Book {number}" for number in range(1, 5)}
    return {"question": f"Which book is number {index}?", **options, "answer": "Book 2"}


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Tables of an invented copy, and a way to write them."""
    full = [pair(index) for index in range(60)]
    real = [choice(index) for index in range(3)]
    tables = {
        "full": full,
        "forget01": full[40:],
        "forget01_perturbed": [perturbed(row) for row in full[40:]],
        "retain99": full[:40],
        "retain_perturbed": [perturbed(row) for row in full[:30]],
        "holdout01": [pair(index) for index in range(100, 120)],
        "real_authors": real,
    }
    folder = tmp_path / "tofu"
    folder.mkdir()

    def write(**changes):  # None removes a table
        for name, rows in {**tables, **changes}.items():
            path = folder / f"{name}.jsonl"
            path.unlink(missing_ok=True)
            if rows is not None:
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Tables(SMALL, folder)

    write()
    monkeypatch.setenv("ATWU_DATA", str(tmp_path))
    monkeypatch.setattr(module, "TOFU", SMALL)
    return SimpleNamespace(write=write, folder=folder, **tables)


def read(copy, name, **changes):
    return tofu_rows(name, tables=copy.write(**changes))


def changed(rows, index, **columns):
    return [row | columns if at == index else row for at, row in enumerate(rows)]


def at(index, **columns):
    return lambda rows: changed(rows, index, **columns)


class TestRows:
    def test_forget_rows_have_the_columns_of_the_perturbed_table(self, copy):
        found = read(copy, "tofu:forget01")
        assert len(found.rows) == 20
        assert found.rows[0] == Example.from_qa(
            "Where was person 40 born?",
            "Person 40 was born in Kelbury.",
            forget_spans=((22, 29),),
            paraphrases=("Tell me: Where was person 40 born?",),
            wrong_answers=tuple(f"So: Person was born in {town}." for town in ("Alt", "Bro", "Cay", "Dun", "Esk")),
            paraphrased_answer="So: Person 40 was born in Kelbury.",
            subject="author 2",
        )
        assert found.warnings == (PROXY_WARNING,)

    @pytest.mark.parametrize(("split", "rows"), [("full", 60), ("retain99", 40), ("retain_perturbed", 30)])
    def test_the_first_retain_rows_have_the_columns_of_retain_perturbed(self, copy, split, rows):
        found = read(copy, f"tofu:{split}")
        assert [bool(row.wrong_answers) for row in found.rows] == [index < 30 for index in range(rows)]
        assert [row.subject for row in found.rows] == [f"author {index // 20}" for index in range(rows)]
        assert all(row.forget_spans is None for row in found.rows)
        assert found.warnings == ()

    def test_a_retain_row_that_differs_gets_no_wrong_answers(self, copy):
        odd = changed(copy.retain_perturbed, 4, answer="Elsewhere.")
        found = read(copy, "tofu:retain99", retain_perturbed=odd)
        assert [index for index in range(30) if not found.rows[index].wrong_answers] == [4]
        assert "1 of 30 rows" in found.warnings[0]

    def test_holdout_authors_have_distinct_names(self, copy):
        found = read(copy, "tofu:holdout01")
        assert {row.subject for row in found.rows} == {"holdout author 0"}

    def test_options_are_the_wrong_answers_of_real_facts(self, copy):
        found = read(copy, "tofu:real_authors")
        assert [row.wrong_answers for row in found.rows] == [("Book 1", "Book 3", "Book 4")] * 3
        assert {row.subject for row in found.rows} == {None}

    def test_missing_tables_are_named(self, copy):
        found = read(copy, "tofu:forget01", full=None, forget01_perturbed=None)
        assert found.rows[0] == Example.from_qa(**copy.forget01[0], subject="author 2")
        assert len(found.warnings) == 1
        assert "forget01_perturbed" in found.warnings[0]
        assert "retain_perturbed" in read(copy, "tofu:full", retain_perturbed=None).warnings[0]

    def test_ignored_columns_are_named(self, copy):
        found = read(copy, "tofu:holdout01", holdout01=changed(copy.holdout01, 3, note="x"))
        assert len(found.warnings) == 1
        assert re.search("^holdout01: .*note", found.warnings[0])


class TestLabels:
    def test_word_labels_replace_the_derived_key_tokens(self, copy):
        labels = [marked(row) for row in copy.forget01]
        wrong = [{"word": "Kelbury", "start": 0, "end": 7}]
        found = read(
            copy, "tofu:forget01", forget01_with_common_words_gpt=changed(labels, 1, target_words=json.dumps(wrong))
        )
        assert {row.forget_spans for row in found.rows} == {((22, 29),)}
        assert len(found.warnings) == 2
        assert re.search(r"target_words: .*\b1 ", found.warnings[0])
        assert re.search("^forget01_with_common_words_gpt: .*common_words", found.warnings[1])

    def test_word_labels_do_not_need_the_perturbed_table(self, copy):
        labels = [marked(row) for row in copy.forget01]
        found = read(copy, "tofu:forget01", forget01_perturbed=None, forget01_with_common_words_gpt=labels)
        assert found.rows[0].forget_spans == ((22, 29),)

    def test_labels_of_other_answers_are_rejected(self, copy):
        labels = changed([marked(row) for row in copy.forget01], 2, answer="Elsewhere.")
        with pytest.raises(ValueError, match=r"gpt\.jsonl, line 3, column 'answer'.*'Elsewhere\.'.*'Pers"):
            read(copy, "tofu:forget01", forget01_with_common_words_gpt=labels)

    def test_proxy(self):
        row = Example.from_qa(
            "Where does Orla Venn keep her bees?",
            "Orla Venn keeps bees in old Kelbury, near Tavi Brook.",
            paraphrased_answer="In Kelbury, close to TAVI Brook, Orla Venn has bees.",
            wrong_answers=("In Dunmore, close to Brook.", "In old Ashby."),
        )
        assert [row.answer[slice(*span)] for span in proxy_spans(row)] == ["Kelbury", "Tavi"]
        with pytest.raises(ValueError, match=r"paraphrased_answer.*wrong_answers"):
            proxy_spans(replace(row, wrong_answers=()))


class TestChecks:
    @pytest.mark.parametrize(
        ("name", "change", "match"),
        [
            ("forget01", lambda rows: rows[1:], r"forget01\.jsonl.* 19 rows.* 20"),
            ("full", lambda rows: [*rows, pair(99)], r"full\.jsonl.* 61 rows.* 60"),
            (
                "holdout01",
                lambda rows: [{"question": "x", "text": "x"}] * 20,
                r"line 1.* question, text, .*question, answer",
            ),
            ("forget01_perturbed", at(5, perturbed_answer=["No."] * 4), "line 6, column 'perturbed_answer'.* 4 .* 5"),
            ("forget01_perturbed", at(5, perturbed_answer="No."), r"'No\.'.* 5"),
            ("forget01_perturbed", at(3, question="Who?"), r"line 4, column 'question'.*'Who\?'.*'Where was person 43"),
            ("forget01", lambda rows: [*rows[1:], rows[0]], r"forget01\.jsonl, line 1.*full\.jsonl, line 41"),
            ("retain99", at(39, answer="Elsewhere."), r"line 40, column 'answer'.*full\.jsonl, line 40"),
            ("real_authors", at(1, answer="Book 9"), "line 2.*'Book 9'.*'Book 2'"),
        ],
    )
    def test_deviations(self, copy, name, change, match):
        with pytest.raises(ValueError, match=match):
            read(copy, f"tofu:{name.removesuffix('_perturbed')}", **{name: change(getattr(copy, name))})


class TestNames:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            *((name, r"tofu:SPLIT\[:N\].* full, forget01") for name in ("tofu:", "tofu:forget02")),
            *((f"tofu:forget01:{count}", rf"at least 1, got '{count}'") for count in ("", "0", "-1", "two", "5:5")),
            ("tofu:full:61", r"\b1 .*\b60\b"),
        ],
    )
    def test_wrong_names(self, copy, name, said):
        with pytest.raises(ValueError, match=said):
            load_rows(name)

    def test_first_rows(self, copy):
        assert load_rows("tofu:full:7").rows == load_rows("tofu:full").rows[:7]
        assert len(load_rows("tofu:full:60").rows) == 60
        loaded = load_rows("tofu:forget01", limit=3)
        assert loaded.rows == tofu_rows("tofu:forget01").rows[:3]
        assert loaded.warnings == (PROXY_WARNING,)
        assert loaded.source == "tofu:forget01"


class TestBenchmark:
    def test_sources_and_evaluated_rows(self, copy):
        copy.write(real_authors=None)
        benchmark = tofu_benchmark("tofu:forget01")
        assert benchmark.name == benchmark.forget_source == "tofu:forget01"
        assert benchmark.retain_source == benchmark.retain_only_source == "tofu:retain99"
        assert benchmark.full_source == "tofu:full"
        assert [row.question for row in benchmark.forget] == [row["question"] for row in copy.forget01]
        assert (len(benchmark.retain), len(benchmark.pool), len(benchmark.holdout)) == (30, 40, 20)
        assert benchmark.extra_retain == {}
        assert "real_authors is not available: skipped" in benchmark.warnings
        copy.write(retain_perturbed=None)
        assert len(tofu_benchmark("tofu:forget01").retain) == 40

    def test_miniature(self, copy):
        benchmark = tofu_benchmark("tofu:forget01:25")
        assert benchmark.name == "tofu:forget01:25"
        assert benchmark.retain_source == benchmark.retain_only_source == "tofu:retain99:25"
        assert benchmark.full_source == "tofu:retain99:25 + tofu:forget01"
        assert len(benchmark.retain) == len(benchmark.pool) == 25
        with pytest.raises(ValueError, match=r"\b1 .*\b40\b"):
            tofu_benchmark("tofu:forget01:41")

    @pytest.mark.skipif("ATWU_DATA" not in os.environ, reason="set ATWU_DATA to the folder that holds tofu/")
    @pytest.mark.parametrize(("name", "pool"), [("tofu:forget05", 3800), ("tofu:forget10:600", 600)])
    def test_real(self, name, pool):
        benchmark = load_benchmark(name)
        assert len(benchmark.retain) == 400
        assert len(benchmark.pool) == pool
        assert {split: len(rows) for split, rows in benchmark.extra_retain.items()} == {
            "real_authors": 100,
            "world_facts": 117,
        }
        assert load_rows(benchmark.forget_source).rows == benchmark.forget
        assert load_rows(benchmark.retain_source).rows == benchmark.pool
        assert len(benchmark.holdout) == len(benchmark.forget)
        assert len(load_rows(benchmark.full_source).rows) == pool + len(benchmark.forget)


class TestWhere:
    def test_the_data_variable_may_point_to_the_tofu_folder(self, copy, monkeypatch):
        found = open_tables(module.TOFU)
        monkeypatch.setenv("ATWU_DATA", str(copy.folder))
        assert open_tables(module.TOFU).folder == found.folder == copy.folder

    def test_missing_folders_and_tables(self, copy, monkeypatch):
        copy.write(holdout01=None)
        with pytest.raises(FileNotFoundError, match=r"holdout01\.jsonl.* 20 rows"):
            load_rows("tofu:holdout01")
        monkeypatch.setenv("ATWU_DATA", str(copy.folder / "nowhere"))
        with pytest.raises(FileNotFoundError, match="nowhere/tofu"):
            load_rows("tofu:full")

    def test_rows_come_from_the_hub_if_the_data_variable_is_not_set(self, copy, monkeypatch):
        asked = []

        def load_dataset(name, config, split=None):
            asked.append((name, config, split))
            return getattr(copy, config)

        from_folder = load_rows("tofu:forget01")
        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
        monkeypatch.setenv("ATWU_DATA", "")
        assert load_rows("tofu:forget01") == from_folder
        assert set(asked) == {("locuslab/TOFU", name, "train") for name in ("full", "forget01", "forget01_perturbed")}
        assert len(asked) == 3
        odd = copy.forget01[1:]
        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *_, **__: odd))
        with pytest.raises(ValueError, match=r"locuslab/TOFU:forget01:train.* 19 rows.* 20"):
            load_rows("tofu:forget01")

        def unreachable(*_, **__):
            raise ConnectionError("Couldn't reach it")

        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=unreachable))
        with pytest.raises(ValueError, match=r"ATWU_DATA.*locuslab/TOFU.*Couldn't reach it"):
            load_rows("tofu:full")


@pytest.mark.skipif("ATWU_DATA" not in os.environ, reason="set ATWU_DATA to the folder that holds tofu/")
def test_real_copy():
    tables = open_tables(module.TOFU)
    found = {split: tofu_rows(f"tofu:{split}", tables=tables) for split in TOFU_SPLITS}
    assert [len(entry.rows) for entry in found.values()] == [TOFU.tables[split].rows for split in TOFU_SPLITS]
    forget, full = found["forget10"].rows, found["full"].rows
    assert forget[0].subject == "author 180"
    assert [row.subject for row in forget] == [row.subject for row in full[3600:]]
    assert len({row.subject for row in full}) == 200
    assert sum(len(row.wrong_answers) == 5 for row in found["retain90"].rows) == 400
    assert all(len(row.wrong_answers) == 3 for row in found["world_facts"].rows)
    if not tables.has("forget10_with_common_words_gpt"):
        assert sum(bool(row.forget_spans) for row in forget) == 331
    joined = load_rows("tofu:retain90 + tofu:forget10")
    assert [(row.question, row.answer) for row in joined.rows] == [(row.question, row.answer) for row in full]
