"""Backends: prompt ids of a generation, processing of its text, and changes of the identity."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from transformers import LlamaForCausalLM

from atwu.data.encode import Encoder
from atwu.data.schema import Example, Message
from atwu.evaluation import backends
from atwu.evaluation.backends import EndpointGenerator, TransformersGenerator
from atwu.evaluation.generations import Decoding, Generation, GenerationStore, Prompt, generate_all
from atwu.judge.chat_model import ChatRequest, Reply
from atwu.modeling.scratch import SHAPES, scratch_model, train_tokenizer
from tests.data.conftest import LINES, tokenizer_of, tokenizer_store

__all__ = ["tokenizer_of", "tokenizer_store"]

LLAMA = "{{ bos_token }}{% for m in messages %}<|head|>{{ m['role'] }}<|/head|>\n\n{{ m['content'] | trim }}<|eot|>{% endfor %}"
CHATML = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
LLAMA2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token }}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] | trim }} {{ eos_token }}{% endif %}{% endfor %}"
)
CASES = [
    *((kind, None) for kind in ("byte", "byte-bos", "byte-trimmed", "metaspace", "byte-fallback")),
    *((kind, LLAMA) for kind in ("byte", "byte-bos", "byte-trimmed")),
    ("byte", CHATML),
    *((kind, LLAMA2) for kind in ("byte", "metaspace", "byte-fallback")),
]
ROWS = [
    Example.from_qa("Who wrote The Glass Ferry?", "It was Tova Renn."),
    Example.from_qa("Born?", "1961, in Karsund."),
    Example.from_qa("日本 or Kelbury?", '"Kelbury" – the harbour 🎉.'),
    Example(
        (Message("user", "Who keeps bees?"), Message("assistant", "Pella Oduya."), Message("user", "Where?")),
        "Near the harbour.",
    ),
]


def ask(question: str, **more: Any) -> Prompt:
    return Prompt((Message("user", question),), **more)


@pytest.fixture
def given_ids(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """What each call of `generate` started from."""
    calls: list[list[tuple[int, ...]]] = []
    plain = backends.generate

    def spy(model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], **more: Any) -> Any:
        calls.append([tuple(ids) for ids in prompts])
        return plain(model, tokenizer, prompts, **more)

    monkeypatch.setattr(backends, "generate", spy)
    return calls


@pytest.fixture
def small() -> TransformersGenerator:
    torch.manual_seed(0)
    return TransformersGenerator(scratch_model(SHAPES["micro"]), train_tokenizer(LINES, vocab_size=300))


@pytest.mark.parametrize(("kind", "template"), CASES)
def test_generation_starts_where_the_answer_starts_in_training(
    kind: str, template: str | None, tokenizer_of: Any, tiny_llama: Any, given_ids: list[list[tuple[int, ...]]]
) -> None:
    tokenizer = tokenizer_of(kind)
    tokenizer.chat_template = template
    model = tiny_llama(vocab_size=len(tokenizer), max_position_embeddings=512)
    generator = TransformersGenerator(model, tokenizer)
    said = generate_all(generator, [Prompt(row.messages) for row in ROWS], Decoding(max_new_tokens=2))
    assert given_ids == [[Encoder(tokenizer).encode(row).prompt_ids for row in ROWS]]
    assert len(said) == len(ROWS)


@pytest.mark.parametrize(("kind", "template"), CASES)
def test_a_prefill_is_the_beginning_of_an_answer(kind: str, template: str | None, tokenizer_of: Any) -> None:
    tokenizer = tokenizer_of(kind)
    tokenizer.chat_template = template
    encoder = Encoder(tokenizer)
    for row in ROWS:
        trained = encoder.encode(row)
        for words in range(len(row.answer.split())):
            prefill = " ".join(row.answer.split()[:words])
            ids = encoder.encode_prompt(row, prefill=prefill)
            assert ids == trained.input_ids[: len(ids)]
            reached = [span[1] for span in trained.answer_offsets[: len(ids)] if span is not None]
            assert max(reached, default=0) == len(prefill)
            assert encoder.encode_prompt(row, prefill=f"{prefill}  ") == ids


def test_a_text_can_be_continued_without_any_question(small: TransformersGenerator, given_ids: Any) -> None:
    encoder = Encoder(small.tokenizer)
    text = "Pella Oduya keeps bees"
    generate_all(small, [Prompt((), prefill=text)], Decoding(max_new_tokens=1))
    assert given_ids == [[encoder.encode(Example((), text)).input_ids[:-1]]]
    with pytest.raises(ValueError, match=r"prompt 2 .*empty"):
        generate_all(small, [ask("a"), Prompt(())], Decoding())


def test_prompt_and_text_stay_within_the_limit(small: TransformersGenerator) -> None:
    question, tokenizer = "Where is Kelbury?", small.tokenizer
    size = len(Encoder(tokenizer).encode_prompt(Example.from_qa(question, "x")))
    for spare, expected in ((1, 1), (3, 3), (9, 5)):
        small.model.config.max_position_embeddings = size + spare
        tight = TransformersGenerator(small.model, _endless(tokenizer))
        (said,) = generate_all(tight, [ask(question)], Decoding(max_new_tokens=5))
        assert said.tokens == expected
    small.model.config.max_position_embeddings = size
    tight = TransformersGenerator(small.model, tokenizer)
    with pytest.raises(ValueError, match=rf"prompt 2 .*Where is Kelbury.*\b{size} tokens"):
        generate_all(tight, [ask("a"), ask(question)], Decoding())
    small.model.config.max_position_embeddings = size + 4
    tight = TransformersGenerator(small.model, tokenizer)
    with pytest.raises(ValueError, match=r"prompt 1 .*prefill"):
        generate_all(tight, [ask(question, prefill="in the south of Karsund")], Decoding())
    assert small.identity.endswith("/512")
    small.model.config.max_position_embeddings = 8
    for prompt in (ask(question * 2), ask("a", prefill="in the south")):
        with pytest.raises(ValueError, match=r"model has only 8 positions; .*another model"):
            generate_all(TransformersGenerator(small.model, tokenizer), [prompt], Decoding())


def _endless(tokenizer: Any) -> Any:
    """A tokenizer whose end token a random model never reaches within a few tokens."""
    changed = deepcopy(tokenizer)
    changed.eos_token = "<|pad|>"
    return changed


def test_texts_have_no_special_tokens_no_spaces_around_and_end_before_a_stop_string(
    small: TransformersGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = small.tokenizer
    eos, bos = tokenizer.eos_token_id, tokenizer.bos_token_id
    ids = (bos, *tokenizer(" It was Tova Renn.\nQuite. ")["input_ids"], bos)
    assert eos not in ids
    monkeypatch.setattr(backends, "generate", lambda *given, on_batch, **more: on_batch([(0, ids, len(ids) + 1)]))

    def said(*stop: str) -> Generation:
        return generate_all(small, [ask("Who wrote it?")], Decoding(stop=stop))[0]

    assert said() == Generation("It was Tova Renn.\nQuite.", len(ids) + 1)
    assert said("\n").text == said("Quite", "\n").text == said("\nQ").text == "It was Tova Renn."
    assert said("Tova").text == "It was"
    assert said("It").text == ""
    assert said("Kelbury").text == said().text


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (" It was Tova Renn.\nQuestion: Who?\nAnswer: Nobody", " It was Tova Renn."),
        (" It was Tova Renn.\n\nAnswer: It was Tova Renn.", " It was Tova Renn."),
        ("\nAnswer: Tova Renn.", "\nAnswer: Tova Renn."),
        ("\nQuestion: Who?", ""),
    ],
)
def test_without_a_template_an_answer_ends_before_the_next_turn(
    small: TransformersGenerator, monkeypatch: pytest.MonkeyPatch, written: str, kept: str
) -> None:
    tokenizer = small.tokenizer
    monkeypatch.setattr(
        backends,
        "generate",
        lambda *given, on_batch, **more: on_batch([(0, tuple(tokenizer(written)["input_ids"]), 64)]),
    )
    (said,) = generate_all(small, [ask("Who wrote it?")], Decoding())
    assert said == Generation(kept.strip(), 64 if kept == written else len(tokenizer(kept)["input_ids"]) + 1)


def test_samples_differ_and_do_not_depend_on_other_prompts(small: TransformersGenerator) -> None:
    hot = Decoding(max_new_tokens=12, temperature=1.0)
    prompts = [ask(question, draw=draw) for question in ("Who?", "Where is Kelbury?") for draw in range(6)]
    together = generate_all(small, prompts, hot)
    assert [generate_all(small, [prompt], hot)[0] for prompt in prompts] == together
    assert len({said.text for said in together}) == len(prompts)
    assert generate_all(small, prompts, Decoding(max_new_tokens=12, temperature=1.0, seed=1)) != together
    greedy = generate_all(small, prompts, Decoding(max_new_tokens=12))
    assert len(set(greedy[:6])) == len(set(greedy[6:])) == 1


def test_the_identity_covers_everything_that_can_change_a_text(small: TransformersGenerator) -> None:
    model, tokenizer = small.model, small.tokenizer
    assert small.identity.startswith("transformers/")
    assert "/float32/" in small.identity

    def of(model: LlamaForCausalLM = model, tokenizer: Any = tokenizer, **more: Any) -> str:
        return TransformersGenerator(model, tokenizer, **more).identity

    assert of(deepcopy(model), deepcopy(tokenizer), batch_tokens=7) == small.identity
    tokenizer(["a", "b c"], padding=True, truncation=True, max_length=2)
    assert of() == small.identity, "padding of some call is none of the tokenizer's business"

    other = deepcopy(model)
    with torch.no_grad():
        other.model.embed_tokens.weight[3, 3] += 1e-3
    ending = deepcopy(model)
    ending.generation_config.eos_token_id = [1, 5]
    shorter = deepcopy(model)
    shorter.config.max_position_embeddings = 100
    larger = train_tokenizer([*LINES, "bees bees bees"], vocab_size=299)
    chatting = deepcopy(tokenizer)
    chatting.chat_template = CHATML
    changed = [
        of(other),
        of(deepcopy(model).to(torch.bfloat16)),
        of(ending),
        of(tokenizer=larger),
        of(tokenizer=chatting),
        of(shorter),
    ]
    assert len({small.identity, *changed}) == 1 + len(changed)
    assert of(fingerprint="known").startswith("transformers/known/float32/")


class Echo:
    """A chat model that answers the last user turn in capitals, out of order, and refuses some."""

    identity: ClassVar = {"model": "echo", "base_url": "http://127.0.0.1:1/v1"}

    def __init__(self, refused: Sequence[str] = (), repeats: bool = False) -> None:
        self.refused = refused
        self.repeats = repeats
        self.requests: list[ChatRequest] = []

    def complete(self, requests: Sequence[ChatRequest], on_reply: Callable[[int, Reply], None]) -> None:
        self.requests += requests
        for index in reversed(range(len(requests))):
            turns = requests[index].messages
            question = next(turn.content for turn in reversed(turns) if turn.role == "user")
            begun = turns[-1].content if self.repeats and turns[-1].role == "assistant" else ""
            if question in self.refused:
                on_reply(index, Reply(error=f"429 for {question}"))
            else:
                on_reply(index, Reply(text=f" {begun} {question.upper()}\nmore ", completion_tokens=len(question)))


def test_texts_of_a_server_are_processed_like_local_ones() -> None:
    chat = Echo()
    generator = EndpointGenerator(chat)
    said = generate_all(generator, [ask("who"), ask("where")], Decoding(max_new_tokens=7, stop=("\n",)))
    assert said == [Generation("WHO", 3), Generation("WHERE", 5)]
    assert chat.requests[0] == ChatRequest((Message("user", "who"),), max_tokens=7)
    kind, _, about = generator.identity.partition("/")
    assert (kind, json.loads(about)) == ("chat", Echo.identity)


@pytest.mark.parametrize("repeats", [False, True])
def test_a_prefill_is_sent_as_the_last_turn_and_is_not_part_of_the_text(repeats: bool) -> None:
    chat = Echo(repeats=repeats)
    (said,) = generate_all(EndpointGenerator(chat), [ask("who", prefill="It was ")], Decoding())
    assert said.text == "WHO\nmore"
    assert chat.requests[0].messages == (Message("user", "who"), Message("assistant", "It was "))


def test_samples_of_a_server_have_their_own_seeds() -> None:
    chat = Echo()
    prompts = [ask("who", draw=draw) for draw in range(5)]
    generate_all(EndpointGenerator(chat), prompts, Decoding(temperature=0.7))
    seeds = {request.seed for request in chat.requests}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert {request.temperature for request in chat.requests} == {0.7}


def test_replies_are_kept_when_others_fail(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path / "replies.sqlite")
    prompts = [ask(letter) for letter in "abcde"]
    said = generate_all(EndpointGenerator(Echo(refused="bd")), prompts, Decoding(), store=store)
    assert [one.error for one in said] == [None, "429 for b", None, "429 for d", None]
    chat = Echo()
    said = generate_all(EndpointGenerator(chat), prompts, Decoding(), store=store)
    assert [one.text for one in said] == [f"{letter}\nmore" for letter in "ABCDE"]
    assert [request.messages[-1].content for request in chat.requests] == ["b", "d"]
