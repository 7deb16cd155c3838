"""Every distinct prompt is generated once: in one call, over calls, after a kill, with several processes at a time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu._cache import short_hash
from atwu.data.schema import Message
from atwu.evaluation.generations import GenerationStore, Spent, generate_all, generation_key
from atwu.evaluation.prompts import Decoding, Generation, Prompt

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def ask(question: str, **more: object) -> Prompt:
    return Prompt((Message("user", question),), **more)


class Reverser:
    """Says the question backwards, last prompt first, `batch` prompts at a time."""

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


PROMPTS = st.builds(
    ask, st.text('ab\n\u2028é\ud800"\\', max_size=3), prefill=st.sampled_from(["", "b"]), draw=st.integers(0, 2)
)


@settings(deadline=None)
@given(
    st.lists(PROMPTS, max_size=12),
    st.lists(PROMPTS, max_size=12),
    st.builds(Decoding, max_new_tokens=st.integers(1, 9), temperature=st.sampled_from([0.0, 1.0])),
)
def test_no_token_is_generated_twice(first: list[Prompt], second: list[Prompt], decoding: Decoding) -> None:
    generator, spent = Reverser(), Spent()

    def least(prompts: list[Prompt]) -> tuple[int, int]:
        distinct = {generation_key(prompt, decoding): generator.said(prompt, decoding) for prompt in prompts}
        return len(distinct), sum(generation.tokens for generation in distinct.values())

    with tempfile.TemporaryDirectory() as folder:
        for prompts, known in ((first, []), (first, first), (second, first), (first + second, first + second)):
            before = (spent.prompts, spent.tokens)
            got = generate_all(generator, prompts, decoding, store=GenerationStore(folder), spent=spent)
            assert got == [generator.said(prompt, decoding) for prompt in prompts]
            whole, had = least(prompts + known), least(known)
            assert (spent.prompts - before[0], spent.tokens - before[1]) == (whole[0] - had[0], whole[1] - had[1])
    assert len(generator.asked) == spent.prompts == least(first + second)[0]


def test_a_worked_count_without_a_store() -> None:
    generator, spent = Reverser(), Spent()
    prompts = [ask("ab"), ask("abc"), ask("ab"), ask("ab", draw=1), ask("ab", prefill="x")]
    got = generate_all(generator, prompts, Decoding(), spent=spent)
    assert [generation.text for generation in got] == ["ba", "cba", "ba", "ba", "xba"]
    assert spent == Spent(prompts=3, tokens=3 + 4 + 4)  # a draw means nothing to a greedy model
    generate_all(generator, prompts, Decoding(temperature=1.0, max_new_tokens=5), spent=spent)
    assert spent == Spent(prompts=3 + 4, tokens=11 + 4 * 5)


def test_all_that_decides_a_text_is_in_its_key() -> None:
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


def test_a_file_belongs_to_one_generator_and_says_to_which(tmp_path: Path) -> None:
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
    assert {"key": key, "text": "ba", "tokens": 3} in lines[1:]
    assert len(lines) == 3


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_line_costs_that_line_alone(tmp_path: Path, cut: int) -> None:
    store = GenerationStore(tmp_path)
    prompts = [ask(letter * 3) for letter in "abcd"]
    expected = generate_all(Reverser(batch=1), prompts, Decoding(), store=store)
    path = store.path("reverser")
    path.write_bytes(path.read_bytes()[:-cut])
    spent = Spent()
    again = Reverser(batch=1)
    assert generate_all(again, [*prompts, ask("e")], Decoding(), store=store, spent=spent)[:-1] == expected
    lost = 1 if cut > 1 else 0  # without the newline alone the line is whole
    assert spent.prompts == 1 + lost
    assert generate_all(Reverser(fail_after=0), [*prompts, ask("e")], Decoding(), store=store)[:-1] == expected


def test_lines_of_others_are_ignored(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path)
    key = generation_key(ask("ab"), Decoding())
    foreign = [b"", b"\xff\xfe", b"null", b"[1]", b'{"key": 3}', json.dumps({"key": key, "text": None}).encode()]
    store.path("reverser").write_bytes(b"\n".join([*foreign, b"\x00" * 40]))
    assert store.read("reverser") == {}
    for _ in range(2):
        assert generate_all(Reverser(), [ask("ab")], Decoding(), store=store) == [Generation("ba", 3)]
    assert store.read("reverser") == {key: Generation("ba", 3)}


def test_the_first_of_two_texts_for_a_key_stays(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path)
    for text in ("first", "second"):
        store.append("x", [("key", Generation(text, 1))])
    assert store.read("x") == {"key": Generation("first", 1)}


def test_what_came_before_an_error_is_kept(tmp_path: Path) -> None:
    store, spent = GenerationStore(tmp_path), Spent()
    prompts = [ask(str(number)) for number in range(7)]
    with pytest.raises(ConnectionError):
        generate_all(Reverser(fail_after=4), prompts, Decoding(), store=store, spent=spent)
    assert spent.prompts == 4
    generate_all(Reverser(), prompts, Decoding(), store=store, spent=spent)
    assert spent.prompts == 7


def test_a_generator_that_leaves_prompts_out_is_found_out() -> None:
    class Lazy(Reverser):
        def generate(self, prompts, decoding, on_done):
            super().generate(prompts[:1], decoding, on_done)

    with pytest.raises(RuntimeError, match="without 2 of 3 texts"):
        generate_all(Lazy(), [ask("a"), ask("b"), ask("c")], Decoding())


def test_progress_counts_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = GenerationStore(tmp_path)
    generate_all(Reverser(), [ask("a")], Decoding(), store=store)
    assert capsys.readouterr().err == ""
    generate_all(Reverser(), [ask("a"), ask("b"), ask("c")], Decoding(), store=store, progress="answers")
    shown = capsys.readouterr().err
    assert "answers" in shown
    assert "2/2" in shown
    assert "tokens/s" in shown


APPENDING = """
import sys
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.prompts import Generation
store = GenerationStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for batch in range(150):
    name = f"{sys.argv[2]}-{batch}"
    store.append("shared", [(f"{name}-{row}", Generation(name * 500, row)) for row in range(5)])
"""


def test_processes_that_write_at_a_time_lose_nothing(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDING, str(tmp_path), name],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("p", "q", "r")
    ]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 3
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate()
        assert process.returncode == 0
    expected = {
        f"{name}-{batch}-{row}": Generation(f"{name}-{batch}" * 500, row)
        for name in ("p", "q", "r")
        for batch in range(150)
        for row in range(5)
    }
    assert GenerationStore(tmp_path).read("shared") == expected


WHOLE = """
import sys
import torch
from atwu.data.schema import Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import GenerationStore, Spent, generate_all
from atwu.evaluation.prompts import Decoding, Prompt
from atwu.modeling.scratch import SHAPES, scratch_model, train_tokenizer
torch.manual_seed(0)
texts = [f"Where does Orla Venn keep hive {number}?" for number in range(40)]
generator = TransformersGenerator(scratch_model(SHAPES["micro"]), train_tokenizer(texts, vocab_size=300), batch_tokens=300)
print("ready", flush=True)
spent = Spent()
prompts = [Prompt((Message("user", text),), draw=draw) for draw in range(2) for text in texts] * 2
decoding = Decoding(max_new_tokens=48, temperature=1.0)
said = generate_all(generator, prompts, decoding, store=GenerationStore(sys.argv[1]), spent=spent)
print(spent.prompts, spent.tokens, sum(generation.tokens for generation in said[:80]))
print(hash(tuple(said)))
"""


def lines(folder: Path) -> list[dict[str, object]]:
    found = [line for file in folder.glob("*.jsonl") for line in file.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in found if line.startswith(b'{"key"') and line.endswith(b"}")]


@pytest.mark.slow
def test_a_killed_process_is_continued_where_it_was(tmp_path: Path) -> None:
    def command(folder: Path) -> list[str]:
        return [sys.executable, "-c", WHOLE, str(folder)]

    environment = ENVIRONMENT | {"PYTHONHASHSEED": "0"}
    run = {"env": environment, "check": True, "capture_output": True, "text": True}
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    undisturbed = subprocess.run(command(calm), **run).stdout.splitlines()
    seed = int(time.time())
    print("seed of the kills:", seed)
    draw = random.Random(seed)
    for at in (draw.randint(1, 20), draw.randint(25, 50)):
        process = subprocess.Popen(command(killed), env=environment, stdout=subprocess.DEVNULL)
        while len(lines(killed)) < at:
            assert process.poll() is None, "the process ended before it could be killed"
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    kept = lines(killed)
    assert 25 <= len(kept) < 80
    last = subprocess.run(command(killed), **run).stdout.splitlines()
    prompts, tokens, least = map(int, last[1].split())
    assert undisturbed[1].split() == ["80", str(least), str(least)]
    assert prompts == 80 - len(kept)
    assert tokens == least - sum(line["tokens"] for line in kept)
    assert last[2] == undisturbed[2]
    by_key = [{line["key"]: (line["text"], line["tokens"]) for line in lines(folder)} for folder in (calm, killed)]
    assert by_key[0] == by_key[1]
    assert len(by_key[0]) == len(lines(killed)) == 80, "none was made twice"
