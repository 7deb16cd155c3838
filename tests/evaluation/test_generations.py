"""Every distinct prompt is generated once: in one call, over calls, after a kill, by concurrent processes."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atwu._cache import short_hash
from atwu.data.schema import Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, Generation, GenerationStore, Prompt, generate_all, generation_key
from atwu.modeling.scratch import SHAPES, scratch_model, train_tokenizer
from tests.damage import DAMAGES, damage


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
            got = generate_all(spent, prompts, decoding, store=GenerationStore(folder))
            assert got == [generator.said(prompt, decoding) for prompt in prompts]
            whole, had = least(prompts + known), least(known)
            assert (spent.prompts - before[0], spent.tokens - before[1]) == (whole[0] - had[0], whole[1] - had[1])
    assert len(generator.asked) == spent.prompts == least(first + second)[0]


def test_a_worked_count_without_a_store() -> None:
    spent = Counted(Reverser())
    prompts = [ask("ab"), ask("abc"), ask("ab"), ask("ab", draw=1), ask("ab", prefill="x")]
    got = generate_all(spent, prompts, Decoding())
    assert [generation.text for generation in got] == ["ba", "cba", "ba", "ba", "xba"]
    assert (spent.prompts, spent.tokens) == (3, 3 + 4 + 4)  # a draw means nothing to a greedy model
    generate_all(spent, prompts, Decoding(temperature=1.0, max_new_tokens=5))
    assert (spent.prompts, spent.tokens) == (3 + 4, 11 + 4 * 5)


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


def test_a_file_belongs_to_one_generator_and_names_it(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path / "new" / "folder")
    one, other = Reverser(identity="one"), Reverser(identity="other")
    for generator in (one, other):
        generate_all(generator, [ask("ab"), ask("c")], Decoding(), store=store)
    assert len(one.asked) == len(other.asked) == 2
    files = sorted(store.folder.iterdir())
    assert files == sorted(store.folder / f"{short_hash(name)}.jsonl" for name in ("one", "other"))
    lines = [json.loads(line) for line in store.path("one").read_text().splitlines()]
    key = generation_key(ask("ab"), Decoding())
    assert lines[0] == {"generator": "one"}
    assert {"key": key, "text": "ba", "tokens": 3} in [
        {name: line[name] for name in ("key", "text", "tokens")} for line in lines[1:]
    ]
    assert len(lines) == 3


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_an_incomplete_last_line_loses_only_that_line(tmp_path: Path, cut: int) -> None:
    store = GenerationStore(tmp_path)
    prompts = [ask(letter * 3) for letter in "abcd"]
    expected = generate_all(Reverser(batch=1), prompts, Decoding(), store=store)
    path = store.path("reverser")
    path.write_bytes(path.read_bytes()[:-cut])
    again = Reverser(batch=1)
    assert generate_all(again, [*prompts, ask("e")], Decoding(), store=store)[:-1] == expected
    lost = 1 if cut > 1 else 0  # without the newline alone the line is whole
    assert len(again.asked) == 1 + lost
    assert generate_all(Reverser(fail_after=0), [*prompts, ask("e")], Decoding(), store=store)[:-1] == expected


def test_lines_of_other_generators_are_ignored(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path)
    key = generation_key(ask("ab"), Decoding())
    foreign = [b"", b"\xff\xfe", b"null", b"[1]", b'{"key": 3}', json.dumps({"key": key, "text": None}).encode()]
    store.path("reverser").write_bytes(b"\n".join([*foreign, b"\x00" * 40]))
    assert store.read("reverser") == {}
    for _ in range(2):
        assert generate_all(Reverser(), [ask("ab")], Decoding(), store=store) == [Generation("ba", 3)]
    assert store.read("reverser") == {key: Generation("ba", 3)}


def test_two_processes_that_start_with_an_empty_file_do_not_damage_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = GenerationStore(tmp_path)
    store.append("x", [("one", Generation("a", 1))])
    whole = store.path("x").read_bytes()
    store.path("x").unlink()
    store.append("x", [("two", Generation("b", 1))])
    store.path("x").write_bytes(whole + store.path("x").read_bytes())
    assert store.read("x") == {"one": Generation("a", 1), "two": Generation("b", 1)}
    assert not caplog.messages


def test_the_first_of_two_texts_for_a_key_is_kept(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path)
    for text in ("first", "second"):
        store.append("x", [("key", Generation(text, 1))])
    assert store.read("x") == {"key": Generation("first", 1)}


def test_texts_generated_before_an_error_are_kept(tmp_path: Path) -> None:
    store, failing, whole = GenerationStore(tmp_path), Reverser(fail_after=4), Reverser()
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


def test_progress_counts_missing_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = GenerationStore(tmp_path)
    generate_all(Reverser(), [ask("a")], Decoding(), store=store)
    assert capsys.readouterr().err == ""
    generate_all(Reverser(), [ask("a"), ask("b"), ask("c")], Decoding(), store=store, progress="answers")
    shown = capsys.readouterr().err
    assert shown == "answers: 2 prompts\n"


FORK = multiprocessing.get_context("fork")  # a process that has imported everything


def append_batches(folder: Path, name: str, go: Any) -> None:
    store = GenerationStore(folder)
    go.wait()
    for batch in range(150):
        made = f"{name}-{batch}"
        store.append("shared", [(f"{made}-{row}", Generation(made * 500, row)) for row in range(5)])


def test_concurrent_writers_lose_no_text(tmp_path: Path) -> None:
    go = FORK.Event()
    started = [FORK.Process(target=append_batches, args=(tmp_path, name, go)) for name in ("p", "q", "r")]
    for process in started:
        process.start()
    go.set()
    for process in started:
        process.join()
        assert process.exitcode == 0
    expected = {
        f"{name}-{batch}-{row}": Generation(f"{name}-{batch}" * 500, row)
        for name in ("p", "q", "r")
        for batch in range(150)
        for row in range(5)
    }
    assert GenerationStore(tmp_path).read("shared") == expected


def generate_everything(generator: TransformersGenerator, folder: Path) -> None:
    """Generate 80 distinct texts twice; write new texts and results to a file."""
    torch.set_num_threads(1)
    spent = Counted(generator)
    prompts = [ask(text, draw=draw) for draw in range(2) for text in HIVES] * 2
    decoding = Decoding(max_new_tokens=48, temperature=1.0)
    said = generate_all(spent, prompts, decoding, store=GenerationStore(folder))
    texts = [generation.text for generation in said]
    (folder / "said.json").write_text(
        json.dumps([spent.prompts, spent.tokens, sum(g.tokens for g in said[:80]), texts])
    )


HIVES = [f"Where does Orla Venn keep hive {number}?" for number in range(40)]


def lines(folder: Path) -> list[dict[str, object]]:
    found = [line for file in folder.glob("*.jsonl") for line in file.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in found if line.startswith(b'{"key"') and line.endswith(b"}")]


def test_a_killed_process_is_resumed(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(HIVES, vocab_size=300)
    generator = TransformersGenerator(scratch_model(SHAPES["micro"]), tokenizer, batch_tokens=300)
    calm, killed = tmp_path / "calm", tmp_path / "killed"

    def begun(folder: Path) -> Any:
        process = FORK.Process(target=generate_everything, args=(generator, folder))
        process.start()
        return process

    def finished(folder: Path) -> tuple[int, int, int, list[str]]:
        process = begun(folder)
        process.join()
        assert process.exitcode == 0
        return json.loads((folder / "said.json").read_text())

    undisturbed = finished(calm)
    seed = int(time.time())
    print("seed of the kills:", seed)
    draw = random.Random(seed)
    for at in (draw.randint(1, 20), draw.randint(25, 50)):
        process = begun(killed)
        while len(lines(killed)) < at:
            assert process.is_alive(), "the process ended before it could be killed"
            time.sleep(0.005)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    kept = lines(killed)
    assert 25 <= len(kept) < 80
    prompts, tokens, least, texts = finished(killed)
    assert undisturbed == [80, least, least, texts]
    assert prompts == 80 - len(kept)
    assert tokens == least - sum(line["tokens"] for line in kept)
    by_key = [{line["key"]: (line["text"], line["tokens"]) for line in lines(folder)} for folder in (calm, killed)]
    assert by_key[0] == by_key[1]
    assert len(by_key[0]) == len(lines(killed)) == 80, "none was made twice"


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_store_gives_a_warning_and_texts_are_generated_again(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, prompts = GenerationStore(tmp_path), [ask("ab"), ask("c"), ask("de")]
    whole = generate_all(Reverser(identity="one"), prompts, Decoding(), store=store)
    damage(store.path("one"), how)
    assert generate_all(Reverser(identity="one"), prompts, Decoding(), store=store) == whole
    said = [f"{store.path('one')} has" in message and "damaged lines" in message for message in caplog.messages]
    assert said == [True] * (how != "missing")


def test_every_flipped_bit_of_a_line_is_detected(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path)
    store.append("one", [("key", Generation("some words", 3))])
    content = store.path("one").read_bytes()
    for place in range(content.index(b"\n") + 1, len(content)):
        store.path("one").write_bytes(content[:place] + bytes([content[place] ^ 2]) + content[place + 1 :])
        assert store.read("one") in ({}, {"key": Generation("some words", 3)})
