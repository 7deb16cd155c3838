"""A tokenizer encodes as its tokenizer.json says, whatever class tokenizer_config.json names."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from atwu.errors import ModelFileError
from atwu.modeling.load import load_tokenizer
from atwu.modeling.tokenizer_file import difference_from_file, warn_of_rebuilt
from tests.micro_models import write_micro

TEXT = "Room 1987, it's 20 24\n"
TRAINED_ON = ["Orla Venn lives in 1987 Street, room 1987, it's 20 24 in 2024 of 1987."] * 4
DIGITS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r"\p{N}{1,2}|\s+|[^\s\p{N}]+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
SINGLE_DIGITS = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)


def write_tokenizer(folder: Path, pre_tokenizer: object, named: str, **special: str) -> Tokenizer:
    """Write a tokenizer under the name of a class; return what its file holds."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizer
    plain.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    plain.train_from_iterator(TRAINED_ON, trainer)
    template = "{% for turn in messages %}{{ turn.content }}{% endfor %}"
    PreTrainedTokenizerFast(tokenizer_object=plain, chat_template=template, **special).save_pretrained(folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer_class": named}))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("named", ["GPT2Tokenizer", "GPT2TokenizerFast", "Qwen2Tokenizer", "LlamaTokenizer"])
@pytest.mark.parametrize("pre_tokenizer", [DIGITS, SINGLE_DIGITS], ids=["two digits", "single digits"])
def test_a_class_that_rebuilds_the_tokenizer_does_not_change_its_ids(tmp_path, named, pre_tokenizer):
    stored = write_tokenizer(tmp_path / "model", pre_tokenizer, named, eos_token="<|endoftext|>", pad_token="<pad>")
    loaded = load_tokenizer(str(tmp_path / "model"))
    assert loaded(TEXT)["input_ids"] == stored.encode(TEXT).ids
    assert (loaded.eos_token, loaded.pad_token) == ("<|endoftext|>", "<pad>")
    assert loaded.chat_template
    loaded.save_pretrained(tmp_path / "again")
    again = load_tokenizer(str(tmp_path / "again"))
    assert again(TEXT)["input_ids"] == stored.encode(TEXT).ids


def test_the_rebuilt_tokenizer_is_named_in_a_warning(tmp_path, caplog):
    write_tokenizer(tmp_path, DIGITS, "GPT2Tokenizer", eos_token="<|endoftext|>")
    with caplog.at_level(logging.WARNING):
        load_tokenizer(str(tmp_path))
    (message,) = [record.getMessage() for record in caplog.records if record.name.startswith("atwu")]
    assert "GPT2Tokenizer" in message
    assert "tokenizer.json" in message


def test_a_default_of_the_class_stays_a_special_token(tmp_path):
    write_tokenizer(tmp_path, DIGITS, "GPT2Tokenizer")
    assert load_tokenizer(str(tmp_path)).eos_token == "<|endoftext|>"


def test_a_tokenizer_that_agrees_with_its_file_keeps_its_class_without_a_warning(tmp_path, caplog):
    write_tokenizer(
        tmp_path, pre_tokenizers.ByteLevel(add_prefix_space=False), "GPT2Tokenizer", eos_token="<|endoftext|>"
    )
    with caplog.at_level(logging.WARNING):
        loaded = load_tokenizer(str(tmp_path))
    assert type(loaded).__name__ == "GPT2Tokenizer"
    assert not [record for record in caplog.records if record.name.startswith("atwu")]


def test_a_normalizer_that_the_file_has_and_the_class_drops_is_a_difference(tmp_path):
    folder = write_micro(tmp_path / "model")
    changed = Tokenizer.from_file(str(folder / "tokenizer.json"))
    changed.normalizer = normalizers.Lowercase()
    loaded = load_tokenizer(str(folder))
    assert difference_from_file(loaded, folder / "tokenizer.json") is None
    changed.save(str(tmp_path / "changed.json"))
    assert difference_from_file(loaded, tmp_path / "changed.json") is not None


def test_a_tokenizer_that_differs_from_its_file_without_a_class_is_refused(tmp_path, monkeypatch):
    folder = write_micro(tmp_path / "model")
    other = write_micro(tmp_path / "other", ["quite 123 another text of 4567 words"])
    shutil.copy(other / "tokenizer.json", tmp_path / "other.json")
    monkeypatch.setattr(
        "atwu.modeling.tokenizer_file.tokenizer_file", lambda source, revision=None: tmp_path / "other.json"
    )
    with pytest.raises(ModelFileError, match=r"another tokenizer than tokenizer\.json describes"):
        load_tokenizer(str(folder))


def test_a_trainer_warns_of_a_rebuilt_tokenizer_that_it_was_given(tmp_path, caplog):
    from transformers import AutoTokenizer

    write_tokenizer(tmp_path, DIGITS, "GPT2Tokenizer", eos_token="<|endoftext|>")
    given = AutoTokenizer.from_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        warn_of_rebuilt(given)
    assert "GPT2Tokenizer does not encode as" in caplog.text
    caplog.clear()
    warn_of_rebuilt(load_tokenizer(str(tmp_path)))
    assert not [record for record in caplog.records if "does not encode as" in record.getMessage()][1:]
