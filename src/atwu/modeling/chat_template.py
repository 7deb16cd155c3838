"""Chat templates given by the user, and arguments of chat templates such as `enable_thinking`.

Arguments become defaults inside the template, so that a saved tokenizer renders the same in transformers, vLLM and
llama.cpp without them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from atwu._file_reading import file_text, parse_json

_OURS = frozenset({"messages", "add_generation_prompt"})
"""Arguments that the encoder sets."""


def template_arguments(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    arguments = parse_json(text, what="chat_template_kwargs")
    if not isinstance(arguments, dict) or not all(name.isidentifier() for name in arguments):
        raise ValueError(
            f"""chat_template_kwargs must be a JSON object such as {{"enable_thinking": false}}, got {text!r:.60}."""
        )
    if taken := sorted(_OURS & arguments.keys()):
        raise ValueError(f"chat_template_kwargs cannot set {taken[0]!r}, which depends on the row; leave it out.")
    return arguments


def check_template(path: str | None, arguments: str | None) -> None:
    """Check a template file and arguments, as far as possible without the tokenizer."""
    if path is not None:
        template_text(path)
    template_arguments(arguments)


def template_text(path: str) -> str:
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"chat template {path} not found; give a Jinja file.")
    text = file_text(file)
    if not text.strip():
        raise ValueError(f"chat template {path} is empty; give a Jinja template.")
    return text


def set_chat_template(tokenizer: Any, path: str | None, arguments: str | None) -> None:
    """Give a tokenizer the template of a file and the arguments of a JSON object."""
    if path is not None:
        tokenizer.chat_template, tokenizer.chat_template_source = template_text(path), path
    values = template_arguments(arguments)
    if not values:
        return
    if not tokenizer.chat_template:
        raise ValueError(f"chat_template_kwargs {arguments} need a chat template; the tokenizer has none.")
    if isinstance(template := tokenizer.chat_template, dict):  # several by name
        tokenizer.chat_template = {name: _with_defaults(text, values) for name, text in template.items()}
    else:
        tokenizer.chat_template = _with_defaults(template, values)


def _with_defaults(template: str, arguments: dict[str, Any]) -> str:
    for name in arguments:
        if not re.search(rf"\b{name}\b", template):
            raise ValueError(f"the chat template does not use the argument {name!r}; check its name.")
    # The line break is trimmed, as after every block of a chat template.
    defaults = "".join(
        f"{{% if {name} is not defined %}}{{% set {name} = {value!r} %}}{{% endif %}}\n"
        for name, value in arguments.items()
    )
    if template.startswith(defaults):
        return template
    return defaults + template
