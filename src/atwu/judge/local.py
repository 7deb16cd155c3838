"""A chat model in this process: any transformers model by folder or Hub name, with greedy decoding."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from atwu.data.encode import Encoder
from atwu.data.render import without_next_turn
from atwu.data.schema import Example
from atwu.judge.chat_model import ChatRequest, OnReply, Reply
from atwu.modeling.device import pick_device
from atwu.modeling.generate import generate
from atwu.modeling.load import check_model_name, check_vocabulary, load_model, load_tokenizer, model_fingerprint


class LocalChat:
    """Chat model in this process; implements `ChatModel`. Only temperature 0, so the seed has no effect."""

    concurrency = 1

    def __init__(self, path: str, *, device: str | None = None, batch_tokens: int = 8192) -> None:
        """Load a model and its tokenizer.

        Args:
            batch_tokens: Tokens per batch, prompts and replies; more is faster and needs more memory.
        """
        check_model_name(path)
        target = pick_device(device)
        self._tokenizer = load_tokenizer(path)
        self._model = load_model(path).to(target)
        config = self._model.config.get_text_config()
        check_vocabulary(self._tokenizer, config, name=path)
        self._encoder = Encoder.within_positions(self._tokenizer, config)
        self._batch_tokens = batch_tokens
        # Two tokenizers with other rules or templates give other replies.
        core = f"{self._tokenizer.backend_tokenizer.to_str()}{self._tokenizer.chat_template}"
        self._identity = {
            "kind": "local",
            "fingerprint": model_fingerprint(self._model),
            "tokenizer": hashlib.blake2b(core.encode(), digest_size=16).hexdigest(),
        }

    @property
    def identity(self) -> Mapping[str, Any]:
        """Kind, and hashes of the weights and of the tokenizer with its chat template."""
        return self._identity

    def complete(self, requests: Sequence[ChatRequest], on_reply: OnReply) -> None:
        """Answer all requests in batches, longest first.

        A prompt that does not fit the model gets an error; a reply ends at the model's maximum length.
        """
        for request in requests:
            if request.temperature > 0:
                raise ValueError(f"a local model decodes greedily: temperature must be 0, got {request.temperature}.")
        prompts: dict[int, tuple[int, ...]] = {}
        for index, request in enumerate(requests):
            try:
                # The ids of a prompt do not depend on its answer.
                prompts[index] = self._encoder.encode_prompt(Example(messages=request.messages, answer="x"))
            except ValueError as error:
                on_reply(index, Reply(error=str(error)))
        limit = self._encoder.max_length
        caps = {index: min(requests[index].max_tokens, limit - len(ids)) for index, ids in prompts.items()}
        order = list(prompts)

        def on_batch(rows: Sequence[tuple[int, tuple[int, ...], int]]) -> None:
            for row, ids, spent in rows:
                text = without_next_turn(self._tokenizer.decode(ids, skip_special_tokens=True), self._tokenizer).strip()
                prompt_tokens = len(prompts[order[row]])
                on_reply(order[row], Reply(text=text, prompt_tokens=prompt_tokens, completion_tokens=spent))

        generate(
            self._model,
            self._tokenizer,
            list(prompts.values()),
            max_new_tokens=list(caps.values()),
            batch_tokens=self._batch_tokens,
            progress=False,
            on_batch=on_batch,
        )
