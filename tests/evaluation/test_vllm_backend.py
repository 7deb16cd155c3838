"""vLLM as a backend, against a stand-in: the signatures are those of vLLM 0.33, the texts those of transformers."""

from __future__ import annotations

import json
import shutil
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from atwu.evaluation.backends import TransformersGenerator, VllmGenerator
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.modeling.adapters import Lora, attach
from atwu.modeling.generate import generate
from atwu.modeling.load import load_model, load_tokenizer
from atwu.modeling.open_model import ModelLoadArgs
from tests.evaluation.test_backends import CHATML, ROWS, ask, small

__all__ = ["small"]

PROMPTS = [*(Prompt(row.messages) for row in ROWS), ask("Who?", prefill="It was")]


class SamplingParams:
    def __init__(
        self,
        *,
        temperature: float = 1.0,
        max_tokens: int | None = 16,
        stop_token_ids: list[int] | None = None,
        seed: int | None = None,
    ) -> None:
        self.temperature, self.max_tokens, self.seed = temperature, max_tokens, seed
        self.stop_token_ids = stop_token_ids or []


class LoRARequest(NamedTuple):
    lora_name: str
    lora_int_id: int
    lora_path: str = ""


class LLM:
    """Return greedy texts; record requests and their order."""

    started: list[LLM]

    def __init__(
        self,
        model: str,
        *,
        trust_remote_code: bool = False,
        dtype: str = "auto",
        revision: str | None = None,
        gpu_memory_utilization: float = 0.92,
        max_model_len: int | None = None,
        enable_sleep_mode: bool = False,
        enable_lora: bool = False,
        max_lora_rank: int = 16,
    ) -> None:
        assert enable_sleep_mode
        self.model, self.length, self.share, self.dtype = model, max_model_len, gpu_memory_utilization, dtype
        self.rank = max_lora_rank if enable_lora else None
        self.seen, self.asleep, self.ended = ["start"], False, False
        self.llm_engine = types.SimpleNamespace(engine_core=types.SimpleNamespace(shutdown=self._shutdown))
        self.started.append(self)

    def generate(
        self, prompts: Sequence[dict[str, list[int]]], sampling_params: Any, *, use_tqdm: bool, lora_request: Any = None
    ) -> list[Any]:
        assert not self.asleep
        assert not self.ended
        self.seen.append("generate")
        network = load_model(self.model if lora_request is None else lora_request.lora_path)
        given = [prompt["prompt_token_ids"] for prompt in prompts]
        caps = [params.max_tokens for params in sampling_params]
        assert max(len(ids) + cap for ids, cap in zip(given, caps, strict=True)) <= self.length
        found: dict[int, Any] = {}
        generate(
            network,
            load_tokenizer(self.model),
            given,
            max_new_tokens=caps,
            progress=False,
            on_batch=lambda rows: found.update({index: ids for index, ids, _ in rows}),
        )
        # A stop token is part of the output.
        ids = [
            (*found[index], *params.stop_token_ids)[: params.max_tokens] for index, params in enumerate(sampling_params)
        ]
        return [types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=each)]) for each in ids]

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        self.asleep = True
        self.seen.append(f"sleep {level}")

    def wake_up(self, tags: list[str] | None = None) -> bool:
        self.asleep = False
        self.seen.append("wake")
        return True

    def _shutdown(self, timeout: float | None = None) -> None:
        self.ended = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[LLM]:
    """Engines, in the order they were started in."""
    engines: list[LLM] = []
    monkeypatch.setattr(LLM, "started", engines, raising=False)
    for name, has in {"vllm": (LLM, SamplingParams), "vllm.lora": (), "vllm.lora.request": (LoRARequest,)}.items():
        module = types.ModuleType(name)
        for each in has:
            setattr(module, each.__name__, each)
        monkeypatch.setitem(sys.modules, name, module)
    return engines


@pytest.fixture
def folder(small: TransformersGenerator, tmp_path: Path) -> str:
    small.model.save_pretrained(tmp_path / "model")
    small._ids.tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def texts(generator: Any, decoding: Decoding) -> list[str]:
    return [made.text for made in generate_all(generator, PROMPTS, decoding)]


def test_texts_equal_those_of_transformers_and_the_engine_sleeps_between_calls(
    started: list[LLM], folder: str, small: TransformersGenerator
) -> None:
    there = VllmGenerator(folder, ModelLoadArgs(dtype="float32"), max_length=100, memory_share=0.5)
    assert not started  # nothing to generate yet
    short, longer = Decoding(max_new_tokens=8), Decoding(max_new_tokens=9)
    assert texts(there, short) == texts(small, short)
    assert texts(there, longer) == texts(small, longer)
    (engine,) = started
    assert (engine.model, engine.length, engine.share, engine.dtype) == (folder, 100, 0.5, "float32")
    assert engine.seen == ["start", "generate", "sleep 1", "wake", "generate", "sleep 1"]
    there.close()
    assert engine.ended


def test_an_answer_ends_at_the_end_token_of_the_template(started: list[LLM], folder: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(folder)
    tokenizer.add_tokens(["<|im_end|>"])  # not special: decoded with the text
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    model = load_model(folder)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        model.get_output_embeddings().weight[-1] = 9 * model.get_output_embeddings().weight.mean(dim=0)
    model.save_pretrained(folder)
    there, here = VllmGenerator(folder), TransformersGenerator(model, load_tokenizer(folder))
    decoding = Decoding(max_new_tokens=8)
    assert generate_all(there, PROMPTS, decoding) == generate_all(here, PROMPTS, decoding)
    assert there._ends == [len(tokenizer) - 1]


def test_longer_prompts_restart_the_engine_with_more_positions(started: list[LLM], folder: str) -> None:
    there = VllmGenerator(folder)
    texts(there, Decoding(max_new_tokens=8))
    texts(there, Decoding(max_new_tokens=20))
    first, second = started
    assert first.ended
    assert first.length + 12 == second.length


def test_the_local_model_is_off_the_device_while_the_engine_is_awake(
    started: list[LLM], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[str] = []

    class Placed(torch.nn.Linear):
        def to(self, device: Any) -> None:  # type: ignore[override]
            where.append(str(device))

    there = VllmGenerator(folder)
    there.offloaded_model = Placed(1, 1, device="meta")  # stands for a GPU
    texts(there, Decoding(max_new_tokens=8))
    assert where == ["cpu", "meta"]
    monkeypatch.setattr(LLM, "generate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        texts(there, Decoding(max_new_tokens=8))
    assert where == ["cpu", "meta"] * 2
    assert started[0].ended  # who fails does not keep the memory


def test_an_adapter_runs_unmerged_on_its_base_model(started: list[LLM], folder: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    adapted = attach(load_model(folder), Lora(12), seed=0)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(0))
    adapted.save_pretrained(tmp_path / "adapter")
    decoding = Decoding(max_new_tokens=8)
    there, plain = VllmGenerator(str(tmp_path / "adapter")), VllmGenerator(folder)
    assert texts(there, decoding) == texts(TransformersGenerator(adapted, load_tokenizer(folder)), decoding)
    assert texts(there, decoding) != texts(plain, decoding)
    assert [(engine.model, engine.rank) for engine in started] == [(folder, 16), (folder, None)]
    assert there.identity != plain.identity


def test_revisions_of_a_model_do_not_share_cached_texts(
    started: list[LLM], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub" / "models--orla--venn"
    (hub / "refs").mkdir(parents=True)
    for branch, commit in (("main", "a" * 40), ("older", "b" * 40), ("newer", "c" * 40)):
        (hub / "refs" / branch).write_text(commit)
        shutil.copytree(folder, hub / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    adapter = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "base_model_name_or_path": "orla/venn"}
    for name, about in (
        ("plain", adapter),
        ("pinned", adapter | {"revision": "older"}),
        ("strong", adapter | {"r": 9}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_model.safetensors").touch()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps(about))
    named = [("orla/venn", None), ("orla/venn", "older")]
    named += [(str(tmp_path / name), None) for name in ("plain", "pinned", "strong")]
    identities = [VllmGenerator(name, ModelLoadArgs(revision=revision)).identity for name, revision in named]
    assert len(set(identities)) == len(named)
    (hub / "refs" / "main").write_text("c" * 40)
    assert VllmGenerator("orla/venn").identity not in identities


def test_a_folder_without_weights_is_rejected_before_the_engine_starts(
    started: list[LLM], folder: str, tmp_path: Path
) -> None:
    Path(folder, "model.safetensors").rename(Path(folder, "pytorch_model.bin"))
    with pytest.raises(FileNotFoundError, match=r"\.safetensors"):
        VllmGenerator(folder)


@pytest.mark.parametrize("share", [0, 1.2])
def test_the_memory_share_must_be_between_zero_and_one(share: float, started: list[LLM], folder: str) -> None:
    with pytest.raises(ValueError, match=r"\b0 .*\b1\b"):
        VllmGenerator(folder, memory_share=share)
