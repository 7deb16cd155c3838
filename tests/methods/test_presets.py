"""Shipped presets and default values of methods against the published values; reading, writing and naming presets."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from atwu.cli.app import run
from atwu.cli.cli_options import convert_options, read_config
from atwu.cli.train import UnlearnCommand, read_config_or_preset
from atwu.experiments.published_comparison import published_table
from atwu.methods.method_table import METHODS
from atwu.methods.presets import PUBLISHED, named_preset, settings_with_presets, shipped_presets
from atwu.methods.recipe import recipe
from atwu.training.config import UnlearnConfig, read_preset, write_preset

BENCHMARK_SETTINGS = [setting for settings in PUBLISHED.values() for setting in settings]
SHIPPED = [preset for setting in settings_with_presets() for preset in shipped_presets(setting).values()]


@pytest.mark.parametrize(
    "preset",
    [preset for setting in BENCHMARK_SETTINGS for preset in shipped_presets(setting).values()],
    ids=lambda preset: preset.name,
)
def test_origin_of_published_values_is_recorded(preset):
    table = published_table(preset.about["table"])
    assert preset.method in table.rows
    assert preset.about["model"] in table.title
    assert preset.about["benchmark"] in table.title
    assert preset.about["source"]


@pytest.mark.parametrize("preset", SHIPPED, ids=lambda preset: preset.name)
def test_every_preset_is_valid(preset):
    assert shipped_presets(preset.setting)[preset.method] == named_preset(preset.name) == preset
    assert convert_options(preset.options, UnlearnCommand, where=Path(preset.name)) == preset.options
    config = UnlearnConfig(**preset.options, use_cpu=True)
    assert config.recipe().name == preset.method
    assert config.recipe().values.items() >= preset.values.items()
    assert config.learning_rate == preset.options["learning_rate"]


def test_one_benchmark_has_one_set_of_values():
    for first, *others in PUBLISHED.values():
        for setting in others:
            for name in shipped_presets(first).keys() & shipped_presets(setting).keys():
                assert shipped_presets(first)[name].values == shipped_presets(setting)[name].values


def test_defaults_of_methods_are_the_published_values():
    for name, row in METHODS.items():
        preset = shipped_presets("tofu-1b").get(name) or shipped_presets("tofu-8b").get(name)
        assert row.values_from or row.defaults == (preset.values if preset else {})
        if row.values_from in METHODS:
            numbers = METHODS[row.values_from].defaults
            assert row.defaults == {key: value for key, value in numbers.items() if key in recipe(name).values}


def test_missing_presets():
    assert "rmu" not in shipped_presets("tofu-1b")
    assert shipped_presets("kelbury") == {}
    with pytest.raises(ValueError, match=r"tofu-1b.* atwu, dpo, .*'tofu-1b/atwu'"):
        named_preset("tofu-1b/atvu")
    with pytest.raises(ValueError, match=r"rwku-phi3, .*tofu-1b, tofu-8b"):
        named_preset("kelbury/atwu")


def test_written_and_read_again(tmp_path):
    path = tmp_path / "kelbury" / "wga.yaml"
    options = {"beta": 1e-5, "method": "wga", "learning_rate": 1e-5, "bf16": True}
    about = {"result": {"UQ": 61.5}, "budget": 20, "source": "Orla Venn"}
    write_preset(path, options, about)
    preset = read_preset(path)
    assert (preset.setting, preset.method, preset.options, preset.about) == ("kelbury", "wga", options, about)
    assert preset.values == {"beta": 1e-5}
    assert list(yaml.safe_load(path.read_text()))[:2] == ["method", "learning_rate"]
    assert path.read_text().startswith("# atwu unlearn --config wga.yaml ")
    assert [file.name for file in path.parent.iterdir()] == ["wga.yaml"]
    assert convert_options(read_config(path), UnlearnCommand, where=path) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method: wga\nbetta: 1", "'betta'.*'beta'"),
        ("method: wga\nmodel: target", "'model'"),
        ("method: wga\nkelbury: 3", "'kelbury'.*'about'"),
        ("beta: 1", "method"),
        ("method: wga\nabout: 3", "about.* 3"),
        ("method: wga\nbeta: [1]", r"beta.*\[1\]"),
        ("- wga", "'key: value'.*list"),
        ("method: 'wga", "YAML"),
    ],
)
def test_invalid_preset_is_explained(text, message, tmp_path):
    path = tmp_path / "wga.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_preset(path)


def test_invalid_preset_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"'betta'.*'beta'"):
        write_preset(tmp_path / "wga.yaml", {"method": "wga", "betta": 1.0}, {})
    with pytest.raises(FileNotFoundError, match=r"wga\.yaml"):
        read_preset(tmp_path / "wga.yaml")


def test_run_uses_a_preset_by_name_unless_there_is_such_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_config_or_preset(Path("rwku-phi3/atwu")) == named_preset("rwku-phi3/atwu").options
    (tmp_path / "rwku-phi3").mkdir()
    (tmp_path / "rwku-phi3" / "atwu").write_text("beta: 3\nabout: {source: Tavi Brook}\n")
    assert read_config_or_preset(Path("rwku-phi3/atwu")) == {"beta": 3}
    with pytest.raises(FileNotFoundError, match=r"^(?!.*preset).*tofu-1b/atwu"):
        read_config(Path("tofu-1b/atwu"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tofu-1b/atvu", "config tofu-1b/atvu .*atwu, "),
        ("tofu-1b", "config tofu-1b .*tofu-1b/atwu"),
        ("kelbury.yaml", r"^(?!.*preset).*kelbury\.yaml"),
    ],
)
def test_unknown_config_is_a_one_line_error(name, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["atwu", "unlearn", "--config", name])
    with pytest.raises(SystemExit):
        run()
    assert re.search(message, capsys.readouterr().err)
