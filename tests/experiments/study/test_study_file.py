"""Study files: their meaning, and rejected entries."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from atwu.benchmarks.sources import OwnRows
from atwu.data.row_parsing import write_rows
from atwu.experiments.benchmark_settings import BENCHMARK_SETTINGS, FinetunedTarget, find_setting, setting_from
from atwu.experiments.published_comparison import published_table
from atwu.experiments.study_file import Study, library, read_study
from atwu.experiments.study_models import setting_rows
from atwu.experiments.study_plan import StudyPlan, plan, plan_study, variant_name
from atwu.methods.method_table import METHODS
from tests.commands import run_here


def written(tmp_path: Path, text: str) -> Study:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return read_study(path)


def planned(tmp_path: Path, study: str, setting: str = "people-tiny", **given: object) -> StudyPlan:
    """The plan of a study by name, or by its text."""
    found = written(tmp_path, study) if ":" in study else read_study(study)
    return plan(found, found.setting or find_setting(setting), tmp_path / "out", **given)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (
            "methods: [npo, {label: mine, method: atwu, rho: 0.3}]\nvary: {beta: [1.0, 2.0]}",
            ["npo, beta=1", "npo, beta=2", "mine, beta=1", "mine, beta=2"],
        ),
        ("methods: [{label: , method: wga}, {label: 0, method: wga, beta: 2}]", ["wga", "0"]),
        (
            "methods: [atwu]\nvary: {weighting: [scorer, labels], scorer_every: [1]}",
            ["weighting=scorer, scorer_every=1", "weighting=labels, scorer_every=1"],
        ),
    ],
)
def test_variants_are_labelled_by_their_differences(tmp_path, text, labels):
    assert [variant.label for variant in written(tmp_path, text).variants] == labels


def test_scorer_from_refers_to_the_variant_with_the_same_varied_options(tmp_path):
    text = (
        "methods: [atwu, {label: after, method: atwu, scorer_from: atwu, beta: 2}]\nvary: {rho: [1e-1, 0.3]}\nseeds: 2"
    )
    study = written(tmp_path, text)
    assert [(variant.label, variant.scorer_from) for variant in study.variants] == [
        ("atwu, rho=0.1", None),
        ("atwu, rho=0.3", None),
        ("after, rho=0.1", "atwu, rho=0.1"),
        ("after, rho=0.3", "atwu, rho=0.3"),
    ]
    assert study.variants[2].options == {"rho": 0.1, "beta": 2}  # 1e-1 is a number
    assert study.seeds == (1, 2)


def test_every_variant_runs_once_before_any_runs_twice_and_seeds_may_differ_by_setting(tmp_path):
    text = "methods: [wga, npo]\nseeds: {people-tiny: 1, default: [5, 4]}"
    names = {name: [run.name for run in planned(tmp_path, text, name).runs] for name in ("people-tiny", "people-small")}
    assert names == {"people-tiny": ["wga-s1", "npo-s1"], "people-small": ["wga-s5", "npo-s5", "wga-s4", "npo-s4"]}
    three_seeds = replace(written(tmp_path, text), seeds=(1, 2, 3), setting_seeds={})
    runs = plan(three_seeds, find_setting("people-tiny"), tmp_path).runs
    assert [run.seed for run in runs] == [1, 1, 2, 2, 3, 3]
    assert variant_name("atwu") == "atwu"
    assert variant_name("a b") != variant_name("a/b")
    assert "/" not in variant_name("../up")


def test_the_list_of_settings_names_every_original_model_in_full(monkeypatch):
    printed = {}
    for width in (60, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        printed[width] = run_here("study", "list").output
    assert "…" not in printed[60]
    assert all(str(setting.target) in printed[400] for setting in BENCHMARK_SETTINGS.values())
    assert "smollm2, fine-tuned on the benchmark" in printed[400]


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        *(
            (text, {}, said)
            for text, said in (
                ("metods: [atwu]", "'metods'.*'methods'"),
                ("methods: [atwuu]", "'atwuu'.*'atwu'"),
                ("methods: []", "methods.*'all'.*list"),
                ("methods: [atwu, atwu]", "'atwu'"),
                ("methods: [{label: x}]", "mapping.*method"),
                ("methods: [{label: x, method: atwu, start: wga}]", "start.*retain-only"),
                ("methods: [{label: x, method: atwu, scorer_from: y}]", "scorer.*'y'"),
                ("methods: [{label: x, method: atwu, scorer_from: x}]", "scorer_from|'x'"),
                ("metrics: memorization", "metrics.*list"),
                ("metrics: []", "metrics.*list"),
                ("seeds: 0", "seeds.*count"),
                ("seeds: [1, 1]", "seeds.*list"),
                ("seeds: [-1]", "seeds.*count"),
                ("presets: 'false'", "presets.*'false'"),
                ("published: nosuch", "'nosuch'"),
                ("methods: [wga]\nvary: [rho]", "vary.*list"),
                ("methods: [{label: original, method: wga}]", "'original'"),
                ("vary: {beta: 3}", "beta.*list"),
                ("setting: people-smal", "'people-smal'.*'people-small'"),
                ("setting: {like: people-tiny, trainin: {}}", "setting.*'trainin'"),
                ("setting: {name: x}", "benchmark, target"),
                ("- atwu:", "'key: value'.*list"),
                ("methods: [wga]\nseeds: {peopel-tiny: 1}", r"'peopel-tiny'.*'people-tiny'"),
                ("methods: [wga]\npublished: {peopel-tiny: tofu-forget10-1b}", r"'peopel-tiny'.*'people-tiny'"),
                ("methods: [{label: odd, method: npo, temperature: 2.0}]", r"odd: .*'temperature'"),
                ("metrics: [rogue]", "'rogue'"),
                ("setting: {like: people-tiny, evaluation: {smples: 3}}", "smples"),
            )
        ),
        ("methods: [npo]\npresets: false", {"presets": "{}"}, r"`presets: false`.*--presets"),
        ("methods: [wga]", {"presets": "{}/nowhere"}, "--presets .*/nowhere is not a folder"),
        ("methods: [wga]", {"presets": "{}"}, "contains no preset"),
        ("methods: [wga]", {"only": ["nope"]}, "'nope'"),
        ("methods: [{label: bad, method: wga, weighting: nosuch}, npo]", {"only": ["npo"]}, "bad: .*'nosuch'"),
    ],
)
def test_mistakes_are_named_before_any_run(tmp_path, text, given, said):
    given = {name: value.format(tmp_path) if isinstance(value, str) else value for name, value in given.items()}
    with pytest.raises(ValueError, match=said):
        planned(tmp_path, text, **given)


@pytest.mark.parametrize(
    ("study", "given", "said"),
    [
        ("headlin", {}, "no study 'headlin'.* Did you mean 'headline'?"),
        ("headline", {"paraphrases": ["nowhere.jsonl"]}, "--paraphrases nowhere.jsonl is not a file"),
        ("headline", {"output": "model"}, "model is the folder of a model; choose another --output"),
    ],
)
def test_mistaken_names_and_places_are_named_before_any_run(tmp_path, monkeypatch, study, given, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        plan_study(study, "people-tiny", **{k: Path(v) if k == "output" else v for k, v in given.items()})


@pytest.mark.parametrize("name", library())
def test_built_in_studies_can_be_planned_and_match_published_labels(name, tmp_path):
    study = read_study(name)
    for setting in ("people-tiny", "tofu-8b", "rwku-phi3"):
        found = plan(study, find_setting(setting), tmp_path)
        assert len(found.runs) == len(study.variants) * len(found.study.seeds)
    for table in study.published.values():
        labels = set(published_table(table).rows) - {"original"}
        assert len(labels & {variant.label for variant in study.variants}) >= 4, table


def test_the_headline_study_has_every_method():
    with pytest.raises(FileNotFoundError, match="headline"):
        read_study("hedline")
    assert [variant.label for variant in read_study("headline").variants] == list(METHODS)


def test_options_of_a_variant_override_its_preset(tmp_path):
    (run,) = planned(tmp_path, "methods: [{label: a, method: atwu, beta: 2.0}]\nseeds: [7]", "tofu-1b").runs
    config = run.config(find_setting("tofu-1b"), scorer_from=None)
    assert (config.recipe().values["beta"], config.learning_rate, config.seed) == (2.0, 2e-5, 7)
    assert config.per_device_train_batch_size * config.gradient_accumulation_steps == 32


def test_all_variants_run_under_one_or_several_configurations(tmp_path):
    setting = find_setting("tofu-1b")
    alone = plan(read_study("token-weighting").under(["authors"]), setting, tmp_path)
    assert [run.label for run in alone.runs] == [
        run.label for run in plan(read_study("token-weighting"), setting, tmp_path).runs
    ]
    for run in alone.runs:
        assert run.config(setting).configuration == "authors"
    both = plan(read_study("scorer-state").under(["ours", "paper"]), setting, tmp_path)
    runs = {run.label: run for run in both.runs if run.seed == 1}
    assert list(runs)[-2:] == ["atwu, ours", "atwu, paper"]
    assert runs["atwu, paper"].config(setting).recipe().scores.hidden_position == "own"
    assert runs["atwu, ours"].config(setting).recipe().scores.hidden_position == "pred"
    assert runs["trained_frozen, paper"].scorer_from == runs["atwu, paper"].folder
    found = planned(tmp_path, "scorer-state", only=["trained_frozen"]).now  # with the source of its scorer
    assert [run.name for run in found.runs if run.seed == 1] == ["trained_frozen-s1", "atwu-s1"]
    with pytest.raises(ValueError, match="'theirs'"):
        read_study("headline").under(["theirs"])
    with pytest.raises(ValueError, match=r"'atwu'.*configuration"):
        written(tmp_path, "methods: [{method: atwu, configuration: paper}]").under(["ours"])


def test_paraphrases_are_attached_to_the_rows_of_a_benchmark(tmp_path):
    plain = setting_rows(find_setting("people-tiny"))
    write_rows(tmp_path / "forget.jsonl", [replace(row, paraphrases=("Say it?",)) for row in plain.forget])
    found = plan_study("headline", "tofu-small", output=tmp_path, paraphrases=[str(tmp_path / "forget.jsonl")])
    assert "paraphrases" not in found.setting.evaluation
    assert found.runs[0].options == plan_study("headline", "tofu-small", output=tmp_path).runs[0].options
    worded = setting_rows(replace(find_setting("people-tiny"), paraphrases=found.setting.paraphrases))
    assert [row.paraphrases for row in worded.forget] == [("Say it?",)] * len(plain.forget)
    assert worded.retain == plain.retain
    assert (worded.forget_source, worded.pool) == (plain.forget_source, plain.pool)
    write_rows(tmp_path / "few.jsonl", plain.forget[:3])
    with pytest.raises(ValueError, match=r"few\.jsonl: .*21 of the 24 .*people:tiny.* atwu rows paraphrases"):
        setting_rows(replace(find_setting("people-tiny"), paraphrases=(str(tmp_path / "few.jsonl"),)))


def test_published_splits_use_the_values_tuned_on_the_largest(tmp_path):
    main = planned(tmp_path, "headline", "tofu-8b")
    for split, kept in (("forget05", "retain95"), ("forget01", "retain99")):
        found = planned(tmp_path, "headline", f"tofu-8b-{split}")
        assert [run.options for run in found.runs] == [run.options for run in main.runs]
        assert found.setting.retain_only == str(main.setting.retain_only).replace("retain90", kept)
        assert (found.setting.training, found.setting.evaluation) == (main.setting.training, main.setting.evaluation)


def test_a_custom_split_keeps_the_options_of_the_model():
    setting = setting_from({"like": "tofu-8b", "benchmark": "tofu:forget05", "retain_only": "mine/retain95"})
    main = find_setting("tofu-8b")
    assert (setting.presets, setting.surrogate, setting.retain_only) == ("tofu-8b", "tofu-1b", "mine/retain95")
    assert (setting.training, setting.evaluation) == (main.training, main.evaluation)
    other = setting_from({"like": "tofu-8b", "benchmark": "people:small"})
    assert (other.presets, other.surrogate, other.retain_only) == (None, None, None)
    assert "system" not in other.training
    with pytest.raises(ValueError, match="'tofu-9b'"):
        setting_from({"like": "tofu-8b", "presets": "tofu-9b"})


def test_published_settings_use_the_number_of_steps_of_the_authors(tmp_path):
    (run, *_) = planned(tmp_path, "headline", "tofu-1b", only=["atwu"]).now.runs
    config = run.config(find_setting("tofu-1b"))
    assert config.rows_per_step == 32
    for rows, steps in ((400, 120), (200, 60), (40, 10)):
        assert config.rows_per_epoch(rows) // 32 * config.num_train_epochs == steps
    assert config.rows_per_epoch(20) == 20  # less than a step is one step


def test_a_method_without_tuned_values_uses_those_of_its_base_method(tmp_path):
    setting = find_setting("rwku-phi3")
    runs = {run.method: run for run in planned(tmp_path, "other-losses", setting.name).runs}
    for base in ("dpo", "npo", "simnpo"):
        own, learned = runs[base], runs[f"atwu_{base}"]
        assert learned.options == own.options
        assert learned.config(setting).learning_rate == own.config(setting).learning_rate
        assert learned.budget == f"values of {base}: {own.budget}"
    (run,) = planned(tmp_path, "methods: [atwu_ga]\nseeds: 1", setting.name).runs
    assert run.options["learning_rate"] == runs["atwu"].options["learning_rate"]
    assert "beta" not in run.options


def test_custom_presets_come_from_a_folder_and_do_not_change_shared_options(tmp_path):
    (tmp_path / "npo.yaml").write_text(
        "method: npo\nlearning_rate: 0.001\nnum_train_epochs: 99\nabout: {budget: 3 trials}\n"
    )
    found = planned(tmp_path, "methods: [npo, wga]\nseeds: 1", presets=tmp_path)
    assert found.runs[0].options == {"learning_rate": 0.001}
    assert re.search(r"^3 trials; .*wga \(", found.budget)


def test_a_custom_setting_has_rows_and_a_model(tmp_path):
    setting = setting_from(
        {"like": "people-tiny", "target": "folder", "benchmark": {"forget": "f.jsonl", "retain": "r.jsonl"}}
    )
    assert (setting.target, setting.benchmark) == ("folder", OwnRows("f.jsonl", "r.jsonl"))
    file = tmp_path / "mine.yaml"
    file.write_text(
        "benchmark: people:tiny\ntarget: {shape: micro, training: {num_train_epochs: 1}}\nlearning_rates: [1.0e-4, 1.0e-3]\n"
        "first_rates: [2.0e-4, 5.0e-4]"
    )
    found = find_setting(str(file))
    assert (found.name, found.target, found.learning_rates, found.first_rates) == (
        "mine",
        FinetunedTarget({"num_train_epochs": 1}, shape="micro"),
        (1e-4, 1e-3),
        (2e-4, 5e-4),
    )
    changed = setting_from({"like": "tofu-1b", "target": "mine", "training": {"num_train_epochs": 2}})
    assert changed.retain_only is None
    kept = {name: value for name, value in find_setting("tofu-1b").training.items() if name != "system"}
    assert changed.training == {**kept, "num_train_epochs": 2}  # the system turn is that of the published models
    assert "system" not in changed.evaluation
    other = setting_from({"like": "tofu-8b", "target": "mine", "evaluation": {"system": "Answer."}})
    assert (other.surrogate, other.evaluation["system"]) == (None, "Answer.")
    with pytest.raises(ValueError, match=r"learning_rates.*0\.0001 .*0\.01.*1e-05"):
        setting_from({"like": "people-tiny", "learning_rates": [1e-4, 1e-2], "first_rates": [1e-5, 1e-3]})
    with pytest.raises(ValueError, match=r"people-small .*built-in"):
        setting_from({"like": "people-small", "name": "people-small", "training": {"num_train_epochs": 2}})
    with pytest.raises(ValueError, match=r"benchmark.*forget, retain, holdout"):
        setting_from({"like": "people-tiny", "benchmark": {"rows": "f.jsonl"}})
