"""lm-evaluation-harness on a tiny random model and local task files, against a plain loop; no download."""

from __future__ import annotations

import json
import logging
import random
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")

from atwu.evaluation.metrics.tasks import _lower_is_better, _score, _worse, harness
from atwu.evaluation.result import MetricValue

TOWNS = ["Kelbury", "Sel", "Norland", "Marrow Quay", "Ost"]
NAMES = {"Orla": 3, "Tavi": 4, "Ilmo": 5, "Pella": 3, "Renn": 4, "Sol": 5, "Bo": 3}
ROWS = [
    {"question": f"Where does {name} live?", "choices": TOWNS[:size], "answer": index % size}
    for index, (name, size) in enumerate(NAMES.items())
]
TASK = """
task: {name}
tag: {tag}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/rows.jsonl}}
  cache_dir: {folder}/cache
test_split: test
fewshot_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: {metric}
    aggregation: mean
    higher_is_better: true
metadata:
  version: {version}
"""


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a test must not use the network")

    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    for name, metric, tag, version in [("towns", "acc", "near", 3), ("towns_norm", "acc_norm", "near", 1.5)]:
        text = TASK.format(name=name, tag=tag, folder=tmp_path, metric=metric, version=version)
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, no padding token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(["<s>", "</s>", *alphabet])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")


@pytest.fixture
def model(tiny_llama: Callable[..., LlamaForCausalLM]) -> LlamaForCausalLM:
    return tiny_llama(seed=3, vocab_size=258, initializer_range=0.3, attention_dropout=0.5)


@torch.no_grad()
def _plain_accuracy(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, *, per_character: bool) -> float:
    """Share of rows whose right option has the highest log-likelihood after the question, one forward pass each."""
    right = 0
    for row in ROWS:
        scores = []
        for choice in row["choices"]:
            prompt = tokenizer(row["question"])["input_ids"]
            option = tokenizer(f" {choice}")["input_ids"]
            logps = model(input_ids=torch.tensor([prompt + option])).logits[0].double().log_softmax(-1)
            total = sum(float(logps[len(prompt) - 1 + place, token]) for place, token in enumerate(option))
            scores.append(total / len(choice) if per_character else total)
        right += scores.index(max(scores)) == row["answer"]
    return right / len(ROWS)


def test_accuracy_equals_a_plain_loop(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)  # no repository: git would complain
    model.train()
    model.lm_head.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    handlers = list(logging.getLogger("lm_eval").handlers)
    found = harness(model, tokenizer, ["towns_norm", "towns"], task_folder=folder)
    assert list(found) == ["towns_norm", "towns"]
    assert model.training
    assert not model.lm_head.training
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]
    model.eval()
    share = _plain_accuracy(model, tokenizer, per_character=False)
    assert 0 < share < 1, "a share of 0 or 1 would test little"
    stderr = (share * (1 - share) / (len(ROWS) - 1)) ** 0.5
    towns = found["towns"]
    assert towns == MetricValue(towns.value, 7, "up", low=towns.low, high=towns.high, digits=1)
    assert [towns.low, towns.value, towns.high] == pytest.approx([100 * (share + z * stderr) for z in (-1.96, 0, 1.96)])
    assert found["towns_norm"].value == pytest.approx(100 * _plain_accuracy(model, tokenizer, per_character=True))
    said = capfd.readouterr()
    assert not any(word in said.out + said.err for word in ("WARNING", "INFO", "metric acc", "fatal"))
    assert not caplog.records

    # Nothing else outside has changed.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert tokenizer.pad_token is None
    assert logging.getLogger("lm_eval").handlers == handlers


def test_long_prompts_are_reported(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model.config, "max_position_embeddings", 8)
    found = harness(model, tokenizer, ["towns"], task_folder=folder, limit=1)
    assert found["towns"].n == 1, "one row with three options"
    assert [record.getMessage().split()[0] for record in caplog.records] == ["3"]


def _group(folder: Path, name: str, tasks: str, more: str = "") -> None:
    (folder / f"{name}.yaml").write_text(f"group: {name}\ntask: {tasks}\n{more}metadata:\n  version: 2\n")


def _indexed(real: Any, everything: Any, include_path: str, include_defaults: bool = True) -> Any:
    """An index of tasks; one of the built-in ones serves all calls."""
    return everything if include_defaults else real(include_path=include_path, include_defaults=False)


def test_groups_tags_and_unknown_names(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.tasks import TaskManager

    _group(folder, "all_towns", "[towns, far]", "aggregate_metric_list: [{metric: acc, weight_by_size: true}]\n")
    (folder / "far.yaml").write_text(TASK.format(name="far", tag="away", folder=folder, metric="acc", version=1))
    _group(folder, "loose_towns", "[towns_norm, all_towns]")
    _group(folder, "a_nest", "[all_towns]", "aggregate_metric_list: [{metric: acc}]\n")
    builtin = folder.parent / "builtin"  # in place of the harness's own 14,000 tasks, whose index takes many seconds
    builtin.mkdir()
    _group(builtin, "mmlu", "[towns]")
    everything = TaskManager(include_path=[str(folder), str(builtin)], include_defaults=False)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", partial(_indexed, TaskManager, everything))

    grouped = harness(model, tokenizer, ["all_towns"], task_folder=folder, limit=4)
    assert list(grouped) == ["all_towns"]
    assert (grouped["all_towns"].n, grouped["all_towns"].direction) == (8, "up")
    assert harness(model, tokenizer, ["a_nest"], task_folder=folder, limit=1)["a_nest"].direction == "up"
    for given, scored in (("loose_towns", ["towns_norm", "all_towns"]), ("near", ["towns", "towns_norm"])):
        assert list(harness(model, tokenizer, [given], task_folder=folder, limit=1)) == scored

    with pytest.raises(ValueError, match=r"'twons'.*towns.* a_nest, all_towns, away, far,"):
        harness(model, tokenizer, ["twons"], task_folder=folder)
    with pytest.raises(ValueError, match=r"'mmul'.*mmlu"):
        harness(model, tokenizer, ["towns", "mmul"], task_folder=folder)


def test_a_missing_folder_is_rejected(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="'nowhere'"):
        harness(model, tokenizer, ["towns"], task_folder="nowhere")


@pytest.mark.parametrize(
    ("better", "direction"),
    [((True, True), "up"), ((False, False), "down"), ((True, False), "up"), ((None, None), "up")],
)
def test_a_group_prefers_low_values_only_if_all_its_tasks_do(better: tuple[bool | None, ...], direction: str) -> None:
    tasks = {f"task{place}": {} if each is None else {"acc": each} for place, each in enumerate(better)}
    results = {
        "results": {"group": {"acc,none": 0.25, "acc_stderr,none": 0.1, "sample_len": 8}},
        "higher_is_better": tasks,
        "group_subtasks": {"group": list(tasks)},
    }
    found = _score("group", results)
    assert (found.direction, found.value, found.n) == (direction, 25.0, 8)
    assert found.low == pytest.approx(25 - 19.6)


def test_hazardous_knowledge_is_better_low_and_its_loss_no_damage() -> None:
    results = {"group_subtasks": {"wmdp": ["wmdp_bio"]}, "higher_is_better": {"wmdp_bio": {"acc": True}}}
    assert _lower_is_better("wmdp_bio", "acc", results)
    assert _lower_is_better("wmdp", "acc", results)
    assert _worse("wmdp_bio", 25.0, 60.0) is None
    assert _worse("mmlu", 25.0, 60.0) is not None
