"""Backends that generate text: a transformers model in this process, vLLM, and a chat server.

Transformers and vLLM use the token ids of training; a server applies its own chat template. All texts are
post-processed alike: no special tokens, no surrounding white space, cut before the first stop string.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from atwu._cache import short_hash
from atwu._extras import require
from atwu._file_reading import read_object
from atwu._files import file_digest
from atwu.data.encode import Encoder, template_terminal
from atwu.data.render import NEXT_TURN, without_next_turn
from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.judge.chat_model import ChatModel, ChatRequest, Reply
from atwu.modeling.generate import end_ids, generate
from atwu.modeling.load import (
    ADAPTER_CONFIG,
    base_of,
    base_revision,
    check_model_name,
    is_adapter,
    load_config,
    load_tokenizer,
    model_fingerprint,
    stored_weights_fingerprint,
)
from atwu.modeling.open_model import ModelLoadArgs

OnDone = Callable[[Sequence[tuple[int, Generation]]], None]

_VLLM_BATCH = 512
"""Prompts per vLLM call; vLLM batches by itself, so this only sets how often texts are stored."""
_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts as `max_lora_rank`."""
GPU_MEMORY_UTILIZATION = 0.92
"""Share of GPU memory; vLLM's own default."""


class TransformersGenerator:
    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        batch_tokens: int = 16384,
        fingerprint: str | None = None,
    ) -> None:
        """Bind a model, whose weights must not change afterwards.

        Args:
            model: Causal language model; a PEFT wrapper works too.
            batch_tokens: Tokens per batch; more is faster on a GPU and needs more memory.
            fingerprint: Fingerprint of the model, if known; avoids reading the weights.
        """
        self.model, self.tokenizer = model, tokenizer
        self.batch_tokens = batch_tokens
        self._ids = _PromptIds(tokenizer, model.config)
        self._fingerprint = fingerprint

    @property
    def identity(self) -> str:
        """Backend, weights, dtype, and hashes of configuration, tokenization and end tokens.

        The dtype is that of the moment: in bfloat16 a model gives other answers.
        """
        if self._fingerprint is None:
            self._fingerprint = model_fingerprint(self.model)
        ends = sorted(end_ids(self.model, self.tokenizer))
        dtype = str(self.model.dtype).removeprefix("torch.")
        return f"transformers/{self._fingerprint}/{dtype}/{_shape(self.model.config)}/{self._ids.describe(ends)}"

    @property
    def positions(self) -> int:
        """Longest text in tokens."""
        return self._ids.limit

    def too_long(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Return of each prompt why the model cannot read it; None where it can."""
        return [self._ids.too_long(prompt) for prompt in prompts]

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: OnDone) -> None:
        """See `Generator.generate`. A text also ends at the model's own limit."""
        encoded = self._ids.of(prompts)
        noise_seeds = None
        if decoding.temperature:
            noise_seeds = [draw_seed(prompt, decoding) for prompt in prompts]
        generate(
            self.model,
            self.tokenizer,
            encoded,
            max_new_tokens=self._ids.caps(encoded, decoding),
            batch_tokens=self.batch_tokens,
            progress=False,
            temperature=decoding.temperature,
            noise_seeds=noise_seeds,
            on_batch=lambda rows: on_done(
                [(index, self._ids.generation(ids, spent, decoding)) for index, ids, spent in rows]
            ),
        )


class VllmGenerator:
    """Generate with a model or adapter run by vLLM (Kwon et al. 2023).

    Greedy texts equal those of transformers up to numerical rounding. The engine starts with the first prompts,
    reserves as many positions as they need, and sleeps between calls: its weights are then in CPU memory and the GPU is
    free.
    """

    def __init__(
        self,
        path: str,
        loading: ModelLoadArgs | None = None,
        *,
        max_length: int = 0,
        memory_share: float = GPU_MEMORY_UTILIZATION,
    ) -> None:
        """Prepare the engine without starting it.

        Args:
            path: Folder or Hub name of a model, or folder of an adapter.
            loading: How the checkpoint is loaded; by default in its own dtype, float32 excepted.
            max_length: Minimum number of positions to reserve, so that the engine starts only once.
            memory_share: Share of GPU memory for weights and key-value cache, in (0, 1].
        """
        self._vllm = require("vllm", extra="vllm")
        if not 0 < memory_share <= 1:
            raise ValueError(f"vLLM's gpu_memory_utilization must be above 0 and at most 1, got {memory_share:g}.")
        loading = loading or ModelLoadArgs()
        check_model_name(path, base=loading.base, revision=loading.revision)
        self._dtype = loading.dtype
        config = load_config(path, **loading.load_kwargs)
        tokenizer = load_tokenizer(path, **loading.tokenizer_kwargs)
        self._ids = _PromptIds(tokenizer, config)
        self._ends: list[int] = []
        """Besides those that vLLM knows, of tokenizer and generation config."""
        terminal = template_terminal(tokenizer)
        if terminal is not None:
            self._ends.append(terminal)
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
            rank = read_object(Path(path) / ADAPTER_CONFIG)["r"]
            if rank > _VLLM_RANKS[-1]:
                raise ValueError(f"adapter {path} has rank {rank}; vLLM supports at most {_VLLM_RANKS[-1]}.")
            # The smallest one that holds the adapter, since memory grows with it.
            accepted = next(allowed for allowed in _VLLM_RANKS if allowed >= rank)
            self._settings |= {"enable_lora": True, "max_lora_rank": accepted}
            lora = require("vllm.lora.request", extra="vllm")
            self._adapter = lora.LoRARequest("adapter", 1, str(Path(path).resolve()))
            self._weights += [stored_weights_fingerprint(path), file_digest(Path(path) / ADAPTER_CONFIG)]
        self._engine: Any = None
        self._positions = 0
        self.offloaded_model: Any = None
        """A model that is moved to the CPU while the engine is awake."""

    @property
    def identity(self) -> str:
        """Backend, hash of weights (files, or Hub name and commit) and configuration, dtype, and tokenization."""
        return f"vllm/{short_hash(self._weights)}/{self._dtype}/{self._ids.describe(self._ends)}"

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
                        stop_token_ids=self._ends,
                        seed=draw_seed(prompts[index], decoding) >> 33 if sampled else None,
                    )
                    for index in chosen
                ]
                inputs = [{"prompt_token_ids": list(encoded[index])} for index in chosen]
                outputs = engine.generate(inputs, settings, use_tqdm=False, lora_request=self._adapter)
                generated = [output.outputs[0].token_ids for output in outputs]
                # vLLM returns the end token, too.
                texts = [list(itertools.takewhile(lambda token: token not in self._ends, ids)) for ids in generated]
                on_done(
                    [
                        (index, self._ids.generation(text, len(ids), decoding))
                        for index, text, ids in zip(chosen, texts, generated, strict=True)
                    ]
                )

    @contextmanager
    def _awake(self, positions: int) -> Iterator[Any]:
        """Wake or start the engine with at least this many positions, and free the GPU for it."""
        before = None
        if self.offloaded_model is not None:
            before = next(self.offloaded_model.parameters()).device
            self.offloaded_model.to("cpu")
            torch.cuda.empty_cache()
        try:
            # The number of positions is fixed when an engine starts, so longer prompts need another one.
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
        """Shut the engine down, if it runs; the next prompts start it again."""
        if self._engine is not None:
            self._engine.llm_engine.engine_core.shutdown()
        self._engine, self._positions = None, 0


class EndpointGenerator:
    """Generate with a chat model, such as an OpenAI-compatible server, which applies its own template.

    A prefill is sent as the last assistant message. Servers continue it, repeat it (the repetition is removed) or start
    a new turn, so results with a prefill are comparable only on the same server.
    """

    def __init__(self, chat: ChatModel) -> None:
        self.chat = chat

    @property
    def identity(self) -> str:
        return f"chat/{json.dumps(dict(self.chat.identity), sort_keys=True)}"

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: OnDone) -> None:
        """See `Generator.generate`. Token counts are those the server reports; a prompt without a reply gets its error."""

        def on_reply(index: int, reply: Reply) -> None:
            if reply.text is None or not reply.text.strip() or reply.filtered:
                cause = "the reply is empty"
                if reply.filtered:
                    cause = "the server's content filter cut the answer off"
                on_done([(index, Generation("", reply.completion_tokens, reply.error or cause))])
                return
            # Some servers repeat the prefill, which is the prompt's.
            text = reply.text.strip().removeprefix(prompts[index].prefill.strip())
            on_done([(index, Generation(_cut(text, decoding), reply.completion_tokens))])

        def request(prompt: Prompt) -> ChatRequest:
            messages = prompt.messages
            if prompt.prefill.strip():
                messages = (*messages, Message("assistant", prompt.prefill))
            asked = ChatRequest(messages, decoding.max_new_tokens, decoding.temperature)
            if not decoding.temperature:
                return asked
            # Servers take 31 bits.
            return replace(asked, seed=draw_seed(prompt, decoding) >> 33)

        self.chat.complete(list(map(request, prompts)), on_reply)


def draw_seed(prompt: Prompt, decoding: Decoding) -> int:
    """Return the seed of one sampled text, in [0, 2^64), distinct for each seed, prompt and draw."""
    turns = [[message.role, message.content] for message in prompt.messages]
    return int(short_hash([decoding.seed, turns, prompt.prefill, prompt.draw])[:16], 16)


class _PromptIds:
    """Encode prompts within the model's number of positions, and decode generated ids."""

    def __init__(self, tokenizer: Any, config: Any) -> None:
        self.tokenizer = tokenizer
        self._encoder = Encoder.within_positions(tokenizer, config.get_text_config())
        self.limit = self._encoder.max_length

    def of(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        """Encode prompts; each is at least one token shorter than the limit."""
        encoded = []
        for number, prompt in enumerate(prompts, start=1):
            if not prompt.messages and not prompt.prefill.strip():
                raise ValueError(f"prompt {number} of this call is empty; give it a message or a prefill.")
            try:
                encoded.append(self._encode(prompt))
            except ValueError as error:
                raise ValueError(f"prompt {number} of this call: {error}") from error
        return encoded

    def too_long(self, prompt: Prompt) -> str | None:
        """Return why a prompt cannot be encoded; None if it can."""
        try:
            self._encode(prompt)
        except ValueError as error:
            return str(error)
        return None

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        row = Example(prompt.messages, "x")  # the ids of a prompt do not depend on its answer
        return self._encoder.encode_prompt(row, prefill=prompt.prefill)

    def caps(self, encoded: Sequence[Sequence[int]], decoding: Decoding) -> list[int]:
        return [min(decoding.max_new_tokens, self.limit - len(ids)) for ids in encoded]

    def generation(self, ids: Sequence[int], spent: int, decoding: Decoding) -> Generation:
        """Decode generated ids; without a chat template, an answer ends before the next turn that the model invents."""
        whole = self.tokenizer.decode(ids, skip_special_tokens=True)
        text = without_next_turn(whole, self.tokenizer)
        if text != whole:
            spent = min(spent, len(self.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1)
        return Generation(_cut(text, decoding), spent)

    def describe(self, ends: Sequence[int]) -> str:
        """Return a hash of tokenizer, template and end tokens, and the limit."""
        # Two tokenizers of one name may split a text in different ways, so the rules are hashed and not the name.
        rules = json.loads(self.tokenizer.backend_tokenizer.to_str())
        # Padding and truncation are those of the last call.
        kept = {name: value for name, value in rules.items() if name not in ("padding", "truncation")}
        tokenization = short_hash([kept, self.tokenizer.chat_template or NEXT_TURN.pattern])
        return f"{short_hash([tokenization, list(ends)])}/{self.limit}"


def _shape(config: Any) -> str:
    """Hash a model's configuration without names and descriptions."""
    # What does not change a text: names, versions, and the dtype, which is a part of the identity by itself.
    names = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache")
    return short_hash({key: str(value) for key, value in config.to_dict().items() if key not in names})[:16]


def _cut(text: str, decoding: Decoding) -> str:
    text = text.strip()
    places = [text.index(stop) for stop in decoding.stop if stop and stop in text]
    return text[: min(places, default=len(text))].strip()
