"""Every distinct prompt is generated once: in one call, over calls, after a kill, by concurrent processes."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu._cache import short_hash
from atwu.data.schema import Message
from atwu.evaluation import generations
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, Generation, GenerationStore, Prompt, generate_all, generation_key
from atwu.modeling.scratch import SHAPES, scratch_model, train_tokenizer


def ask(question: str, **more: object) -> Prompt:
    return Prompt((Message("user", question),), **more)


class Reverser:
    """Return the question reversed, last prompt first, `batch` prompts at a time."""

    def __init__(self, batch: int = 2, identity: str = "reverser", fail_after: int | None = None) -> None:
        self.batch = batch
        self.identity = identity
        self.fail_after = fail_after
        self.asked: list[Prompt] = []

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Sequence[tuple[int, Generation]]], None]
    ) -> None:
        order = list(range(len(prompts)))[::-1]
        for start in range(0, len(order), self.batch):
            if self.fail_after is not None and start >= self.fail_after:
                raise ConnectionError("gone")
            chosen = order[start : start + self.batch]
            self.asked += [prompts[index] for index in chosen]
            on_done([(index, self.said(prompts[index], decoding)) for index in chosen])

    def said(self, prompt: Prompt, decoding: Decoding) -> Generation:
        text = prompt.prefill + prompt.messages[-1].content[::-1]
        text += f"/{prompt.draw}/{decoding.seed}" if decoding.temperature else ""
        return Generation(text[: decoding.max_new_tokens], min(len(text) + 1, decoding.max_new_tokens))


class Counted:
    """A generator, and the texts it generated."""

    def __init__(self, generator: Any) -> None:
        self.generator, self.identity = generator, generator.identity
        self.prompts = self.tokens = 0

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[..., None]) -> None:
        def take(done: Sequence[tuple[int, Generation]]) -> None:
            self.prompts += len(done)
            self.tokens += sum(generation.tokens for _, generation in done)
            on_done(done)

        self.generator.generate(prompts, decoding, take)


PROMPTS = st.builds(
    ask, st.text('ab\n\u2028é\ud800"\\', max_size=3), prefill=st.sampled_from(["", "b"]), draw=st.integers(0, 2)
)


@settings(max_examples=15)
@given(
    st.lists(PROMPTS, max_size=12),
    st.lists(PROMPTS, max_size=12),
    st.builds(Decoding, max_new_tokens=st.integers(1, 9), temperature=st.sampled_from([0.0, 1.0])),
)
def test_no_token_is_generated_twice(first: list[Prompt], second: list[Prompt], decoding: Decoding) -> None:
    generator = Reverser()
    spent = Counted(generator)

    def least(prompts: list[Prompt]) -> tuple[int, int]:
        distinct = {generation_key(prompt, decoding): generator.said(prompt, decoding) for prompt in prompts}
        return len(distinct), sum(generation.tokens for generation in distinct.values())

    with tempfile.TemporaryDirectory() as folder:
        for prompts, known in ((first, []), (first, first), (second, first), (first + second, first + second)):
            before = (spent.prompts, spent.tokens)
            got = generate_all(spent, prompts, decoding, store=GenerationStore(Path(folder) / "replies.sqlite"))
            assert got == [generator.said(prompt, decoding) for prompt in prompts]
            whole, had = least(prompts + known), least(known)
            assert (spent.prompts - before[0], spent.tokens - before[1]) == (whole[0] - had[0], whole[1] - had[1])
    assert len(generator.asked) == spent.prompts == least(first + second)[0]


def test_the_key_of_a_text_covers_everything_that_determines_it() -> None:
    two = (Message("system", "a"), Message("user", "b"))
    greedy = [
        (ask("a"), Decoding()),
        (ask("b"), Decoding()),
        (Prompt(two), Decoding()),
        (ask("a", prefill="b"), Decoding()),
        (ask("a"), Decoding(max_new_tokens=3)),
        (ask("a"), Decoding(stop=("\n",))),
    ]
    sampled = [
        (ask("a"), Decoding(temperature=1)),
        (ask("a"), Decoding(temperature=0.5)),
        (ask("a"), Decoding(temperature=1, seed=1)),
        (ask("a", draw=1), Decoding(temperature=1)),
    ]
    keys = [generation_key(*pair) for pair in greedy + sampled]
    assert len(set(keys)) == len(keys)
    assert generation_key(ask("a", draw=1), Decoding(seed=1)) == keys[0]
    assert generation_key(ask("a"), Decoding(temperature=1.0)) == keys[len(greedy)]


def test_texts_generated_before_an_error_are_kept(tmp_path: Path) -> None:
    store, failing, whole = GenerationStore(tmp_path / "replies.sqlite"), Reverser(fail_after=4), Reverser()
    prompts = [ask(str(number)) for number in range(7)]
    with pytest.raises(ConnectionError):
        generate_all(failing, prompts, Decoding(), store=store)
    generate_all(whole, prompts, Decoding(), store=store)
    assert (len(failing.asked), len(whole.asked)) == (4, 3)


def test_a_generator_that_skips_prompts_is_an_error() -> None:
    class Lazy(Reverser):
        def generate(self, prompts, decoding, on_done):
            super().generate(prompts[:1], decoding, on_done)

    with pytest.raises(RuntimeError, match="2 of 3"):
        generate_all(Lazy(), [ask("a"), ask("b"), ask("c")], Decoding())


SPAWN = multiprocessing.get_context("spawn")  # a fork may wait for ever for a lock that another thread held
HIVES = [f"Where does Orla Venn keep hive {number}?" for number in range(40)]


def generate_everything(generator: TransformersGenerator, folder: Path) -> None:
    """Generate 40 texts, each asked for twice; write the numbers of new texts and tokens, and all texts, to a file."""
    torch.set_num_threads(1)
    spent = Counted(generator)
    decoding = Decoding(max_new_tokens=24, temperature=1.0)
    store = GenerationStore(folder / "replies.sqlite")
    said = generate_all(spent, [ask(text) for text in HIVES] * 2, decoding, store=store)
    whole = sum(generation.tokens for generation in said[:40])
    (folder / "said.json").write_text(json.dumps([spent.prompts, spent.tokens, whole, [each.text for each in said]]))


def stored(folder: Path) -> dict[str, str]:
    if not (folder / "replies.sqlite").exists():
        return {}
    with contextlib.closing(sqlite3.connect(folder / "replies.sqlite")) as file:
        try:
            return dict(file.execute("SELECT key, value FROM replies").fetchall())
        except sqlite3.OperationalError:  # no table yet
            return {}


@pytest.mark.night  # by day: judge/test_prompted_calls.py, with the same cache
def test_a_killed_process_is_resumed(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(HIVES, vocab_size=300)
    generator = TransformersGenerator(scratch_model(SHAPES["micro"]), tokenizer, batch_tokens=150)
    for name in ("calm", "killed"):
        (tmp_path / name).mkdir()
    process = SPAWN.Process(target=generate_everything, args=(generator, tmp_path / "killed"))
    process.start()
    while len(stored(tmp_path / "killed")) < 5:
        assert process.is_alive(), "the process ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = len(stored(tmp_path / "killed"))
    assert 5 <= kept < 40
    for name in ("calm", "killed"):
        generate_everything(generator, tmp_path / name)
    calm, killed = (json.loads((tmp_path / name / "said.json").read_text()) for name in ("calm", "killed"))
    assert calm[:2] == [40, calm[2]]
    assert killed[0] == 40 - kept
    assert killed[1] < killed[2]
    assert killed[2:] == calm[2:]
    assert stored(tmp_path / "calm") == stored(tmp_path / "killed")


def test_shipped_generations_are_found_for_their_generator_only(tmp_path: Path) -> None:
    shipped = json.loads(Path(generations.__file__).with_name("shipped_generations.json").read_text(encoding="utf-8"))
    assert all(len(name) == 32 and text.strip() == text and tokens > 0 for name, (text, tokens) in shipped.items())
    store = GenerationStore(tmp_path / "replies.sqlite")
    text, tokens = next(iter(shipped.values()))
    name = short_hash(["me", "key"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generations, "_shipped", lambda: {name: (text, tokens)})
        assert store.read("me", ["key", "other"]) == {"key": Generation(text, tokens)}
        assert store.read("you", ["key"]) == {}
