"""`transformers serve`, the OpenAI-compatible server of transformers, as judge and as evaluated model; with a tiny model."""

from __future__ import annotations

import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from atwu.data.row_parsing import write_rows
from atwu.data.schema import Example, Message
from atwu.evaluation.backends import EndpointGenerator, TransformersGenerator
from atwu.evaluation.facts.askings import form_askings
from atwu.evaluation.facts.fact_table import answerer, ask_facts
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.evaluation.result import EvalResult, read_result
from atwu.judge.chat_model import ChatRequest
from atwu.judge.client import ChatServerError, OpenAIChat
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.asking.ask import ask as ask_model
from tests.commands import Started, run_command
from tests.judge.conftest import ask

pytestmark = pytest.mark.night
for module in ("openai", "fastapi", "uvicorn"):
    pytest.importorskip(module, reason="needs transformers[serving] and openai")

SENTENCES = "YES NO Orla Venn Tavi Brook was born in Kelbury keeps bees near the harbour You check answers"
SPECIAL = ["<unk>", "<end>", "<user>", "<system>", "<assistant>"]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save_chat_model(folder: Path) -> None:
    """Write a tiny random model of a few words with a chat template."""
    core = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(SPECIAL + SENTENCES.split())}, unk_token="<unk>")
    )
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", eos_token="<end>", additional_special_tokens=SPECIAL[2:]
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=40,
        bos_token_id=None,
        eos_token_id=1,
    )
    config.initializer_range = 0.6
    LlamaForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "tiny"
    save_chat_model(path)
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["serve", folder, "--host", "127.0.0.1", "--port", port, "--device", "cpu"]
    server = Started(options, code="from transformers.cli.transformers import main; main()")
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()


def _wait_for(address: str, server: Started) -> None:
    for _ in range(600):
        if server.ended():
            break
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"transformers serve did not start:\n{server.said()[-3000:]}")


def test_served_replies_equal_local_ones(folder: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    system = Message("system", "You check answers")
    texts = ["Orla Venn was born in Kelbury", "Tavi Brook keeps bees"]
    requests = [ChatRequest((system, Message("user", text)), max_tokens=8) for text in texts]
    served = ask(OpenAIChat(str(folder), base_url=address, max_retries=1), requests)
    assert [reply.error for reply in served] == [None, None]
    generator = TransformersGenerator(*open_model(str(folder), ModelLoadArgs(), device="cpu"))
    here = generate_all(generator, [Prompt(request.messages) for request in requests], Decoding(max_new_tokens=8))
    assert [(reply.text, reply.completion_tokens) for reply in served] == [(said.text, said.tokens) for said in here]
    assert all(reply.text and reply.prompt_tokens > 0 for reply in served)
    assert [reply.completion_tokens for reply in served] == [8, 3], "one cut, one with its end token counted"


def test_a_model_that_is_not_served_is_rejected_at_once(address: str) -> None:
    chat = OpenAIChat("kelbury/unheard-of", base_url=address, max_retries=1)
    with pytest.raises(ChatServerError, match=r"model.*'kelbury/unheard-of'"):
        ask(chat, [ChatRequest((Message("user", "bees"),), max_tokens=4)] * 3)


def test_a_served_model_gets_the_same_scores_as_locally(folder: Path, address: str, tmp_path: Path) -> None:
    """Metrics of answers are equal; metrics of probabilities are left out or rejected by name."""
    rows = [
        Example.from_qa("Orla Venn was born in", "Kelbury keeps bees near the harbour"),
        Example.from_qa("Tavi Brook", "keeps bees in Kelbury"),
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    where = ("--forget", tmp_path / "rows.jsonl", "--max-new-tokens", 8)
    surroundings = os.environ | {"ATWU_CACHE": str(tmp_path / "cache"), "COLUMNS": "200"}

    def measured(name: str, *more: object) -> EvalResult:
        output = tmp_path / f"{name}.json"
        done = run_command(["evaluate", "--model", folder, *where, "--output", output, *more], env=surroundings)
        assert done.returncode == 0, done.stderr
        return read_result(output)

    asked = ("--model-url", address)
    served = measured("served", "--metrics", "rouge,key_tokens,judge", *asked)
    here = measured("here", "--metrics", "rouge,key_tokens,judge", "--device", "cpu")
    assert set(here.sets["forget"]) - set(served.sets["forget"]) == {"key_token_probability", "key_token_accuracy"}
    assert served.rows["forget"].texts == here.rows["forget"].texts
    assert any(served.rows["forget"].texts["answer"])
    for name, values in served.rows["forget"].metrics.items():
        assert values == here.rows["forget"].metrics[name], name
    assert any("weights" in warning for warning in served.warnings)
    assert (served.settings["backend"], here.settings["backend"]) == ("chat", "transformers")
    done = run_command(["evaluate", "--model", folder, *where, *asked, "--metrics", "memorization"], env=surroundings)
    assert done.returncode == 1
    assert re.search("'memorization'.*weights", " ".join(done.stderr.split()))


def test_a_served_model_says_the_same_to_questions_as_its_folder(folder: Path, address: str, tmp_path: Path) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("Where was Orla Venn born?\nTavi Brook keeps\n", encoding="utf-8")
    here = ask_model(folder, questions=questions, device="cpu")
    served = ask_model(folder, questions=questions, model_url=address)
    assert served.interrupted is None
    said = {fact.row.question: fact.row.answer for fact in here.facts}
    assert {fact.row.question: fact.row.answer for fact in served.facts} == said
    assert served.facts


def test_the_facts_of_a_served_model_are_those_of_its_folder(folder: Path, address: str) -> None:
    """The table that a verdict is decided from: every fact in every form, with answers and what they state."""
    rows = [Example.from_qa("Orla Venn was born in", "Kelbury keeps bees"), Example.from_qa("Tavi Brook", "keeps bees")]
    how = Decoding(max_new_tokens=8)
    askings = form_askings(rows, forms=("question", "blank", "complete", "lower_case"))
    model, tokenizer = open_model(str(folder), ModelLoadArgs(), device="cpu")
    here = ask_facts(answerer(TransformersGenerator(model, tokenizer), decoding=how), askings)
    chat = OpenAIChat(str(folder), base_url=address, max_retries=1)
    assert ask_facts(answerer(EndpointGenerator(chat), decoding=how), askings) == here
    assert any(record.answer for record in here.records)
