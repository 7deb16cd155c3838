"""Models of current families go through the whole package, from a folder each time, or are refused by name."""

from __future__ import annotations

import warnings

import pytest
from transformers import T5Config

from atwu.modeling.load import load_model, model_class, quiet_transformers
from tests.modeling.families import BY_DAY, DOCS, FAMILIES, MARK, STEPS_OF, WORKS, run_family
from tests.modeling.small_models import small_config, small_model

pytest.importorskip("peft")


def _check(kind: str) -> None:
    quiet_transformers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = run_family(kind)
    assert outcomes.pop("GGUF") == WORKS or kind != "llama"
    assert outcomes == dict.fromkeys(outcomes, WORKS)
    assert len(outcomes) == len(STEPS_OF) - 1


@pytest.mark.slow
def test_a_family_works_from_fine_tuning_to_export() -> None:
    _check(BY_DAY)


@pytest.mark.night
@pytest.mark.parametrize("kind", sorted(set(FAMILIES.values()) - {BY_DAY}))
def test_every_family_works_from_fine_tuning_to_export(kind: str) -> None:
    _check(kind)


def test_the_table_in_the_documentation_has_every_family() -> None:
    written = DOCS.read_text(encoding="utf-8").partition(MARK)[2]
    for family, kind in FAMILIES.items():
        assert f"| {family} (`{kind}`) |" in written


def test_a_model_that_also_reads_images_is_loaded_with_its_wrapper(tmp_path) -> None:
    model = small_model("llava")
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    assert type(loaded) is type(model)
    assert {name for name, _ in loaded.named_parameters()} == {name for name, _ in model.named_parameters()}


def test_a_model_that_continues_no_text_is_refused_in_one_line(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"models of type t5 \(model_type in config.json\) do not continue a text"):
        model_class(T5Config())


def test_sizes_of_a_small_model_reach_its_nested_configs() -> None:
    config = small_config("gemma4", vocab_size=400)
    assert config.get_text_config().vocab_size == 400
    assert config.get_text_config().hidden_size == small_config("gemma4").get_text_config().hidden_size
