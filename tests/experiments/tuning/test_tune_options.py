"""Decisions of `atwu tune`: settings, folders, methods that are left out, and errors that end it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from atwu._names import Registry
from atwu.benchmarks.base import Benchmark
from atwu.experiments.executors import Executor
from atwu.experiments.experiment_run import RunContext
from atwu.experiments.search import FinishedTrial, Search, SearchResult, check_search
from atwu.methods.method_table import METHODS
from atwu.training.config import read_preset
from tests.commands import Done, run_here

PLAIN = [{"text": "Orla Quist lives in Kelbury."}]
LABELLED = [{"question": "Where does Orla Quist live?", "answer": "In Kelbury.", "forget_spans": [[3, 10]]}]


class Searches:
    """Stand-in for the searches, with one trial each."""

    def __init__(self) -> None:
        self.seen: list[Search] = []
        self.errors: dict[str, Exception] = {}
        self.pruned: set[str] = set()

    def run(
        self, search: Search, context: RunContext, executor: Executor, *, folder: Path, **options: object
    ) -> SearchResult:
        assert check_search(search, context.models) is None
        self.seen.append(search)
        if search.method in self.errors:
            raise self.errors[search.method]
        folder.mkdir(parents=True, exist_ok=True)
        point = {name: where.clip(2e-3) for name, where in search.space.items()}
        value = None if search.method in self.pruned else 0.5
        return SearchResult(search, (FinishedTrial(0, point, value, 1.0),))

    @property
    def settings(self) -> list[str]:
        return [search.setting.name for search in self.seen]


@pytest.fixture
def rows(tmp_path) -> dict[str, str]:
    """Setting -> its forget rows; labelled unless a test changes them."""
    (tmp_path / "labelled.jsonl").write_text("\n".join(map(json.dumps, LABELLED)))
    (tmp_path / "plain.jsonl").write_text("\n".join(map(json.dumps, PLAIN)))
    return {"": str(tmp_path / "labelled.jsonl"), "plain": str(tmp_path / "plain.jsonl")}


@pytest.fixture
def searches(rows, tmp_path, monkeypatch) -> Searches:
    def models(setting, **options):
        source = rows.get(setting.name, rows[""])
        return SimpleNamespace(
            benchmark=Benchmark("own", source, "retain.jsonl", None, None, (), (), ()), target="model"
        )

    found = Searches()
    monkeypatch.setattr("atwu.experiments.tune_methods.search_setting", found.run)
    monkeypatch.setattr("atwu.experiments.tune_methods.prepare_models", models)
    monkeypatch.setattr("atwu.experiments.tune_methods.layer_count", lambda models: 4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return found


def run(*arguments: str) -> Done:
    return run_here("tune", *arguments)


def test_transfers_from_one_first_stage_share_its_storage_and_write_separate_presets(searches, tmp_path):
    for target in ("people-small", "tofu-small"):
        assert run("--method", "grad_diff", "--setting", "people-tiny", "--transfer-to", target).exit_code == 0
    first = tmp_path / "runs" / "tune-people-tiny" / "search.db"
    assert {search.storage for search in searches.seen} == {str(first)}
    assert {path.parent.name for path in tmp_path.glob("runs/*/grad_diff.yaml")} == {
        "tune-people-small",
        "tune-tofu-small",
    }
    given = ("--method", "grad_diff", "--transfer-to", "people-small", "--output", "mine")
    searches.seen.clear()
    for more in ((), ("--storage", "elsewhere.db")):
        assert run(*given, *more).exit_code == 0
    assert [search.storage for search in searches.seen[::2]] == [
        str(tmp_path / name) for name in ("mine/search.db", "elsewhere.db")
    ]


@pytest.mark.parametrize(
    ("given", "stages"),
    [
        ((), ["people-tiny"]),
        (("--setting", "tofu-small"), ["tofu-small"]),
        (("--transfer-to", "people-small"), ["people-tiny", "people-small"]),
        (("--transfer-to", "tofu-1b"), ["tofu-1b", "tofu-1b"]),
        (("--setting", "people-tiny", "--transfer-to", "tofu-small"), ["people-tiny", "tofu-small"]),
        (("--setting", "tofu-1b", "--transfer-to", "tofu-small"), ["tofu-1b", "tofu-small"]),
    ],
)
def test_the_first_stage_is_the_given_setting_the_surrogate_or_the_setting_itself(searches, given, stages):
    assert run("--method", "grad_diff", *given).exit_code == 0
    assert searches.settings == stages


@pytest.mark.parametrize(
    ("own", "given", "at"),
    [
        ("", (), " --setting people-tiny"),
        ("", ("--setting", "tofu-small"), " --setting tofu-small"),
        ("setting: people-small", (), ""),
        ("setting: people-small", ("--transfer-to", "people-tiny"), " --setting people-tiny"),
    ],
)
def test_the_suggested_study_command_uses_the_tuned_setting(searches, own, given, at):
    Path("mine.yaml").write_text(f"methods: [wga]\n{own}")
    done = run("--study", "mine.yaml", *given, "--output", "out")
    assert f"atwu study run mine.yaml{at} --presets out" in done.output


def test_only_methods_that_the_rows_do_not_support_are_left_out_of_all(searches, rows, monkeypatch):
    monkeypatch.setattr("atwu.experiments.tune_methods.METHODS", dict.fromkeys(["gt_ga", "dpo", "grad_diff"]))
    rows["people-small"] = rows["plain"]
    done = run("--method", "all", "--transfer-to", "people-small", "--output", "out")
    assert done.exit_code == 0
    assert re.search("gt_ga: .*people-small .*forget_spans", done.output)
    assert re.search("dpo: .*people-small", done.output)
    # Not even the first stage was paid for.
    assert {search.method for search in searches.seen} == {"grad_diff"}


@pytest.mark.parametrize(
    "error", [ValueError("x.db holds another search named 'people-tiny/npo'"), OSError("no space")]
)
def test_any_other_error_ends_all(searches, monkeypatch, error):
    monkeypatch.setattr("atwu.experiments.tune_methods.METHODS", dict.fromkeys(["grad_diff", "npo", "wga"]))
    searches.errors["npo"] = error
    done = run("--method", "all", "--output", "out")
    assert done.exit_code == 1
    assert done.exception is error
    assert [search.method for search in searches.seen] == ["grad_diff", "npo"]


def test_method_without_a_learning_rate_to_transfer_fails_after_the_others(searches, monkeypatch):
    two = Registry("method", {name: METHODS[name] for name in ("grad_ascent", "grad_diff")})
    monkeypatch.setattr("atwu.experiments.tune_methods.METHODS", two)
    searches.pruned.add("grad_ascent")
    Path("out").mkdir()
    Path("out/grad_ascent.yaml").write_text("method: grad_ascent\n")  # of an earlier search
    done = run("--method", "all", "--transfer-to", "people-small", "--output", "out")
    assert done.exit_code == 1
    assert re.search("grad_ascent: .*people-tiny/grad_ascent .*pruned", done.output)
    assert Path("out/grad_diff.yaml").is_file()
    assert not Path("out/grad_ascent.yaml").exists()
    assert run("--method", "grad_diff", "--output", "other").exit_code == 0
    searches.pruned.add("grad_diff")
    assert run("--method", "grad_diff", "--output", "other").exit_code == 0
    assert not Path("other/grad_diff.yaml").exists()


def test_a_named_method_that_the_rows_do_not_support_is_an_error(searches, rows):
    rows["people-small"] = rows["plain"]
    done = run("--method", "gt_ga", "--transfer-to", "people-small")
    assert done.exit_code == 1
    assert "gt_ga" in str(done.exception)
    assert not searches.seen


TRANSFER = ("--method", "grad_diff", "--transfer-to", "odd.yaml")


@pytest.mark.parametrize(
    ("setting", "given", "said"),
    [
        # Options that a preset cannot store.
        (
            {"training": {"lr_scheduler_kwargs": {"num_cycles": 2}}},
            TRANSFER,
            r"lr_scheduler_kwargs .*\{'num_cycles': 2\} .*odd",
        ),
        ({"training": {"max_grad_norm": None}}, TRANSFER, "max_grad_norm .*None .*odd"),
        ({}, (*TRANSFER, "--set", "max_grad_norm=null"), "max_grad_norm .*None .*odd"),
        ({}, (*TRANSFER, "--set", "learning_rate=1e-3"), "grad_diff sets the learning rate"),
        # Two settings of one name, and an option that a variant sets itself.
        ({"name": "mine"}, (*TRANSFER, "--setting", "other.yaml"), "'mine'"),
        ({}, ("--study", "mine.yaml", "--set", "weight_decay=0.1", "--set", "beta=0.1"), "'sharp' .*--set beta"),
    ],
)
def test_what_cannot_be_tuned_is_rejected_before_the_first_trial(searches, setting, given, said):
    Path("mine.yaml").write_text("methods: [wga, {label: sharp, method: wga, beta: 2.5}]")
    for name, more in (("odd", {}), ("other", {"name": "mine", "about": "other"})):
        Path(f"{name}.yaml").write_text(yaml.safe_dump({"like": "people-tiny", "name": name, **setting, **more}))
    done = run(*given, "--output", "out")
    assert done.exit_code == 1
    assert re.search(said, str(done.exception))
    assert not searches.seen


def test_the_result_of_a_search_at_another_setting_is_not_replaced(searches):
    given = ("--method", "grad_diff", "--output", "out", "--setting")
    assert run(*given, "people-tiny").exit_code == 0
    done = run(*given, "tofu-small")
    assert "at people-tiny, not tofu-small; choose another --output" in str(done.exception)
    assert run(*given, "people-tiny", "--transfer-to", "people-small").exit_code == 0  # continues with a second stage
    done = run(*given, "people-tiny")
    assert "at people-tiny and people-small, not people-tiny" in str(done.exception)
    Path("out/grad_diff.trials.json").write_text("{}")
    assert "not a result of `atwu tune`" in str(run(*given, "people-tiny").exception)


def test_presets_omit_options_of_the_machine(searches):
    machine = {"bf16": True, "tf32": False, "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"a": 1}}
    values = {"like": "people-tiny", "name": "own", "training": {"num_train_epochs": 2, **machine}}
    Path("own.yaml").write_text(yaml.safe_dump(values))
    given = ("--method", "grad_diff", "--setting", "own.yaml", "--set", "use_cpu=true", "--output", "out")
    assert run(*given).exit_code == 0
    options = read_preset("out/grad_diff.yaml").options
    assert options["num_train_epochs"] == 2
    assert not {*machine, "fp16", "use_cpu", "save_strategy"} & options.keys()
