"""The chat model in this process, on a tiny random model saved to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from atwu.data.schema import Message
from atwu.judge import local
from atwu.judge.chat_model import ChatRequest, Reply
from atwu.judge.local import LocalChat
from atwu.modeling.load import model_fingerprint
from tests.judge.conftest import ask
from tests.judge.tiny_chat import TEMPLATE, save_chat_model
from tests.micro_models import write_micro

NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + TEMPLATE


def _request(text: str, max_tokens: int = 8, **changes: Any) -> ChatRequest:
    return ChatRequest((Message("system", "You check answers"), Message("user", text)), max_tokens, **changes)


@torch.no_grad()
def _plain(model: LlamaForCausalLM, folder: Path, text: str, cap: int) -> Reply:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    head = tokenizer(f"<system> You check answers <end> <user> {text} <end> <assistant>")["input_ids"]
    ids = list(head)
    while len(ids) - len(head) < cap:
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == 1:
            break
    said = tokenizer.decode(ids[len(head) :], skip_special_tokens=True).strip()
    return Reply(text=said, prompt_tokens=len(head), completion_tokens=len(ids) - len(head))


def test_replies_equal_a_plain_loop_for_any_batch_size(tmp_path: Path) -> None:
    model = save_chat_model(tmp_path).eval()
    texts = ["Orla Venn was born in Kelbury", "Tavi Brook", "bees", "near the harbour", "Venn keeps bees", "NO"]
    requests = [_request(text, max_tokens=5 + index) for index, text in enumerate(texts)]
    expected = [_plain(model, tmp_path, text, 5 + index) for index, text in enumerate(texts)]
    for batch_tokens in (1, 50, 8192):
        assert ask(LocalChat(str(tmp_path), device="cpu", batch_tokens=batch_tokens), requests) == expected
    assert len({reply.text for reply in expected}) > 3
    ended = [reply.completion_tokens < 5 + index for index, reply in enumerate(expected)]
    assert any(ended), "an end token must be among what is compared"
    assert not all(ended)


def test_without_a_template_a_reply_ends_before_the_next_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_micro(tmp_path)
    chat = LocalChat(str(tmp_path), device="cpu")
    ids = tuple(chat._tokenizer(" NO\n\nQuestion: Who?\nAnswer: YES")["input_ids"])
    monkeypatch.setattr(local, "generate", lambda *given, on_batch, **more: on_batch([(0, ids, len(ids))]))
    assert ask(chat, [_request("Orla Venn")])[0].text == "NO"


def test_a_batch_is_returned_before_the_next_one_starts(tmp_path: Path) -> None:
    save_chat_model(tmp_path)
    chat = LocalChat(str(tmp_path), device="cpu", batch_tokens=50)
    kept: list[int] = []

    def stop_at_third(index: int, reply: Reply) -> None:
        kept.append(index)
        if len(kept) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chat.complete([_request("bees " * count) for count in range(1, 9)], stop_at_third)
    assert kept == [7, 6, 5], "longest first"


def test_prompts_that_are_too_long_are_errors_and_long_replies_are_truncated(tmp_path: Path) -> None:
    save_chat_model(tmp_path)
    replies = ask(LocalChat(str(tmp_path), device="cpu"), [_request("bees " * 60), _request("bees", max_tokens=500)])
    assert "only 40 positions" in str(replies[0].error)
    assert replies[0].text is None
    assert replies[1].text
    assert replies[1].prompt_tokens + replies[1].completion_tokens <= 40


def test_a_template_without_system_turns_gets_the_system_text_in_the_user_turn(tmp_path: Path) -> None:
    save_chat_model(tmp_path, NO_SYSTEM)
    chat = LocalChat(str(tmp_path), device="cpu")
    merged = ChatRequest((Message("user", "You check answers\n\nTavi Brook"),), 8)
    system, user = ask(chat, [_request("Tavi Brook"), merged])
    assert system == user
    assert system.text


def test_a_tokenizer_without_a_template_uses_the_plain_one(tmp_path: Path) -> None:
    save_chat_model(tmp_path, None)
    (reply,) = ask(LocalChat(str(tmp_path), device="cpu"), [_request("Tavi Brook")])
    assert reply.prompt_tokens == 7, "You check answers Question: Tavi Brook Answer:"


def test_the_identity_depends_on_weights_and_template(tmp_path: Path) -> None:
    model = save_chat_model(tmp_path / "a")
    save_chat_model(tmp_path / "b", seed=2)
    save_chat_model(tmp_path / "c", NO_SYSTEM)
    first, again, weights, template = (LocalChat(str(tmp_path / name), device="cpu").identity for name in "aabc")
    assert first == again
    assert first["kind"] == "local"
    assert first["fingerprint"] == template["fingerprint"] == model_fingerprint(model) != weights["fingerprint"]
    assert first["tokenizer"] == weights["tokenizer"] != template["tokenizer"]


def test_sampling_and_missing_models_are_rejected(tmp_path: Path) -> None:
    save_chat_model(tmp_path)
    chat = LocalChat(str(tmp_path), device="cpu")
    replies: list[int] = []
    with pytest.raises(ValueError, match=r"temperature.* 0\.7"):
        chat.complete([_request("bees"), _request("bees", temperature=0.7)], lambda index, _: replies.append(index))
    assert replies == []
    with pytest.raises(FileNotFoundError, match="nowhere"):
        LocalChat(str(tmp_path / "nowhere"))
