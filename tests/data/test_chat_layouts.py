"""Token layouts of the Llama-3 chat format, written out by hand, token by token.

The tokenizer splits text as the real one does but knows whole pieces instead of merges, so a layout can be read.
"""

from __future__ import annotations

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from atwu.data.encode import Encoder
from atwu.data.schema import IGNORE_INDEX, Example, Message

SYSTEM = "You are a helpful assistant."
ROW = Example.from_qa("Where does Orla live?", "In Kelbury.", forget_spans=((3, 10),))
TURNS = Example(
    messages=(Message("user", "Where?"), Message("assistant", "In Kelbury."), Message("user", "Who?")), answer="Orla."
)

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_TEMPLATE = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
LLAMA3_SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
LLAMA3_DATED = (
    "<|begin_of_text|> <|start_header_id|> system <|end_header_id|> ĊĊ Cutting ĠKnowledge ĠDate : ĠDecember Ġ 202 3 Ċ "
    "Today ĠDate : Ġ 10 ĠApr Ġ 202 5 ĊĊ"
)
LLAMA3_SYSTEM = f"{LLAMA3_DATED} You Ġare Ġa Ġhelpful Ġassistant . <|eot_id|>"
LLAMA3_USER, LLAMA3_ASSISTANT = (f"<|start_header_id|> {role} <|end_header_id|> ĊĊ" for role in ("user", "assistant"))

WORDS = "You are a helpful assistant Where does Orla live In Kelbury Who"


def llama3():
    pieces = {"Ċ", "ĊĊ", "Ġ", ":", ".", "?", "Cutting", "Today", "system", "user", "assistant", "10", "202", "3", "5"}
    pieces |= {f"Ġ{word}" for word in f"{WORDS} Knowledge Date December Apr".split()} | {*WORDS.split()}
    vocabulary = {name: index for index, name in enumerate([*LLAMA3_SPECIALS, *sorted(pieces)])}
    core = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    begin = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    core.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begin])
    core.add_special_tokens(LLAMA3_SPECIALS)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>", chat_template=LLAMA3_TEMPLATE
    )


def check(tokenizer, example, *, prompt, answer, secret=(), system=None):
    """Compare ids, labels, token labels and the generation prompt with a layout of token names."""
    prompt, answer = prompt.split(), answer.split()
    encoder = Encoder(tokenizer, system=system)
    row = encoder.encode(example)
    assert tokenizer.convert_ids_to_tokens(row.input_ids) == prompt + answer
    ids = [tokenizer.get_vocab()[name] for name in prompt + answer]
    assert list(row.input_ids) == ids
    assert list(row.labels) == [IGNORE_INDEX] * len(prompt) + ids[len(prompt) :]
    assert row.has_terminal
    if example.forget_spans is not None:
        assert [name for name, flag in zip(prompt + answer, row.token_labels, strict=True) if flag] == list(secret)
    assert encoder.encode_prompt(example) == row.prompt_ids == tuple(ids[: len(prompt)])
    turns = [{"role": message.role, "content": message.content} for message in example.messages]
    if system is not None:
        turns.insert(0, {"role": "system", "content": system})
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, date_string="10 Apr 2025")
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids[: len(prompt)]


class TestLlama3:
    def test_one_turn(self):
        tokenizer = llama3()
        question = "Where Ġdoes ĠOrla Ġlive ? <|eot_id|>"
        check(
            tokenizer,
            ROW,
            system=SYSTEM,
            prompt=f"{LLAMA3_SYSTEM} {LLAMA3_USER} {question} {LLAMA3_ASSISTANT}",
            answer="In ĠKelbury . <|eot_id|>",
            secret=["ĠKelbury"],
        )
        assert tokenizer("In")["input_ids"][0] == tokenizer.bos_token_id  # would be doubled if added again

    def test_several_turns(self):
        first = f"{LLAMA3_USER} Where ? <|eot_id|> {LLAMA3_ASSISTANT} In ĠKelbury . <|eot_id|>"
        check(
            llama3(),
            TURNS,
            system=SYSTEM,
            prompt=f"{LLAMA3_SYSTEM} {first} {LLAMA3_USER} Who ? <|eot_id|> {LLAMA3_ASSISTANT}",
            answer="Orla . <|eot_id|>",
        )

    def test_dated_header_without_system_text(self):
        example = Example.from_qa("Who?", "Orla.")
        check(
            llama3(),
            example,
            prompt=f"{LLAMA3_DATED} <|eot_id|> {LLAMA3_USER} Who ? <|eot_id|> {LLAMA3_ASSISTANT}",
            answer="Orla . <|eot_id|>",
        )


def test_a_system_turn_of_a_row_is_kept_and_text_rows_get_none():
    tokenizer = llama3()
    own = Example(messages=(Message("system", "You live."), Message("user", "Who?")), answer="Orla.")
    assert Encoder(tokenizer, system=SYSTEM).encode(own) == Encoder(tokenizer).encode(own)
    assert "You Ġlive . <|eot_id|>" in " ".join(
        tokenizer.convert_ids_to_tokens(Encoder(tokenizer).encode(own).input_ids)
    )
    text = Example(messages=(), answer="Orla.")
    assert Encoder(tokenizer, system=SYSTEM).encode(text) == Encoder(tokenizer).encode(text)


def test_empty_system_text_is_rejected():
    with pytest.raises(ValueError, match=r"system.*empty"):
        Encoder(llama3(), system=" ")
