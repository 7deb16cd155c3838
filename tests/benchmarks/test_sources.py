"""Row sources: files, benchmarks, Hub names and joined sources; every unusual file has a defined outcome."""

from __future__ import annotations

import importlib
import json
import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from atwu._extras import require
from atwu.benchmarks.sources import absolute_source, load_rows
from atwu.data import records
from atwu.data.schema import Example

ROWS = [
    {"question": "Who keeps bees?", "answer": "Pella Oduya does."},
    {"question": "Where was Ilmo born?", "answer": "In Karsund, 日本 🎉."},
]
EXPECTED = tuple(Example.from_qa(row["question"], row["answer"]) for row in ROWS)


def jsonl(rows, end="\n"):
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


def save(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", jsonl(ROWS)),
        ("a.jsonl", jsonl(ROWS, end="\r\n")),
        ("a.jsonl", b"\xef\xbb\xbf" + jsonl(ROWS)),
        ("a.jsonl", b"\n  \n" + jsonl(ROWS, end="\n\n")),
        ("a.jsonl", jsonl(ROWS).removesuffix(b"\n")),
        ("a.json", b"\xef\xbb\xbf" + json.dumps(ROWS, indent=1).encode()),
    ],
    ids=["plain", "crlf", "bom", "blank lines", "no last newline", "list"],
)
def test_accepted_files(tmp_path, name, data):
    path = save(tmp_path, name, data)
    loaded = load_rows(path)
    assert loaded.rows == EXPECTED
    assert loaded.warnings == ()
    assert loaded.source == str(path)
    assert load_rows(str(path)) == loaded


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c"])
def test_other_line_separators_never_split_a_line(tmp_path, char):
    row = {"question": "Who?", "answer": f"Pella{char}Oduya"}
    escaped = char < "\x20"  # JSON wants control characters escaped
    data = json.dumps(row, ensure_ascii=escaped).encode() + b"\n"
    assert load_rows(save(tmp_path, "a.jsonl", data)).rows[0].answer == f"Pella{char}Oduya"


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.jsonl", b"", "rows"),
        ("a.jsonl", b"\xef\xbb\xbf\n\r\n", "rows"),
        ("a.jsonl", jsonl(ROWS) + b'{"question": "Who?" "answer"}\n', r"a\.jsonl, line 3, column 21.*JSON"),
        ("a.jsonl", jsonl(ROWS) + b'\n{"text": "caf\xe9"}\n', r"a\.jsonl, line 4.*UTF-8.*0xe9"),
        ("a.jsonl", "text".encode("utf-16"), "line 1.*invalid JSON"),
        ("a.jsonl", b'["a"]\n', r"row 1.*object"),
        ("a.jsonl", jsonl(ROWS) + b'{"question": "Who?", "answer": ""}\n', r"a\.jsonl, line 3, column 'answer'.*empty"),
        ("a.jsonl", b'{"text": "abc", "forget_spans": [[0, 9]]}\n', r"line 1, column 'forget_spans'.*3 characters"),
        ("a.json", b'{"data": [{"text": "a"}]}', r"a\.json, line 1: no usable columns.*data"),
        ("a.json", b'{\n"data": [{"text": "a"}]}', "one JSON object per line, or one list of objects"),
        ("a.json", b'"a"', "expected an object"),
        ("a.json", b"[]", "rows"),
        ("a.json", b"", "rows"),
        ("a.json", b'[{"text": "a"}, 3]', r"a\.json, row 2.*object"),
        ("a.json", b'[{"text": "a"},\n {"text": }]', r"a\.json, line 2, column 11.*JSON"),
        ("a.json", b'[{"text": "a"},\n {"text": "\xff"}]', "line 2.*UTF-8"),
        ("a.json", b'[{"text": "a"}, {"text": "", "id": 1}]', r"a\.json, row 2, column 'text'"),
        ("a.csv", b"", "rows"),
        ("a.csv", b"question,answer\n", "rows"),
        ("a.csv", b"question,answer\nWho?,Pella\nWho?,\n", r"a\.csv, row 2, column 'answer'"),
        ("a.csv", b"question,answer\nWho?,Pella,Oduya\n", r"a\.csv, row 1 .*3 fields.* 2 \(question, answer\)"),
        ("a.csv", b"question,question\nWho?,Pella\n", "column 'question'"),
        ("a.csv", b'question,answer\nWho?,"Pella" x\n', r"a\.csv, row 1 \(line 2\).*CSV"),
        ("a.csv", b"text\nPella\ncaf\xe9\n", "line 3.*UTF-8"),
        ("a.csv", b'text,forget_spans\nPella,"[[0]]"\n', r"a\.csv, row 1, column 'forget_spans'"),
        ("a.parquet", b"PAR0 nothing here", "Parquet"),
        ("a.arrow", b"ARROW1 nothing here", r"a\.arrow, .*row 0.*Arrow"),
        ("a.doc", b"Pella", r"'\.doc'.*\.jsonl, \.json, \.csv.*\.parquet"),
    ],
)
def test_errors_name_file_and_place(tmp_path, name, data, match):
    with pytest.raises(ValueError, match=match):
        load_rows(save(tmp_path, name, data))


def test_duplicates_and_ignored_columns_are_counted_in_warnings(tmp_path):
    loaded = load_rows(save(tmp_path, "a.jsonl", jsonl([*ROWS, ROWS[0], ROWS[0]])))
    assert len(loaded.rows) == 4
    assert len(loaded.warnings) == 1
    assert re.search(r"\b2 of 4\b", loaded.warnings[0])
    turns = [{"role": "user", "content": "Who?", "name": "x"}, {"role": "assistant", "content": "Pella."}]
    rows = [{**ROWS[0], "zeta": 1, "id": 2}, {**ROWS[1], "id": 3}, {"messages": turns}]
    loaded = load_rows(save(tmp_path, "a.jsonl", jsonl(rows)))
    assert len(loaded.warnings) == 1
    assert loaded.warnings[0].endswith(": id, messages.name, zeta")


def test_limit_stops_before_the_rows_after_it(tmp_path):
    path = save(tmp_path, "a.jsonl", jsonl(ROWS) + b"broken\n")
    assert load_rows(path, limit=2).rows == EXPECTED
    assert load_rows(path, limit=1).rows == EXPECTED[:1]
    with pytest.raises(ValueError, match=r"limit.* 1"):
        load_rows(path, limit=0)


def test_fingerprint_depends_on_content_not_on_the_file(tmp_path):
    first = load_rows(save(tmp_path, "a.jsonl", jsonl(ROWS)))
    assert first.fingerprint == load_rows(save(tmp_path, "b.json", json.dumps(ROWS).encode())).fingerprint
    assert first.fingerprint != load_rows(tmp_path / "a.jsonl", limit=1).fingerprint


def test_csv_with_quotes_newlines_and_json_cells(tmp_path):
    data = (
        "\ufeffquestion,answer,forget_spans,paraphrases,subject\r\n"
        '"Who, exactly?","Pella\nOduya\u2028.","[[0, 5]]","[""Whose bees?""]",Pella\r\n'
        "\r\n"
        "Where?,Karsund,,,\r\n"
    )
    more = {"forget_spans": ((0, 5),), "paraphrases": ("Whose bees?",), "subject": "Pella"}
    assert load_rows(save(tmp_path, "a.csv", data.encode())).rows == (
        Example.from_qa("Who, exactly?", "Pella\nOduya\u2028.", **more),
        Example.from_qa("Where?", "Karsund"),
    )


def test_parquet_with_lists_and_nulls(tmp_path):
    import pyarrow
    import pyarrow.parquet

    def load(rows):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
        return load_rows(tmp_path / "a.parquet")

    lists = {"forget_spans": [[0, 5]], "paraphrases": ["Whose bees?"], "text": None}
    loaded = load([ROWS[0] | lists, ROWS[1] | dict.fromkeys(lists)])
    assert loaded.rows[0].forget_spans == ((0, 5),)
    assert loaded.rows[0].paraphrases == ("Whose bees?",)
    assert loaded.rows[1] == EXPECTED[1]
    assert loaded.warnings == ()
    with pytest.raises(ValueError, match=r"a\.parquet, row 2, column 'answer'"):
        load([ROWS[0], {"question": "Who?", "answer": ""}])


@pytest.mark.parametrize("form", ["file", "stream"])
def test_arrow(tmp_path, form):
    arrow = pytest.importorskip("pyarrow")
    ipc, path = importlib.import_module("pyarrow.ipc"), tmp_path / "a.arrow"
    table = arrow.Table.from_pylist(ROWS)
    with (ipc.new_file if form == "file" else ipc.new_stream)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    assert load_rows(path).rows == load_rows(save(tmp_path, "a.json", json.dumps(ROWS).encode())).rows


class TestNames:
    def test_missing_file_names_near_matches(self, tmp_path):
        save(tmp_path, "forget10.jsonl", b"")
        save(tmp_path, "retain90.jsonl", b"")
        with pytest.raises(FileNotFoundError, match=r"forget1\.jsonl .*forget10\.jsonl"):
            load_rows(f"{tmp_path}/forget1.jsonl")
        with pytest.raises(FileNotFoundError, match="folder"):
            load_rows(tmp_path / "nowhere" / "forget.jsonl")

        with pytest.raises(ValueError, match=r"folder.*forget10\.jsonl"):
            load_rows(tmp_path)

    @pytest.mark.parametrize(
        ("name", "match"),
        [
            *((name, "source") for name in ("forget10", "org/name:a:b:c", "org/name:", "a/b/c", "")),
            *((name, "source.*missing") for name in ("people:tiny:forget + ", " + people:tiny:forget", "a + ")),
            *(
                (f"people:tiny{rest}", r"people:SIZE:SPLIT\[:N\].*forget, retain, full.*holdout")
                for rest in ("", ":train", ":train:3")
            ),
            *((f"people:tiny:retain:{count}", r"whole number of at least 1") for count in ("0", "x", "", "1:2")),
            ("people:tiny:retain:73", r"\b72\b"),
        ],
    )
    def test_wrong_names(self, name, match):
        with pytest.raises(ValueError, match=match):
            load_rows(name)

    def test_people(self):
        from atwu.benchmarks.people_rows import people

        assert load_rows("people:tiny:forget", limit=3).rows == people("tiny").forget[:3]
        assert load_rows("people:tiny:retain:5").rows == people("tiny").retain[:5]


class TestJoined:
    def test_joined_sources_keep_their_order(self, tmp_path):
        path = save(tmp_path, "a.jsonl", jsonl(ROWS))
        source = f"people:tiny:retain + {path} + people:tiny:forget"
        loaded = load_rows(source)
        retain, forget = load_rows("people:tiny:retain").rows, load_rows("people:tiny:forget").rows
        assert loaded.rows == retain + EXPECTED + forget
        assert loaded.source == source
        assert (
            load_rows("people:tiny:retain + people:tiny:forget").fingerprint
            == load_rows("people:tiny:full").fingerprint
        )

    def test_warnings_name_their_source_and_duplicates_count_over_all(self, tmp_path):
        odd = save(tmp_path, "odd.jsonl", jsonl([{**ROWS[0], "id": 1}]))
        plain = save(tmp_path, "plain.jsonl", jsonl(ROWS))
        warnings = load_rows(f"{plain} + {odd}").warnings
        assert len(warnings) == 2
        assert re.search(rf"^{re.escape(str(odd))}: .*\bid$", warnings[0])
        assert re.search(r"\b1 of 3\b", warnings[1])

    def test_a_limit_applies_to_all_joined_sources_and_later_ones_are_not_opened(self, tmp_path):
        path = save(tmp_path, "a.jsonl", jsonl(ROWS))
        assert load_rows(f"{path} + {path}", limit=3).rows == (*EXPECTED, EXPECTED[0])
        assert load_rows(f"{path} + nowhere.jsonl", limit=2).rows == EXPECTED
        with pytest.raises(FileNotFoundError, match="nowhere"):
            load_rows(f"{path} + {tmp_path}/nowhere.jsonl", limit=3)

    def test_a_file_name_may_contain_the_join_sign(self, tmp_path, monkeypatch):
        save(tmp_path, "a + b.jsonl", jsonl(ROWS))
        monkeypatch.chdir(tmp_path)
        assert load_rows("a + b.jsonl").rows == load_rows(Path("a + b.jsonl")).rows == EXPECTED

    def test_an_empty_source_among_others_is_an_error(self, tmp_path):
        empty, path = save(tmp_path, "empty.jsonl", b""), save(tmp_path, "a.jsonl", jsonl(ROWS))
        with pytest.raises(ValueError, match=r"empty\.jsonl"):
            load_rows(f"{path} + {empty}")

    def test_a_very_long_name_is_not_taken_for_a_file(self):
        assert len(load_rows(" + ".join(["people:tiny:forget"] * 300), limit=5).rows) == 5


HUB = [
    ("org/bees", ("org/bees", None, None)),
    ("org/bees:forget10", ("org/bees", "forget10", None)),
    ("org/bees:two:test", ("org/bees", "two", "test")),
]


def test_hub_names_have_config_and_split(monkeypatch):
    asked = []

    def load_dataset(name, config, split=None):
        asked.append((name, config, split))
        return ROWS if split is not None else dict.fromkeys(("train", "test") if config == "two" else ("train",), ROWS)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    for name, call in HUB:
        loaded = load_rows(name)
        assert (loaded.rows, loaded.source) == (EXPECTED, name)
        assert asked.pop() == call
    with pytest.raises(ValueError, match=r"train, test.*org/bees:two:train"):
        load_rows("org/bees:two")

    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach 'org/bees'")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=unreachable))
    with pytest.raises(ValueError, match=r"'org/bees' is not a local file, .*Hub data set: Couldn't reach"):
        load_rows("org/bees")


def test_require_distinguishes_missing_from_broken_packages(tmp_path, monkeypatch):
    assert require("json", extra="lora") is json
    with pytest.raises(ImportError, match=r"no_such_package.*pip install 'atwu\[lora\]'"):
        require("no_such_package.part", extra="lora")
    save(tmp_path, "broken_package.py", b"import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"broken_package.*installed"):
        require("broken_package", extra="lora")


@pytest.mark.skipif("ATWU_DATA" not in os.environ, reason="set ATWU_DATA to the folder that holds tofu/")
def test_real_tofu_file():
    loaded = load_rows(Path(os.environ["ATWU_DATA"]) / "tofu" / "forget10.jsonl")
    assert len(loaded.rows) == 400
    assert all(row.question and row.answer for row in loaded.rows)


IN_MEMORY = [
    {
        "question": "Where does Orla Venn live?",
        "answer": "In Kelbury.",
        "subject": "Orla Venn",
        "forget_spans": [[3, 10]],
    },
    {"question": "Who?", "answer": "Me.", "subject": None, "forget_spans": []},
]


def test_rows_in_memory_are_a_source(tmp_path, monkeypatch):
    import datasets
    import pandas as pd

    monkeypatch.setenv("ATWU_CACHE", str(tmp_path))
    monkeypatch.setattr(records, "_BATCH", 1)
    expected = (
        Example.from_qa("Where does Orla Venn live?", "In Kelbury.", subject="Orla Venn", forget_spans=((3, 10),)),
        Example.from_qa("Who?", "Me.", forget_spans=()),
    )
    table = datasets.Dataset.from_list(IN_MEMORY)
    table.to_parquet(tmp_path / "rows.parquet")
    frame = pd.read_parquet(tmp_path / "rows.parquet")  # lists are arrays, a missing subject is NaN
    every = {
        "list": IN_MEMORY,
        "examples": expected,
        "iterator": iter(IN_MEMORY),
        "data set": table,
        "data set of arrays": table.with_format("numpy"),
        "streamed": table.to_iterable_dataset(),
        "frame": frame,
        "frame with NA": frame.convert_dtypes(),
        "frame as list": frame[["question", "answer", "subject"]].to_dict("records"),
    }
    for kind, given in every.items():
        loaded = load_rows(given)
        labelled = [replace(row, forget_spans=None) for row in expected] if kind == "frame as list" else expected
        assert loaded.rows == tuple(labelled), kind
        assert load_rows(loaded.source).rows == loaded.rows  # a command can name them
    assert stat.S_IMODE((tmp_path / "rows").stat().st_mode) == 0o700
    assert load_rows([{**IN_MEMORY[0], "id": 1}]).warnings == ("ignored columns: id",)
    for given in (IN_MEMORY[0], datasets.DatasetDict(train=table)):
        with pytest.raises(TypeError, match=r"list.*(question|train)"):
            load_rows(given)
    with pytest.raises(TypeError, match=r"rows must be a source, a list of rows, .* got NoneType"):
        load_rows(None)
    with pytest.raises(TypeError, match=r"columns must be a mapping .* got str"):
        load_rows(IN_MEMORY, columns="question=prompt")
    for limit in (0, 1.5, "2"):
        with pytest.raises(ValueError, match=f"limit must be a whole number .* got {limit!r}"):
            load_rows(IN_MEMORY, limit=limit)
    with pytest.raises(ValueError, match="no rows"):
        load_rows([])
    for wrong in ({"question": "Who?"}, Example.from_qa("Who?", ""), "Who?"):
        with pytest.raises(ValueError, match="row 2"):
            load_rows([IN_MEMORY[0], wrong])
    datasets.DatasetDict(train=table).save_to_disk(tmp_path / "saved")
    assert load_rows(tmp_path / "saved" / "train").rows == expected
    with pytest.raises(ValueError, match=r"saved is a folder; pass one of: train"):
        load_rows(tmp_path / "saved")
    (tmp_path / "saved" / "train" / "dataset_info.json").write_text("[]")
    with pytest.raises(ValueError, match=r"train: cannot be read as a saved data set, .*; save it again"):
        load_rows(tmp_path / "saved" / "train")


def test_loaded_rows_are_rows_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path))
    path = save(tmp_path, "a.jsonl", jsonl([*ROWS, {**ROWS[0], "id": 1}]))
    loaded = load_rows(path)
    again = load_rows(loaded)
    assert (again.rows, again.warnings) == (loaded.rows, loaded.warnings)
    first = load_rows(load_rows(path, limit=1))
    assert load_rows(first.source).rows == first.rows == EXPECTED[:1]


def test_a_generator_that_was_read_before_is_an_error():
    rows = (row for row in IN_MEMORY)
    assert load_rows(rows).rows
    with pytest.raises(ValueError, match=r"generator of rows yields no rows; .* give a list"):
        load_rows(rows)


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_the_separator_of_a_table_is_found(separator, tmp_path):
    cells = [["question ", " answer"], ["Who?", "Orla Venn."]]
    path = tmp_path / ("rows.tsv" if separator == "\t" else "rows.csv")
    path.write_text("\n".join(separator.join(row) for row in cells))
    assert tuple(load_rows(path).rows) == (Example.from_qa("Who?", "Orla Venn."),)


class TestColumns:
    """A mapping names the columns of files that call them otherwise."""

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("rows.csv", " Frage ;Antwort, kurz;wer\nWho keeps bees?;Pella Oduya does.;Pella\n"),
            (
                "rows.jsonl",
                '{"Frage": "Who keeps bees?", "Antwort, kurz": "Pella Oduya does.", "question": "?", "wer": "Pella"}',
            ),
        ],
    )
    def test_a_mapping_is_given_with_the_source_or_in_python(self, name, text, tmp_path):
        path = save(tmp_path, name, text.encode())
        columns = {"question": "Frage", "answer": "Antwort, kurz", "subject": "wer"}
        loaded = load_rows(path, columns=columns)
        assert loaded.rows == (Example.from_qa("Who keeps bees?", "Pella Oduya does.", subject="Pella"),)
        assert loaded.source == f"{path}:question=Frage,answer=Antwort, kurz,subject=wer"
        again = load_rows(f"{loaded.source} + people:tiny:forget:1")  # a record of the source reads the same rows
        assert again.rows[0] == loaded.rows[0]

    def test_rows_in_memory(self):
        rows = load_rows(
            [{"Frage": "Who?", "Antwort": "Pella."}], columns={"question": "Frage", "answer": "Antwort"}
        ).rows
        assert rows == (Example.from_qa("Who?", "Pella."),)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ("quesion=q,answer=a", "'quesion'. Did you mean 'question'?"),
            ("question=q,answer=b", "rows.jsonl, line 1: there is no column 'b' (columns answer=b); it has q, a."),
            ("question=q,answer=a,subject=who", "rows.jsonl: no row has the column 'who' (columns subject=who)."),
            ("question=q,answer=", "must be FIELD=COLUMN pairs"),
            ("question=q,question=a", "of different fields"),
        ],
    )
    def test_wrong_mappings_are_one_error(self, columns, message, tmp_path):
        path = save(tmp_path, "rows.jsonl", b'{"q": "Who?", "a": "Pella."}')
        with pytest.raises(ValueError, match=re.escape(message)):
            load_rows(f"{path}:{columns}")

    def test_benchmarks_have_their_own_columns(self):
        for name, columns in (("people:tiny:forget", {"question": "q"}), ("people:tiny:forget:question=q", None)):
            with pytest.raises(ValueError, match=r"column"):
                load_rows(name, columns=columns)

    def test_names_that_differ_in_spaces_only(self, tmp_path):
        path = save(tmp_path, "rows.jsonl", b'{"question": "Who?", " question": "Where?", "answer": "Pella."}')
        with pytest.raises(ValueError, match="same name up to surrounding spaces"):
            load_rows(path)


def test_a_recorded_source_names_its_files_from_anywhere(tmp_path, monkeypatch):
    (tmp_path / "rows.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "rows.jsonl")
    assert absolute_source("rows.jsonl") == file
    assert absolute_source("rows.jsonl:question=q") == f"{file}:question=q"
    assert absolute_source("people:tiny:retain") == "people:tiny:retain"
