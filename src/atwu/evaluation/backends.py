"""Backends that generate text: a transformers model in this process, and a chat server.

The model in this process reads the token ids of training; a server applies its own chat template. All texts are
post-processed alike: no special tokens, no surrounding white space, cut before the first stop string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from atwu._cache import short_hash
from atwu.data.encode import Encoder
from atwu.data.render import NEXT_TURN, without_next_turn
from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.judge.chat_model import ChatRequest, Reply
from atwu.judge.client import OpenAIChat
from atwu.modeling.generate import end_ids, generate
from atwu.modeling.load import model_fingerprint

OnDone = Callable[[Sequence[tuple[int, Generation]]], None]


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
        self._encoder = Encoder.within_positions(tokenizer, model.config.get_text_config())
        self.positions = self._encoder.max_length
        """Longest text in tokens."""
        self._fingerprint = fingerprint

    @property
    def identity(self) -> str:
        """Backend, weights, dtype, and hashes of configuration, tokenization and end tokens.

        The dtype is that of the moment: in bfloat16 a model gives other answers.
        """
        if self._fingerprint is None:
            self._fingerprint = model_fingerprint(self.model)
        dtype = str(self.model.dtype).removeprefix("torch.")
        # Two tokenizers of one name may split a text in different ways, so the rules are hashed and not the name.
        rules = json.loads(self.tokenizer.backend_tokenizer.to_str())
        # Padding and truncation are those of the last call.
        kept = {name: value for name, value in rules.items() if name not in ("padding", "truncation")}
        tokenization = short_hash([kept, self.tokenizer.chat_template or NEXT_TURN.pattern])
        ends = short_hash([tokenization, sorted(end_ids(self.model, self.tokenizer))])
        return f"transformers/{self._fingerprint}/{dtype}/{_shape(self.model.config)}/{ends}/{self.positions}"

    def too_long(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Return of each prompt why the model cannot read it; None where it can."""
        reasons: list[str | None] = []
        for prompt in prompts:
            try:
                self._encode(prompt)
                reasons.append(None)
            except ValueError as error:
                reasons.append(str(error))
        return reasons

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: OnDone) -> None:
        """See `Generator.generate`. A text also ends at the model's own limit."""
        encoded: list[tuple[int, ...]] = []
        for number, prompt in enumerate(prompts, start=1):
            if not prompt.messages and not prompt.prefill.strip():
                raise ValueError(f"prompt {number} of this call is empty; give it a message or a prefill.")
            try:
                encoded.append(self._encode(prompt))
            except ValueError as error:
                raise ValueError(f"prompt {number} of this call: {error}") from error
        noise_seeds = None
        if decoding.temperature:
            noise_seeds = [draw_seed(prompt, decoding) for prompt in prompts]
        generate(
            self.model,
            self.tokenizer,
            encoded,
            max_new_tokens=[min(decoding.max_new_tokens, self.positions - len(ids)) for ids in encoded],
            batch_tokens=self.batch_tokens,
            progress=False,
            temperature=decoding.temperature,
            noise_seeds=noise_seeds,
            on_batch=lambda rows: on_done(
                [(index, self._generation(ids, spent, decoding)) for index, ids, spent in rows]
            ),
        )

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        row = Example(prompt.messages, "x")  # the ids of a prompt do not depend on its answer
        return self._encoder.encode_prompt(row, prefill=prompt.prefill)

    def _generation(self, ids: Sequence[int], spent: int, decoding: Decoding) -> Generation:
        """Decode generated ids; without a chat template, an answer ends before the next turn that the model invents."""
        whole = self.tokenizer.decode(ids, skip_special_tokens=True)
        text = without_next_turn(whole, self.tokenizer)
        if text != whole:
            spent = min(spent, len(self.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1)
        return Generation(_cut(text, decoding), spent)


EMPTY_REPLY = "the reply is empty"
"""Error of a prompt that a server answers with nothing, which an unlearned model may well do."""


class EndpointGenerator:
    """Generate with a chat model, such as an OpenAI-compatible server, which applies its own template.

    A prefill is sent as the last assistant message. Servers continue it, repeat it (the repetition is removed) or start
    a new turn, so results with a prefill are comparable only on the same server.
    """

    def __init__(self, chat: OpenAIChat) -> None:
        self.chat = chat

    @property
    def identity(self) -> str:
        return f"chat/{json.dumps(dict(self.chat.identity), sort_keys=True)}"

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: OnDone) -> None:
        """See `Generator.generate`. Token counts are those the server reports; a prompt without a reply gets its error."""

        def on_reply(index: int, reply: Reply) -> None:
            if reply.text is None or not reply.text.strip() or reply.filtered:
                cause = EMPTY_REPLY
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


def _shape(config: Any) -> str:
    """Hash a model's configuration without names and descriptions."""
    # What does not change a text: names, versions, and the dtype, which is a part of the identity by itself.
    names = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache")
    return short_hash({key: str(value) for key, value in config.to_dict().items() if key not in names})[:16]


def _cut(text: str, decoding: Decoding) -> str:
    text = text.strip()
    places = [text.index(stop) for stop in decoding.stop if stop and stop in text]
    return text[: min(places, default=len(text))].strip()
