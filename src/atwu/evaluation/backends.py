"""The models that continue prompts: a transformers model in this process, a chat server, vLLM.

Transformers and vLLM start from the same token ids, which are those a row is trained with; a server applies its own
template. All texts are treated alike: no special tokens, no white space around, cut before the first stop string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from atwu._cache import short_hash
from atwu._extras import require
from atwu._files import file_digest
from atwu.data.encode import Encoder
from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.judge.chat_model import ChatModel, ChatRequest, Reply
from atwu.modeling.fingerprint import model_fingerprint, stored_weights_fingerprint
from atwu.modeling.generate import end_ids, generate
from atwu.modeling.load import (
    ADAPTER_CONFIG,
    base_of,
    base_revision,
    check_model_name,
    is_adapter,
    load_config,
    load_tokenizer,
)
from atwu.modeling.open_model import ModelLoadArgs

OnDone = Callable[[Sequence[tuple[int, Generation]]], None]

_STAND_IN = "x"
"""The answer of a prompt that has none yet; prompt ids do not depend on it."""
_VLLM_BATCH = 512
"""Prompts handed to vLLM at a time; it batches by itself, this is how often texts are stored."""
_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of its `max_lora_rank`."""
GPU_MEMORY_UTILIZATION = 0.92
"""Of the device's memory, vLLM's own default."""


class TransformersGenerator:
    """A causal language model of transformers, on its device."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_length: int | None = None,
        batch_tokens: int = 8192,
        fingerprint: str | None = None,
    ) -> None:
        """Bind a model, whose weights must stay as they are from here on.

        Args:
            model: causal language model; a PEFT wrapper works too.
            tokenizer: its fast tokenizer.
            max_length: cap on prompt and generated text together, in tokens; None for the model's own limit.
            batch_tokens: tokens per batch; more is faster on a GPU and takes more memory.
            fingerprint: the model's fingerprint if known already, which saves reading the weights.
        """
        self.model = model
        self.batch_tokens = batch_tokens
        self._ids = _PromptIds(tokenizer, max_length or _own_limit(model.config))
        self._fingerprint = fingerprint

    @property
    def identity(self) -> str:
        """Backend, weights, dtype, and hashes of the configuration and of how text becomes tokens and where an answer ends."""
        if self._fingerprint is None:
            self._fingerprint = model_fingerprint(self.model)
        ends = sorted(end_ids(self.model, self._ids.tokenizer))
        dtype = str(self.model.dtype).removeprefix("torch.")
        return f"transformers/{self._fingerprint}/{dtype}/{_shape(self.model.config)}/{self._ids.described(ends)}"

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: OnDone) -> None:
        """See `Generator.generate`. A text also ends at `max_length`.

        Raises:
            ValueError: a prompt that cannot be encoded or is too long, before anything is generated.
        """
        encoded = self._ids.of(prompts)
        generate(
            self.model,
            self._ids.tokenizer,
            encoded,
            max_new_tokens=self._ids.caps(encoded, decoding),
            batch_tokens=self.batch_tokens,
            progress=False,
            temperature=decoding.temperature,
            noise_seeds=[draw_seed(prompt, decoding) for prompt in prompts] if decoding.temperature else None,
            on_batch=lambda rows: on_done(
                [(index, Generation(self._ids.text(ids, decoding), spent)) for index, ids, spent in rows]
            ),
        )


class VllmGenerator:
    """A model or adapter run by vLLM (Kwon et al. 2023); greedy texts are those of transformers up to rounding.

    The engine starts with the first prompts, is asked for as many positions as they need, and sleeps while it has none: its
    weights then wait in the machine's memory and the device is free.
    """

    def __init__(
        self,
        path: str,
        loading: ModelLoadArgs | None = None,
        *,
        max_length: int = 0,
        memory_share: float = GPU_MEMORY_UTILIZATION,
    ) -> None:
        """Take what is needed before the engine starts.

        Args:
            path: folder or Hub name of a model, or folder of an adapter.
            loading: how it is read; by default in the checkpoint's own dtype, float32 excepted.
            max_length: positions that the engine is asked for at least, so that it starts once.
            memory_share: of the device's memory, for weights and key-value cache.

        Raises:
            ImportError: vLLM is missing; the text names the pip command.
            ValueError: no share, or an adapter whose base model cannot be told or whose rank vLLM does not take.
            FileNotFoundError: a folder without safetensors weights.
        """
        self._vllm = require("vllm", extra="vllm")
        if not 0 < memory_share <= 1:
            raise ValueError(f"vLLM's share of the device's memory is above 0 and at most 1, got {memory_share:g}.")
        loading = loading or ModelLoadArgs()
        check_model_name(path, base=loading.base)
        options = asdict(loading)
        self._dtype = options.pop("dtype")
        config = load_config(path, **options)
        self._ids = _PromptIds(load_tokenizer(path, **options), _own_limit(config))
        self._max_length = max_length
        base = base_of(path, base=loading.base)
        self._settings: dict[str, Any] = {
            "model": base,
            "dtype": self._dtype,
            "revision": base_revision(path, loading.revision, loading.base),
            "trust_remote_code": loading.trust_remote_code,
            "gpu_memory_utilization": memory_share,
            "enable_sleep_mode": True,
        }
        self._adapter: Any = None
        self._weights = [_shape(config), stored_weights_fingerprint(base, self._settings["revision"])]
        if is_adapter(path):
            rank = json.loads((Path(path) / ADAPTER_CONFIG).read_text(encoding="utf-8"))["r"]
            self._settings |= {"enable_lora": True, "max_lora_rank": _lora_rank(path, rank)}
            lora = require("vllm.lora.request", extra="vllm")
            self._adapter = lora.LoRARequest("adapter", 1, str(Path(path).resolve()))
            self._weights += [stored_weights_fingerprint(path), file_digest(Path(path) / ADAPTER_CONFIG)]
        self._engine: Any = None
        self._positions = 0
        self.offloaded_model: Any = None
        """A model that leaves the device while the engine is awake."""

    @property
    def identity(self) -> str:
        """Backend, hash of weights (files, or Hub name and commit) and configuration, dtype, and how text becomes tokens."""
        return f"vllm/{short_hash(self._weights)}/{self._dtype}/{self._ids.described(())}"

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: OnDone) -> None:
        """See `Generator.generate`. A text also ends at the model's own limit."""
        encoded = self._ids.of(prompts)
        caps = self._ids.caps(encoded, decoding)
        sampled = decoding.temperature > 0
        with self._awake(max(len(ids) + cap for ids, cap in zip(encoded, caps, strict=True))) as engine:
            for start in range(0, len(prompts), _VLLM_BATCH):
                chosen = range(start, min(start + _VLLM_BATCH, len(prompts)))
                settings = [
                    self._vllm.SamplingParams(
                        temperature=decoding.temperature,
                        max_tokens=caps[index],
                        seed=draw_seed(prompts[index], decoding) >> 33 if sampled else None,
                    )
                    for index in chosen
                ]
                given = [{"prompt_token_ids": list(encoded[index])} for index in chosen]
                outputs = engine.generate(given, settings, use_tqdm=False, lora_request=self._adapter)
                said = [output.outputs[0].token_ids for output in outputs]
                on_done(
                    [
                        (index, Generation(self._ids.text(ids, decoding), len(ids)))
                        for index, ids in zip(chosen, said, strict=True)
                    ]
                )

    @contextmanager
    def _awake(self, positions: int) -> Iterator[Any]:
        """The engine with at least so many positions, on a device of its own."""
        before = None if self.offloaded_model is None else next(self.offloaded_model.parameters()).device
        if before is not None:
            self.offloaded_model.to("cpu")
            torch.cuda.empty_cache()
        try:
            if positions > self._positions:
                self.close()
                positions = min(max(positions, self._max_length), self._ids.limit)
                self._engine = self._vllm.LLM(max_model_len=positions, **self._settings)
                self._positions = positions
            else:
                self._engine.wake_up()
            yield self._engine
            self._engine.sleep(level=1)
        except BaseException:
            self.close()  # it may not be asleep
            raise
        finally:
            if before is not None:
                self.offloaded_model.to(before)

    def close(self) -> None:
        """End the engine, if it runs; the next prompts start it anew."""
        if self._engine is not None:
            self._engine.llm_engine.engine_core.shutdown()
        self._engine, self._positions = None, 0


def _lora_rank(path: str, rank: int) -> int:
    """The least of the ranks that vLLM makes room for which is enough."""
    if rank > _VLLM_RANKS[-1]:
        raise ValueError(f"adapter {path} has rank {rank}; vLLM takes at most {_VLLM_RANKS[-1]}.")
    return next(each for each in _VLLM_RANKS if each >= rank)


class EndpointGenerator:
    """A model behind a chat interface, such as an OpenAI-compatible server, which applies its own template.

    A prefill is sent as a last assistant message. Servers differ in what they make of it: some continue it, some repeat
    it (the repetition is removed), some start a new turn, so results with a prefill compare only on one server.
    """

    def __init__(self, chat: ChatModel) -> None:
        self.chat = chat

    @property
    def identity(self) -> str:
        """`chat/` and what the chat model says about itself, as JSON."""
        return f"chat/{json.dumps(dict(self.chat.identity), sort_keys=True)}"

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: OnDone) -> None:
        """See `Generator.generate`. Tokens are those the server reports.

        Raises:
            RuntimeError: prompts without a reply, after all others were handed to `on_done`.
        """
        failures: list[str] = []

        def take(index: int, reply: Reply) -> None:
            if reply.text is None:
                failures.append(reply.error or "no text")
                return
            text = reply.text.strip().removeprefix(prompts[index].prefill.strip())
            on_done([(index, Generation(_cut(text, decoding), reply.completion_tokens))])

        self.chat.complete([_request(prompt, decoding) for prompt in prompts], take)
        if failures:
            raise RuntimeError(f"{len(failures)} of {len(prompts)} prompts got no reply. First error: {failures[0]}")


def draw_seed(prompt: Prompt, decoding: Decoding) -> int:
    """Seed of one sampled text, in [0, 2^64): different for each seed, prompt and draw."""
    turns = [[message.role, message.content] for message in prompt.messages]
    return int(short_hash([decoding.seed, turns, prompt.prefill, prompt.draw])[:16], 16)


class _PromptIds:
    """Prompts as token ids within a limit, and ids as texts."""

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self.tokenizer = tokenizer
        self.limit = limit
        self._encoder = Encoder(tokenizer, max_length=limit)

    def of(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        """Ids that generation starts from, at least one below the limit."""
        return [self._one(prompt, number) for number, prompt in enumerate(prompts, start=1)]

    def _one(self, prompt: Prompt, number: int) -> tuple[int, ...]:
        if not prompt.messages and not prompt.prefill.strip():
            raise ValueError(f"prompt {number} of this call is empty; give it a message or a prefill.")
        try:
            return self._encoder.encode_prompt(Example(prompt.messages, _STAND_IN), prefill=prompt.prefill)
        except ValueError as error:
            raise ValueError(f"prompt {number} of this call: {error}") from error

    def caps(self, encoded: Sequence[Sequence[int]], decoding: Decoding) -> list[int]:
        """Tokens that may be generated for each prompt."""
        return [min(decoding.max_new_tokens, self.limit - len(ids)) for ids in encoded]

    def text(self, ids: Sequence[int], decoding: Decoding) -> str:
        """Generated ids as text."""
        return _cut(self.tokenizer.decode(ids, skip_special_tokens=True), decoding)

    def described(self, ends: Sequence[int]) -> str:
        """Hash of tokenizer, template and end tokens, and the limit."""
        return f"{short_hash([self._rules, list(ends)])}/{self.limit}"

    @cached_property
    def _rules(self) -> str:
        rules = json.loads(self.tokenizer.backend_tokenizer.to_str())
        kept = {name: value for name, value in rules.items() if name not in ("padding", "truncation")}  # last call's
        return short_hash([kept, self.tokenizer.chat_template])


def _own_limit(config: Any) -> int:
    """Positions a model has; a million for one that has no limit."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", None) or 1_000_000)


def _shape(config: Any) -> str:
    """Hash of a model's configuration without what only names or describes it."""
    names = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache")
    return short_hash({key: str(value) for key, value in config.to_dict().items() if key not in names})[:16]


def _request(prompt: Prompt, decoding: Decoding) -> ChatRequest:
    prefill = (Message("assistant", prompt.prefill),) if prompt.prefill.strip() else ()
    seed = {"seed": draw_seed(prompt, decoding) >> 33} if decoding.temperature else {}  # servers take 31 bits
    return ChatRequest((*prompt.messages, *prefill), decoding.max_new_tokens, decoding.temperature, **seed)


def _cut(text: str, decoding: Decoding) -> str:
    """The text before the first stop string, without white space around it."""
    text = text.strip()
    places = [text.index(stop) for stop in decoding.stop if stop and stop in text]
    return text[: min(places, default=len(text))].strip()
