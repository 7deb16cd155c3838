"""The documented deviations from published code match this package."""

from __future__ import annotations

import pytest

from atwu.experiments.benchmark_settings import BENCHMARK_SETTINGS
from atwu.methods.recipe import CONFIGURATIONS, recipe
from atwu.training.config import UnlearnConfig
from tests.test_docs import ROOT

LISTED = (ROOT / "docs" / "methods.md").read_text().split("## Deviations from published code\n")[1]


def steps(rows, drop):
    config = UnlearnConfig(
        output_dir="out",
        use_cpu=True,
        method="grad_diff",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_train_epochs=10,
        dataloader_drop_last=drop,
    )
    return -(-config.rows_per_epoch(rows) // config.rows_per_step) * 10


def test_steps_of_an_epoch():
    sizes = (400, 200, 40)
    floored, whole = ([steps(rows, drop) for rows in sizes] for drop in (True, False))
    assert "{}, {} and {} on forget10, 05 and 01".format(*floored) in LISTED
    assert "takes {}, {} and {}".format(*whole) in LISTED
    assert BENCHMARK_SETTINGS["tofu-8b"].training["dataloader_drop_last"] is True


@pytest.mark.parametrize(
    ("configuration", "method", "setting", "words"),
    [
        ("ours", "atwu", ("hidden_position", "pred"), "The scorer reads the predicting state (`pred`;"),
        ("authors", "atwu", ("hidden_position", "own"), "`--configuration authors` has `own`"),
        ("ours", "jensun", ("legacy", False), "counts answer tokens only"),
        ("authors", "jensun", ("legacy", True), "a row's last position count too"),
        ("paper", "jensun", ("legacy", False), "`--legacy` for the first version"),
    ],
)
def test_values_set_by_each_configuration(configuration, method, setting, words):
    name, value = setting
    assert recipe(method, configuration=configuration).settings[name] == value
    assert words in LISTED.replace("\n  ", " ")
    assert configuration in CONFIGURATIONS
