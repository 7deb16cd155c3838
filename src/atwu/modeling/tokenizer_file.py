"""The tokenizer that tokenizer.json describes, not one that a class of transformers builds in its place; and chat templates.

Since version 5, classes of transformers with an `__init__` of their own take vocabulary and merges from tokenizer.json and
replace its normalizer, pre-tokenizer and decoder by those of the class. Where `tokenizer_class` names another class than
the file was made for, the ids change without a message, and a saved tokenizer keeps the change for good.

Arguments of chat templates, such as `enable_thinking`, become defaults inside the template, so that a saved tokenizer renders
the same in transformers, vLLM and llama.cpp without them.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._file_reading import file_text, parse_json
from atwu.errors import ModelFileError
from atwu.modeling.model_files import TOKENIZER

if TYPE_CHECKING:
    from tokenizers import Tokenizer


logger = logging.getLogger(__name__)

_PROBE = (
    "Born in 1987, on 03/12/2024: 1234567 or 3.14159? It's they'll WE'VE don’t; "
    "two  spaces,   three\tand a tab.\n\nA   new line \r\n  ends here  "
    "Zoë Škvorecký naïve straße ﬁ ½ · 東京は2024年、你好。 안녕 привет שלום नमस्ते 🙂👩‍👩‍👧 def f(x):\n    return x_1 + 2 # done"
)
"""A text in which pre-tokenizers and normalizers differ: digits, spaces, contractions, capitals, accents, scripts, emoji."""


def follow_file(tokenizer: Any, source: str, *, revision: str | None = None) -> Any:
    """Return a tokenizer that encodes as the tokenizer.json of its folder or Hub name does.

    Args:
        tokenizer: as transformers loaded it from `source`. A class whose code comes with the checkpoint is returned as it
            is: who allowed this code wants what it does.

    Returns:
        The same tokenizer where it agrees with the file, or where there is no file; otherwise, with a warning, one without
        the class, with the same special tokens and chat template.

    Raises:
        ModelFileError: transformers changes the file's tokenizer without a class, too.
    """
    from transformers import PreTrainedTokenizerFast

    path = tokenizer_file(source, revision=revision)
    written_by_others = type(tokenizer).__module__.startswith("transformers_modules.")
    if path is None or written_by_others or not tokenizer.is_fast:
        return tokenizer
    difference = difference_from_file(tokenizer, path)
    if type(tokenizer) is PreTrainedTokenizerFast:
        plain = tokenizer
    else:
        plain = PreTrainedTokenizerFast.from_pretrained(source, revision=revision or "main")
        difference = difference or _difference_around_tokens(tokenizer, plain)
    if difference is None:
        return tokenizer
    if difference_from_file(plain, path) is not None:
        raise ModelFileError(
            f"{source}: with its tokenizer_config.json transformers loads another tokenizer than {TOKENIZER} describes "
            f"({difference}); save the tokenizer again with a current version of transformers."
        )
    vocabulary = plain.get_vocab()
    # A class has special tokens by default, which belong to a tokenizer as far as its file has them.
    for name, token in tokenizer.special_tokens_map.items():
        if isinstance(token, str) and token in vocabulary and getattr(plain, name, None) is None:
            setattr(plain, name, token)
    logger.warning(
        "warning: %s: the tokenizer class %s does not encode as %s does (%s); using the file without the class",
        source,
        type(tokenizer).__name__,
        TOKENIZER,
        difference,
    )
    return plain


def warn_of_rebuilt(tokenizer: Any) -> None:
    """Warn if a tokenizer that was given as an object encodes otherwise than the tokenizer.json of its folder."""
    from transformers import PreTrainedTokenizerFast

    path = Path(str(getattr(tokenizer, "name_or_path", ""))) / TOKENIZER
    # Without a class of its own a tokenizer differs only by what the caller changed.
    if type(tokenizer) is PreTrainedTokenizerFast or not getattr(tokenizer, "is_fast", False) or not path.is_file():
        return
    difference = difference_from_file(tokenizer, path)
    if difference is not None:
        logger.warning(
            "warning: the tokenizer of class %s does not encode as %s does (%s); "
            "PreTrainedTokenizerFast.from_pretrained(%r) does, or pass the model by its name",
            type(tokenizer).__name__,
            path,
            difference,
            str(path.parent),
        )


def tokenizer_file(source: str, *, revision: str | None = None) -> Path | None:
    """Return the tokenizer.json of a folder or Hub name; None without one."""
    from transformers.utils.hub import cached_file

    path = cached_file(
        source,
        TOKENIZER,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        return None
    return Path(path)


def difference_from_file(tokenizer: Any, path: Path) -> str | None:
    """Describe where a tokenizer encodes or decodes otherwise than a tokenizer.json; None where they agree.

    Beginning and end tokens are left out, which tokenizer_config.json may set.
    """
    from tokenizers import Tokenizer

    stored = Tokenizer.from_file(str(path))
    # A file may ask for both, which transformers leaves to its caller.
    stored.no_truncation()
    stored.no_padding()
    try:
        ids = list(tokenizer(_PROBE, add_special_tokens=False)["input_ids"])
    except Exception as error:  # the class that tokenizers raises
        return f"it cannot encode: {error}"
    vocabulary = tokenizer.get_vocab()
    moved = next((token for token, place in stored.get_vocab().items() if vocabulary.get(token) != place), None)
    if moved is not None:
        return f"the token {moved!r} has the id {vocabulary.get(moved)} instead of {stored.token_to_id(moved)}"
    # A small vocabulary may encode different pieces the same, until another text comes.
    pairs = zip(_pieces(tokenizer.backend_tokenizer), _pieces(stored), strict=False)
    piece = next(((ours, theirs) for ours, theirs in pairs if ours != theirs), None)
    if piece is not None:
        return f"it cuts {piece[0]!r} where the file cuts {piece[1]!r}"
    expected = stored.encode(_PROBE, add_special_tokens=False).ids
    if ids != expected:
        first = next((place for place, pair in enumerate(zip(ids, expected, strict=False)) if pair[0] != pair[1]), 0)
        return f"token {first} of a probe text has the id {ids[first]} instead of {expected[first]}"
    if tokenizer.backend_tokenizer.decode(ids) != stored.decode(ids):
        return "it decodes a probe text differently"
    return None


def _pieces(tokenizer: Tokenizer) -> list[str]:
    """Return the pieces of the probe text that no token crosses."""
    text = _PROBE
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    if tokenizer.pre_tokenizer is None:
        return [text]
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def _difference_around_tokens(tokenizer: Any, plain: Any) -> str | None:
    """Describe where a class treats the text beside an added token otherwise, as that of a turn in a chat template.

    This is not compared with the file, whose added tokens tokenizer_config.json may change.
    """
    for token in plain.added_tokens_decoder.values():
        text = f"one {token} two{token}three"
        ours, theirs = (list(encode(text, add_special_tokens=False)["input_ids"]) for encode in (tokenizer, plain))
        if ours != theirs:
            return f"it encodes {text!r} as {ours} instead of {theirs}"
    return None


# Chat templates

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
    taken = sorted(_OURS & arguments.keys())
    if taken:
        raise ValueError(f"chat_template_kwargs cannot set {taken[0]!r}, which depends on the row; leave it out.")
    return arguments


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
    template = tokenizer.chat_template
    if isinstance(template, dict):  # several by name
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
