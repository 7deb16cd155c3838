"""LUME, MUSE, WMDP and KnowUnDo from the rows of examples/small_benchmarks.py: sources, probes, scores, folder and Hub."""

from __future__ import annotations

import json
import math
import runpy
import statistics
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atwu.benchmarks.base import Probes, text_chunks
from atwu.benchmarks.sources import load_benchmark, load_rows
from atwu.cli.app import run_cli
from atwu.evaluation.aggregate import overall
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.intervals import ModelComparison, RowMetrics
from atwu.evaluation.metrics.benchmark_scores import (
    LUME_KINDS,
    final_score,
    first_tokens,
    mia_score,
    same_answer,
    task_aggregate,
)
from atwu.evaluation.metrics.rouge import rouge_l_f1, rouge_l_recall
from atwu.evaluation.registry import EvaluateConfig
from atwu.modeling.open_model import ModelLoadArgs, open_model
from tests.evaluation.conftest import Speaker
from tests.micro_models import write_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        runpy.run_path(str(ROOT / "examples" / "small_benchmarks.py"))
    return place / "small-benchmarks"


@pytest.fixture
def data(folder, monkeypatch):
    monkeypatch.setenv("ATWU_DATA", str(folder))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    write_models(place)
    return open_model(str(place), ModelLoadArgs())


def probes_of(name) -> Probes:
    found = load_benchmark(name).probes
    assert isinstance(found, Probes)
    return found


@pytest.mark.parametrize(
    ("name", "forget", "retain", "trained", "warning"),
    [
        ("lume", 21, 21, 42, "forget: 21 rows instead of the 2732 published; not comparable with published numbers"),
        ("lume:2", 21, 21, 42, "retain: 21 rows instead of the 2734 published"),
        (
            "muse:news",
            4,
            12,
            28,
            "raw/retain1: 12 rows instead of the 1777 published; not comparable with published numbers",
        ),
        ("muse:news:scal_2", 4, 12, 28, "knowmem/forget_qa: 22 rows instead of the 100 published"),
        ("muse:news:sust_3", 4, 12, 28, "knowmem/forget_qa: 22 rows instead of the 100 published"),
        ("wmdp:cyber", 4, 12, 16, ""),
        ("wmdp:cyber:3", 3, 3, 6, ""),
        ("knowundo:privacy", 12, 36, 96, "privacy/unlearn_val: 12 rows instead of the 110 published"),
    ],
)
def test_benchmarks_and_their_sources(data, name, forget, retain, trained, warning):
    benchmark = load_benchmark(name)
    assert (len(benchmark.forget), len(benchmark.retain)) == (forget, retain)
    assert any(line.startswith(warning) for line in ("", *benchmark.warnings))
    everything = set(load_rows(benchmark.full_source).rows)
    assert len(load_rows(benchmark.full_source).rows) == trained
    assert set(load_rows(benchmark.forget_source).rows) <= everything
    assert not set(load_rows(benchmark.forget_source).rows) & set(load_rows(benchmark.retain_only_source).rows)
    assert set(load_rows(benchmark.retain_source).rows) <= everything
    assert list(benchmark.pool) == list(load_rows(benchmark.retain_source).rows)


def test_folds_of_muse_grow_or_follow_one_another(data):
    grown, one_by_one = (
        [load_rows(f"muse:news:{kind}_{fold}").rows for fold in range(1, 5)] for kind in ("scal", "sust")
    )
    for fold, rows in enumerate(grown, start=1):
        assert [row.answer for row in rows] == [row.answer for part in one_by_one[:fold] for row in part]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lume:retained", "whole number .* 'retained'"),
        ("lume:1:2", "whole number .* '1:2'"),
        ("muse:blogs", "muse:news, muse:books"),
        ("muse:news:scal_5", "scal_1 to scal_4"),
        ("muse:books", "has a file of MUSE-Books"),
        ("wmdp:chem", "DOMAIN is one of bio, cyber"),
        ("wmdp:bio", "bio-forget-corpus.jsonl does not exist; put the rows of bio-forget-corpus there\\."),
        ("knowundo:public", "not knowundo:DOMAIN:SPLIT"),
        ("lumen", "choose one of people:tiny, .*lume"),
    ],
)
def test_errors_of_benchmarks_say_what_is_allowed(data, name, said):
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        load_benchmark(name)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("lume:all", "SPLIT is one of forget, retain"),
        ("muse:news:quiz", "choose one of forget"),
        ("muse:books:scal_1", "MUSE books has no split 'scal_1'"),
        ("wmdp:cyber:forget:0", "at least 1"),
        ("knowundo:privacy:train", "unlearn_train"),
    ],
)
def test_errors_of_sources_say_what_is_allowed(source, said):
    with pytest.raises(ValueError, match=said):
        load_rows(source)


def test_lume_rows_are_texts_and_questions(data):
    text, question, *_ = load_rows("lume:forget:1").rows
    assert not text.messages
    assert question.question.endswith("?")
    assert text.subject == question.subject
    counts = Counter(probe.kind for probe in probes_of("lume").probes)
    assert set(counts) == {*LUME_KINDS, "member", "nonmember"}
    (story,) = (probe for probe in probes_of("lume").probes if probe.kind == "forget_completion_stories")
    assert f"{story.opening} {story.row.answer}" == text.answer


@pytest.mark.parametrize(
    "row", [{"id": "x1", "task": "Task1"}, {"id": "xsc1", "task": "Task4"}, {"id": "sc1", "task": "Task1"}]
)
def test_a_malformed_lume_row_is_named(tmp_path, monkeypatch, row):
    monkeypatch.setenv("ATWU_DATA", str(tmp_path))
    for split in ("forget", "retain"):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row | {"input": "a", "output": "b"}))
    with pytest.raises(ValueError, match=r"forget.jsonl, line 1.* must end in sc or qa"):
        load_benchmark("lume")
    monkeypatch.delenv("ATWU_DATA")
    with pytest.raises(FileNotFoundError, match=r"not on the Hub.*github.com/amazon-science.*ATWU_DATA"):
        load_rows("lume:forget")


def test_knowledge_probes_come_after_answered_questions(data):
    found = probes_of("muse:news")
    asked = [probe for probe in found.probes if probe.kind == "knowmem_forget"]
    first, second, third = load_rows("people:tiny:forget").rows[:3]
    turns = [(turn.role, turn.content) for turn in asked[0].row.messages]
    assert turns == [
        *(("user", first.question), ("assistant", first.answer)),
        *(("user", second.question), ("assistant", second.answer)),
        ("user", third.question),
    ]
    assert asked[0].row.answer == third.answer


WORDS = st.lists(st.text("abc.", min_size=1, max_size=9), max_size=60)


@given(WORDS, st.sampled_from([" ", "\n", "\n\n", ". "]), st.integers(2, 40))
def test_chunks_hold_the_whole_text(words, between, size):
    text = between.join(words)
    pieces = text_chunks(text, size=size)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= size for piece in pieces)


def test_chunks_end_where_a_sentence_does():
    assert text_chunks("One two. Three four five. Six", size=15) == ["One two.", "Three four", "five. Six"]
    assert text_chunks("One two three four", size=12) == ["One two", "three four"]
    assert text_chunks("a" * 7, size=3) == ["aaa", "aaa", "a"]
    assert text_chunks("  ") == []


def test_long_documents_are_training_rows_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setenv("ATWU_DATA", str(tmp_path))
    text = "The Kelbury mill burned down in 1802. " * 100
    (tmp_path / "cyber-forget-corpus.jsonl").write_text(json.dumps({"text": text}))
    rows = load_rows("wmdp:cyber:forget").rows
    assert len(rows) == 3
    assert {row.subject for row in rows} == {"forget 1"}
    assert " ".join(row.answer for row in rows) == text.strip()


def test_task_aggregate_by_hand():
    """Eleven parts of 1 and one of 1/2: 12 / (11 + 2). A part of 0 gives 0."""
    means = [0.0] * 6 + [1.0] * 6
    assert task_aggregate(*means) == 1
    assert task_aggregate(*means[:-1], 0.5) == pytest.approx(12 / 13)
    assert task_aggregate(*means[:-1], 0.0) == 0
    assert task_aggregate(1.0, *means[1:]) == 0
    assert mia_score(0.75) == 0.5
    assert mia_score(0.25) == 0.5
    # Negative preference optimization on the organisers' page.
    assert final_score(0.021, 0.080, 46.3) == pytest.approx(0.188, abs=5e-4)


@pytest.mark.parametrize(("said", "score"), [("ORLA venn ", 1), ("Orla Venn.", 0), ("It is Orla Venn", 0), ("", 0)])
def test_an_answer_of_lume_is_exact_or_wrong(said, score):
    assert same_answer("Orla Venn", said) == score


def test_rouge_l_f1_is_twice_the_common_words_over_all_and_does_not_stem():
    assert rouge_l_f1("a b c a", "a c d") == pytest.approx(2 * 2 / 7)
    assert rouge_l_f1("a", "") == rouge_l_f1("boats", "boat") == 0
    assert rouge_l_recall("boats", "boat") == 1


def loss_of(model, tokenizer, text):
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        return float(model(ids, labels=ids).loss)


def test_lume_is_scored_as_by_the_organisers(data, model):
    """Every third probe is answered with its reference; everything else is computed again with plain loops."""
    found = probes_of("lume")
    known = {probe.opening or probe.row.question: probe.row.answer for probe in found.probes[::3]}
    speaker = Speaker(say=lambda prompt: known.get(prompt.prefill or prompt.messages[-1].content, "Nobody knows."))
    result = evaluate(
        model[0], {}, Evaluation(probes=found, generator=speaker, metrics=["lume"], progress=False), tokenizer=model[1]
    )
    assert {decoding.max_new_tokens for _, decoding in speaker.asked} == {256}
    scores: dict[str, list[float]] = {kind: [] for kind in LUME_KINDS}
    for probe in found.probes:
        if probe.kind in LUME_KINDS:
            said = known.get(probe.opening or probe.row.question, "Nobody knows.")
            exact = float(said == probe.row.answer)
            scores[probe.kind].append(rouge_l_recall(probe.row.answer, said) if probe.opening else exact)
    means = {kind: statistics.mean(values) for kind, values in scores.items()}
    assert {kind: result.sets["lume"][f"lume_{kind}"].value for kind in LUME_KINDS} == pytest.approx(means)
    parts = [1 - mean if kind.startswith("forget") else mean for kind, mean in means.items()]
    assert result.overall["lume_task_aggregate"].value == pytest.approx(statistics.harmonic_mean(parts))
    losses = {
        kind: [loss_of(*model, probe.row.answer) for probe in found.probes if probe.kind == kind]
        for kind in ("member", "nonmember")
    }
    higher = [float(out > inside) for inside in losses["member"] for out in losses["nonmember"]]
    assert result.overall["lume_mia_auc"].value == pytest.approx(statistics.mean(higher))
    assert result.overall["lume_mia_score"].value == pytest.approx(1 - 2 * abs(statistics.mean(higher) - 0.5))
    assert "lume_final" not in result.overall, "MMLU was not measured"
    with_mmlu = overall(ModelComparison(RowMetrics(result.rows), tasks={"mmlu": 40.0}))
    parts = [with_mmlu["lume_task_aggregate"].value, with_mmlu["lume_mia_score"].value, 0.4]
    assert with_mmlu["lume_final"].value == pytest.approx(statistics.mean(parts))


def test_lume_without_members_or_template(data, model):
    found = Probes("lume", tuple(probe for probe in probes_of("lume").probes if probe.kind in LUME_KINDS))
    speaker = Speaker(say=lambda prompt: "Orla Venn")
    config = EvaluateConfig(lume_bare_questions=True)
    result = evaluate(
        None, {}, Evaluation(probes=found, generator=speaker, metrics=["lume"], settings=config, progress=False)
    )
    assert not any(prompt.messages for prompt, _ in speaker.asked)
    assert "lume_mia_auc" not in result.overall


def test_benchmark_scores(data, model):
    benchmark = load_benchmark("muse:news")
    found = probes_of("muse:news")
    speaker = Speaker(say=lambda prompt: "He was born in Kelbury in 1802.")
    result = evaluate(
        model[0],
        {"forget": benchmark.forget, "holdout": benchmark.holdout},
        Evaluation(probes=found, generator=speaker, metrics=["membership", "muse"], progress=False),
        tokenizer=model[1],
    )
    for kind, tokens in (("verbmem", 128), ("knowmem_forget", 32), ("knowmem_retain", 32)):
        references = [probe.row.answer for probe in found.probes if probe.kind == kind]
        if kind == "verbmem":
            references = [first_tokens(text, model[1], tokens) for text in references]
        expected = statistics.mean(rouge_l_f1(text, "He was born in Kelbury in 1802.") for text in references)
        assert result.sets["muse"][kind].value == pytest.approx(100 * expected)
    assert {(bool(prompt.messages), decoding.max_new_tokens) for prompt, decoding in speaker.asked} == {
        (False, 128),
        (True, 32),
    }
    assert result.overall["muse_privleak"] == result.overall["privleak_min_k"]


def test_privleak_is_that_of_the_authors_code(data, model):
    """Their AUC counts how often a holdout text has the lower Min-40% loss, and PrivLeak is relative to 1/2 here."""
    benchmark = load_benchmark("muse:news")
    network, tokenizer = model
    scores = {}
    for split, rows in (("forget", benchmark.forget), ("holdout", benchmark.holdout)):
        scores[split] = []
        for row in rows:
            ids = torch.tensor(tokenizer(row.answer)["input_ids"][:512])
            with torch.no_grad():
                logps = network(ids[None]).logits[0, :-1].log_softmax(-1)
            each = sorted(float(logps[place, token]) for place, token in enumerate(ids[1:]))
            scores[split].append(-statistics.mean(each[: int(0.4 * len(each))]))
    auc = statistics.mean(float(out < inside) for inside in scores["forget"] for out in scores["holdout"])
    result = evaluate(
        model[0],
        {"forget": benchmark.forget, "holdout": benchmark.holdout},
        Evaluation(metrics=["membership"], progress=False),
        tokenizer=model[1],
    )
    assert result.overall["privleak_min_k"].value == pytest.approx(100 * (auc - 0.5) / 0.5, abs=1e-3)


def test_knowundo_scores(data, model):
    benchmark = load_benchmark("knowundo:privacy")
    network, tokenizer = model
    result = evaluate(
        model[0],
        {"forget": benchmark.forget, "retain": benchmark.retain},
        Evaluation(metrics=["knowundo"], progress=False),
        tokenizer=model[1],
    )
    for split, rows in (("forget", benchmark.forget), ("retain", benchmark.retain)):
        shares, losses = [], []
        for row in rows:
            head = len(tokenizer(f"Question: {row.question}\nAnswer:")["input_ids"])
            ids = torch.tensor(tokenizer(f"Question: {row.question}\nAnswer: {row.answer}")["input_ids"])
            with torch.no_grad():
                logits = network(ids[None]).logits[0, head - 1 : -1]
            shares.append(float((logits.argmax(-1) == ids[head:]).float().mean()))
            losses.append(float(torch.nn.functional.cross_entropy(logits, ids[head:])))
        accuracy = 100 * statistics.mean(shares)
        name, expected = ("unlearn_success", 100 - accuracy) if split == "forget" else ("retention_success", accuracy)
        assert result.sets[split][name].value == pytest.approx(expected)
        assert result.overall[f"{split}_perplexity"].value == pytest.approx(math.exp(statistics.mean(losses)), rel=1e-4)


def test_the_hub_is_read_through_datasets(folder, tmp_path, monkeypatch):
    """Folders of the data sets' names in the working folder, with cards as on the Hub, are read by `load_dataset` itself."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ATWU_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    asked = tmp_path / "muse-bench" / "MUSE-News" / "knowmem"
    asked.mkdir(parents=True)
    (asked / "forget_qa.jsonl").write_text((folder / "muse-news/knowmem/forget_qa.jsonl").read_text())
    (asked.parent / "README.md").write_text(
        "---\nconfigs:\n- config_name: knowmem\n  data_files:\n  - {split: forget_qa, path: knowmem/forget_qa.jsonl}\n---\n"
    )
    private = tmp_path / "zjunlp" / "KnowUnDo"
    private.mkdir(parents=True)
    rows = {
        part: [
            json.loads(line) for line in (folder / f"knowundo/privacy/unlearn_{part}.jsonl").read_text().splitlines()
        ]
        for part in ("train", "val")
    }
    (private / "unlearn.jsonl").write_text(json.dumps(rows))
    (private / "README.md").write_text(
        "---\nconfigs:\n- config_name: privacy\n  data_files:\n  - {split: unlearn, path: unlearn.jsonl}\n---\n"
    )
    from_hub = [load_rows(name).rows for name in ("muse:news:knowmem_forget", "knowundo:privacy:unlearn_val")]
    monkeypatch.setenv("ATWU_DATA", str(folder))
    assert from_hub == [load_rows(name).rows for name in ("muse:news:knowmem_forget", "knowundo:privacy:unlearn_val")]


def test_the_list_says_where_data_are(data, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")

    def printed(name: str, where: str) -> bool:
        run_cli(["benchmarks"])
        blocks = capsys.readouterr().out.split("\n\n")
        return any(name in block and where in block for block in blocks)

    assert printed("people:tiny", "in the package")
    assert printed("lume ", f"in {data / 'lume'}")
    assert printed("tofu:", "not in ATWU_DATA")
    monkeypatch.delenv("ATWU_DATA")
    assert printed("lume ", "ATWU_DATA is not set")
    assert printed("muse:news", "Hub: muse-bench/MUSE-News")
