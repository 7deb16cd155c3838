"""Damaged model, adapter and scorer folders and GGUF files: read as if whole, or one line names the file.

The line is an error, or a warning where a field may be missing by right.

The line also has to come quickly: transformers would create 10^9 layers, and Jinja run a loop in a loop, for hours.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest

from atwu.cli.app import EXPECTED, in_a_line
from atwu.errors import ModelFileError
from atwu.modeling import named_models
from atwu.modeling.model_files import check_files
from tests.damaged_files.model_damages import Damage, every_damage
from tests.damaged_files.whole_folders import read_folder, write_whole

DAMAGES = every_damage()
SHARE = 9
"""One damage in this many is tried by day; all kinds of files and of damages are among them."""
Try = Callable[[Damage], str]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Try]:
    """Damages a folder, reads it, and returns what is wrong with the outcome, or an empty text."""
    root = tmp_path_factory.mktemp("folders")
    write_whole(root)
    folder = root / "damaged"

    def read(path: Path, of: str) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATWU_CACHE", str(root / "cache"))
            patch.setenv("HF_HUB_OFFLINE", "1")
            named_models._gguf.cache_clear()
            return read_folder(path, of)

    whole = {of: read(root / of, of) for of in ("model", "adapter", "scorer", "gguf")}

    warned = BufferingHandler(1000)
    logger = logging.getLogger("atwu.modeling.model_checks")
    logger.addHandler(warned)

    def attempt(damage: Damage) -> str:
        warned.flush()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(root / damage.of, folder)
        damage.do(folder)
        try:
            found = read(folder, damage.of)
        except EXPECTED as error:
            line = in_a_line(error)
            named = re.search(rf"(?<!\w){re.escape(damage.file)}", line) or (damage.also and damage.also in line)
            return "" if named and damage.names in line else f"does not name the file: {line}"
        except Exception as error:
            return f"ends in a traceback: {error!r}"
        warning = any(damage.file in record.getMessage() for record in warned.buffer)
        return "" if found == whole[damage.of] or warning else "is read silently, with another result"

    yield attempt
    logger.removeHandler(warned)


def test_the_damages_are_many_and_of_all_kinds() -> None:
    assert len(DAMAGES) > 500
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES)
    by_day = DAMAGES[::SHARE]
    assert {damage.of for damage in by_day} == {"model", "adapter", "scorer", "gguf"}
    assert {damage.file for damage in by_day} >= {damage.file for damage in DAMAGES if "shard" not in damage.how}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("damage", DAMAGES[::SHARE], ids=lambda damage: damage.name)
def test_damages_are_rejected_by_name_or_change_nothing(outcome: Try, damage: Damage) -> None:
    assert outcome(damage) == ""


@pytest.mark.night
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_damage_is_rejected_by_name_or_changes_nothing(outcome: Try) -> None:
    wrong = {damage.name: said for damage in DAMAGES if (said := outcome(damage))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sliding_window": -1}, "sliding_window is -1, expected at least 1"),
        ({"sliding_window": None, "layer_types": ["sliding_attention"]}, "sliding_window is None"),
        ({"text_config": {"query_pre_attn_scalar": -1}}, "query_pre_attn_scalar is -1"),
        ({"num_experts_per_tok": 9, "num_experts": 8}, "num_experts_per_tok is 9, expected 1 to 8"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0, expected 0 to 1"),
        ({"text_config": {"layer_norm_epsilon": 3}}, "layer_norm_epsilon is 3, expected 0 to 1"),
    ],
)
def test_numbers_that_fail_at_the_first_row_are_rejected(
    settings: dict[str, object], said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelFileError, match=rf"config\.json: {said}.*; restore the file"):
        check_files(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"sliding_window": None},
        {"sliding_window": 0, "use_sliding_window": False},
        {"num_experts_per_tok": 0, "num_local_experts": 0},
        {"num_experts_per_tok": 8, "num_experts": 8, "sliding_window": 4},
    ],
)
def test_numbers_that_are_not_used_may_have_any_value(settings: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(settings))
    check_files(tmp_path)
