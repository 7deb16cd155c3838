"""Chat templates of the user, and arguments that stay with the saved tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atwu.modeling.load import load_tokenizer
from atwu.modeling.scratch import train_tokenizer
from atwu.modeling.tokenizer_file import set_chat_template

TEMPLATE = """\
{%- macro name(m) %}{{ company }}{{ m.role }}{% endmacro %}
{% for m in messages %}
<|{{ name(m) }}|>{{ m.content }}{% if loop.last and not enable_thinking %}<think></think>{% endif %}
{% endfor %}"""
TURNS = [{"role": "user", "content": "Who?"}]


@pytest.fixture
def tokenizer() -> Any:
    return train_tokenizer(["Who keeps bees?"], vocab_size=300)


def rendered(tokenizer: Any, **arguments: Any) -> str:
    text: str = tokenizer.apply_chat_template(TURNS, tokenize=False, **arguments)
    return text


def test_arguments_are_defaults_of_the_saved_template(tokenizer: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {"enable_thinking": True, "company": 'Ü\'s "{{ x }}"\n'}
    text = json.dumps(given)
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    tokenizer.chat_template = TEMPLATE
    wanted = {name: rendered(tokenizer, **given | {"company": name}) for name in (given["company"], "")}
    tokenizer.chat_template = None
    set_chat_template(tokenizer, str(tmp_path / "mine.jinja"), text)
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = load_tokenizer(str(tmp_path / "saved"))
    assert rendered(saved) == rendered(tokenizer) == wanted[given["company"]]
    assert rendered(saved, company="") == wanted[""]  # a server can still set them
    again = load_tokenizer(str(tmp_path / "saved"), chat_template_kwargs=text)
    assert again.chat_template == saved.chat_template


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("none.jinja", None, r"none.jinja not found"),
        ("empty.jinja", None, r"is empty"),
        ("mine.jinja", "[1]", r"JSON object such as"),
        ("mine.jinja", "{enable}", r"invalid JSON"),
        ("mine.jinja", '{"messages": 1}', r"'messages', which depends on the row"),
        ("mine.jinja", '{"enable_thinkng": true}', r"does not use the argument 'enable_thinkng'"),
        (None, '{"enable_thinking": true}', r"the tokenizer has none"),
    ],
)
def test_wrong_templates_are_one_error(
    tokenizer: Any, path: str | None, arguments: str | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    (tmp_path / "empty.jinja").write_text("\n")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        set_chat_template(tokenizer, None if path is None else str(tmp_path / path), arguments)
