"""Encoding with chat templates like those of Llama-3 and ChatML, and with broken templates."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken

from atwu.data.encode import Encoder, template_terminal
from atwu.data.render import opening_of_thoughts, without_thoughts
from atwu.data.schema import IGNORE_INDEX, Example, Message

LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m['role'] }}<|/head|>\n\n{{ m['content'] | trim }}<|eot|>"
    "{% endfor %}{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token }}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] | trim }} {{ eos_token }}{% endif %}{% endfor %}"
)
PHI3 = "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|stop|>\n{% endfor %}{{ eos_token }}"
NO_END = "{% for m in messages %}## {{ m['role'] }}\n{{ m['content'] }}\n---\n{% endfor %}"
ROW = Example.from_qa("Who wrote The Glass Ferry?", "It was Tova Renn.", forget_spans=((7, 16),))


def chat(tokenizer_of, kind, template):
    tokenizer = tokenizer_of(kind)
    tokenizer.chat_template = template
    return tokenizer


def counted(tokenizer, row):
    return tokenizer.decode([label for label in row.labels if label != IGNORE_INDEX])


def flagged(row, example):
    pairs = zip(row.token_labels, row.answer_offsets, strict=True)
    return "".join(example.answer[slice(*span)] for flag, span in pairs if flag).strip()


def test_chatml_like_drops_what_follows_the_terminal_token(tokenizer_of):
    tokenizer = chat(tokenizer_of, "byte", CHATML)
    row = Encoder(tokenizer).encode(ROW)
    assert counted(tokenizer, row) == "It was Tova Renn.<|im_end|>"
    assert row.input_ids[-1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenizer.decode(row.prompt_ids).endswith("<|im_start|>assistant\n")
    assert flagged(row, ROW) == "Tova Renn"


@pytest.mark.parametrize("answer", ["  It was Tova Renn.\n", "\n It was Tova Renn."])
def test_spans_are_correct_if_the_template_strips_the_answer(tokenizer_of, answer):
    at = answer.index("Tova")
    example = Example.from_qa("Who?", answer, forget_spans=((at, at + 9),))
    tokenizer = chat(tokenizer_of, "byte", LLAMA)
    row = Encoder(tokenizer).encode(example)
    assert counted(tokenizer, row) == "It was Tova Renn.<|eot|>"
    assert flagged(row, example) == "Tova Renn"


@pytest.mark.parametrize("answer", ["user", "assistant", "<|eot|>", "im_end", "ATWU-ANSWER"])
def test_answer_that_looks_like_template_text_is_located(tokenizer_of, answer):
    tokenizer = chat(tokenizer_of, "byte", CHATML)
    row = Encoder(tokenizer).encode(Example.from_qa("user assistant ATWU-ANSWER?", answer))
    assert counted(tokenizer, row) == f"{answer}<|im_end|>"


@pytest.mark.parametrize("kind", ["byte", "metaspace", "byte-fallback"])
def test_space_between_prompt_and_answer_belongs_to_the_answer(tokenizer_of, kind):
    tokenizer = chat(tokenizer_of, kind, LLAMA2)
    row = Encoder(tokenizer).encode(ROW)
    # The space of the template between answer and terminal token is trained, too.
    assert counted(tokenizer, row).strip() == f"It was Tova Renn. {tokenizer.eos_token}"
    assert tokenizer.decode(row.prompt_ids).endswith("]")
    assert row.input_ids[-1] == tokenizer.eos_token_id
    assert flagged(row, ROW).rstrip(".") == "Tova Renn"  # the full stop may be in the same token as the name


@pytest.mark.parametrize("kind", ["byte", "metaspace", "byte-fallback"])
def test_special_tokens_that_include_the_next_line_break(tokenizer_of, kind):
    # As in Phi-3: header and end tokens include the whitespace on their right.
    tokenizer = chat(tokenizer_of, kind, PHI3)
    names = ["<|user|>", "<|assistant|>", "<|stop|>"]
    tokenizer.add_tokens([AddedToken(name, rstrip=True, special=True, normalized=False) for name in names])
    row = Encoder(tokenizer).encode(ROW)
    assert row.input_ids[row.answer_start - 1] == tokenizer.convert_tokens_to_ids("<|assistant|>")
    assert row.input_ids[-1] == tokenizer.convert_tokens_to_ids("<|stop|>")
    assert counted(tokenizer, row).lstrip() == "It was Tova Renn.<|stop|>"
    assert flagged(row, ROW).rstrip(".") == "Tova Renn"


QWEN3 = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}"
    "<think>\n{% if '</think>' in m['content'] %}"
    "{{ m['content'].split('</think>')[0].split('<think>')[-1].strip() }}{% endif %}"
    "\n</think>\n\n{{ m['content'].split('</think>')[-1].lstrip() }}{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    "template",
    [CHATML, QWEN3, QWEN3.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")],
    ids=["plain", "rewritten", "opened by the prompt"],
)
def test_thoughts_of_an_answer_stay_as_given(tokenizer_of, template):
    tokenizer, answer = chat(tokenizer_of, "byte", template), "<think>Tova, no doubt.</think> Tova Renn."
    row = Encoder(tokenizer).encode(Example.from_qa("Who?", answer))
    assert tokenizer.decode(row.prompt_ids).endswith("<|im_start|>assistant\n")
    assert counted(tokenizer, row) == f"{answer}<|im_end|>"


HARMONY = (
    "{% for m in messages %}{% if '<|channel|>' in m['content'] %}{{ raise_exception('thoughts have their own field') }}"
    "{% endif %}<|im_start|>{{ m['role'] }}{% if m['role'] == 'assistant' %}<|channel|>final{% endif %}<|message|>"
    "{{ m['content'] }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
    "{# <|channel|>analysis<|message|>THOUGHTS #}"
)
GEMMA = CHATML + "{# <|channel>thought\n ... <channel|> #}"


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (QWEN3, "<|im_start|>assistant\n<think>"),
        (QWEN3.replace("assistant\n{% endif", "assistant\n<think>\n{% endif"), "<|im_start|>assistant\n<think>"),
        (HARMONY, "<|im_start|>assistant<|channel|>analysis<|message|>"),
        (GEMMA, "<|im_start|>assistant\n<|channel>thought"),
    ],
    ids=["rewritten", "opened by the prompt", "in a channel that the template refuses", "in the channel of Gemma 4"],
)
def test_a_prompt_ends_with_the_beginning_of_thoughts(tokenizer_of, template, end):
    tokenizer = chat(tokenizer_of, "byte", template)
    opening = opening_of_thoughts(tokenizer)
    assert opening is not None
    prompt = tokenizer.decode(Encoder(tokenizer).encode_prompt(ROW, prefill=opening))
    assert prompt.endswith(end)
    assert prompt.count(opening) == 1
    assert "x" not in prompt.rpartition("assistant")[2]  # nothing of an answer


def test_a_model_whose_template_writes_no_thoughts_does_not_think(tokenizer_of):
    drops_thoughts = CHATML.replace("{{ m['content'] }}", "{{ m['content'].split('</think>')[-1] }}")
    for template in (CHATML, LLAMA, drops_thoughts, None):
        assert opening_of_thoughts(chat(tokenizer_of, "byte", template)) is None


@pytest.mark.parametrize(
    "text", ["<|channel>thought\nTova, no doubt.<channel|>Tova Renn.", "<think>Tova, no doubt.</think>\n\nTova Renn."]
)
def test_an_answer_is_what_follows_the_thoughts(text):
    assert without_thoughts(text) == "Tova Renn."
    assert without_thoughts(text[:20]) is None


@pytest.mark.parametrize("refused", ["system", "user"], ids=["a system turn", "none"])
def test_the_end_of_an_answer_is_found_whether_a_template_refuses_or_needs_a_system_turn(tokenizer_of, refused):
    strict = "{% if messages[0]['role'] == '" + refused + "' %}{{ raise_exception('no') }}{% endif %}" + CHATML
    tokenizer = chat(tokenizer_of, "byte", strict)
    assert template_terminal(tokenizer) == tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_marks_of_a_template_end_an_answer_also_if_they_are_not_special(tokenizer_of):
    tokenizer = chat(tokenizer_of, "byte", CHATML.replace("im_end", "turn_end"))
    tokenizer.add_tokens([AddedToken("<|turn_end|>", special=False), AddedToken("\n\n", special=False)])
    end = tokenizer.convert_tokens_to_ids("<|turn_end|>")
    assert end != tokenizer.eos_token_id
    assert template_terminal(tokenizer) == end
    assert counted(tokenizer, Encoder(tokenizer).encode(ROW)) == "It was Tova Renn.<|turn_end|>"
    tokenizer.chat_template = NO_END.replace("\n---\n", "\n\n")  # spaces end nothing
    assert template_terminal(tokenizer) == tokenizer.eos_token_id


def test_the_end_of_an_answer_is_found_behind_a_long_system_turn_of_the_template(tokenizer_of):
    tokenizer = chat(tokenizer_of, "byte", "{{ 'You help. ' * 400 }}" + CHATML)
    assert template_terminal(tokenizer) == tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_a_template_that_opens_thoughts_is_warned_of_unless_the_rows_have_some(tokenizer_of):
    opens = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    encoder = Encoder(chat(tokenizer_of, "byte", opens))
    assert (
        "ends prompts with <think>, but 1 answers have no thoughts" in encoder.encode_rows([ROW], what="f").warnings[0]
    )
    thinking = Example.from_qa("Who?", "<think>Hm.</think> Tova.")
    assert not encoder.encode_rows([thinking, Example((), "A text.")], what="f").warnings
    assert not Encoder(chat(tokenizer_of, "byte", CHATML)).encode_rows([ROW], what="f").warnings


def test_template_text_before_the_answer_belongs_to_the_prompt(tokenizer_of):
    # As in Qwen3: an empty thinking block comes between the header and the answer.
    thinking = CHATML.replace(
        "{{ m['content'] }}", "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m['content'] }}"
    )
    tokenizer = chat(tokenizer_of, "byte", thinking)
    row = Encoder(tokenizer).encode(ROW)
    assert tokenizer.decode(row.prompt_ids).endswith("assistant\n<think>\n\n</think>\n\n")
    assert counted(tokenizer, row) == "It was Tova Renn.<|im_end|>"


def test_template_without_terminal_token_gets_eos_and_loses_its_tail(tokenizer_of):
    tokenizer = chat(tokenizer_of, "byte", NO_END)
    row = Encoder(tokenizer).encode(ROW)
    assert counted(tokenizer, row) == "It was Tova Renn.<|end|>"


def test_token_across_the_boundary_is_cut_in_two(tokenizer_of):
    glued = "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'user' %}Kar{% endif %}{% endfor %}"
    tokenizer = chat(tokenizer_of, "byte", glued)
    example = Example.from_qa("Where? ", "sund.", forget_spans=((0, 4),))
    # " Karsund" is one token of this vocabulary, so tokenizing the whole text would hide the boundary.
    assert len(tokenizer.tokenize(" Karsund")) == 1
    row = Encoder(tokenizer).encode(example)
    assert counted(tokenizer, row) == "sund.<|end|>"
    assert tokenizer.decode(row.prompt_ids) == "Where? Kar"
    assert flagged(row, example) == "sund"


def test_a_template_that_prints_the_date_gives_the_same_ids_on_any_day(tokenizer_of):
    dated = "{% if date_string is defined %}{{ date_string }}{% else %}{{ strftime_now('%f') }}{% endif %}" + CHATML
    tokenizer = chat(tokenizer_of, "byte", dated)
    assert "10 Apr 2025" in tokenizer.decode(Encoder(tokenizer).encode(ROW).prompt_ids)
    tokenizer.chat_template = "{{ strftime_now('%A, %Y-%m-%d') }}" + CHATML
    assert "Thursday, 2025-04-10" in tokenizer.decode(Encoder(tokenizer).encode(ROW).prompt_ids)
    tokenizer.chat_template = """{{ strftime_now(format="%d'%m") }}""" + CHATML
    assert "10'04" in tokenizer.decode(Encoder(tokenizer).encode(ROW).prompt_ids)


@pytest.mark.parametrize("call", ["strftime_now(words)", "strftime_now('%Y' ~ '-%m')"])
def test_a_template_whose_date_cannot_be_fixed_is_refused(tokenizer_of, call):
    tokenizer = chat(tokenizer_of, "byte", f"{{% set words = '%Y' %}}{{{{ {call} }}}}{CHATML}")
    with pytest.raises(ValueError, match=r"strftime_now with a computed format, .*correct it"):
        Encoder(tokenizer).encode(ROW)


@pytest.mark.parametrize(
    "template",
    [
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + CHATML,
        CHATML.replace("for m in messages", "for m in messages if m['role'] != 'system'"),
    ],
    ids=["refused", "dropped"],
)
def test_a_system_turn_that_the_template_does_not_take_begins_the_first_user_turn(tokenizer_of, template):
    tokenizer = chat(tokenizer_of, "byte", template)
    example = Example(messages=(Message("system", "Hi."), Message("user", "Who?")), answer="Tova.")
    prompt = "<|im_start|>user\nHi.\n\nWho?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(Encoder(tokenizer).encode(example).prompt_ids) == prompt
    assert Encoder(tokenizer, system="Hi.").encode(Example.from_qa("Who?", "Tova.")) == Encoder(tokenizer).encode(
        example
    )


def test_template_errors_are_explained(tokenizer_of):
    refusing = "{{ raise_exception('no turns at all') }}" + CHATML
    with pytest.raises(ValueError, match=r"forget, row 1.*template.*no turns at all.*plain"):
        Encoder(chat(tokenizer_of, "byte", refusing)).encode_rows([ROW], what="forget")
    rewriting = CHATML.replace("m['content']", "m['content'] | replace('Renn', 'R.')")
    with pytest.raises(ValueError, match=r"'It was Tova Renn\.'"):
        Encoder(chat(tokenizer_of, "byte", rewriting)).encode(ROW)
    silent = "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}"
    with pytest.raises(ValueError, match=r"\b0 "):
        Encoder(chat(tokenizer_of, "byte", silent)).encode(ROW)
