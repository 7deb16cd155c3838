"""Model card of an unlearned or fine-tuned model, with the Hub's metadata, and texts without private paths or secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from importlib import resources
from pathlib import Path, PurePath
from typing import Any

from atwu.modeling.named_models import SHORT_NAME


def model_card(record: Mapping[str, Any]) -> str:
    """Return the model card in Markdown for a finished run, from its `run.json` record."""
    from huggingface_hub import ModelCardData
    from jinja2 import Environment, StrictUndefined

    text = resources.files(__package__).joinpath("model_card.md").read_text(encoding="utf-8")
    # Strict, so that a name which no record has is an error of a test and no empty cell of a card.
    template = Environment(trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(text)
    source, result = record["original_model"], record["result"]
    base, licence = "a model in memory", None
    if source["model"]:
        base, licence = _short(source["model"]), _licence(source["model"])
    name = base
    if source["scratch"]:
        name = f"a new model of shape {source['scratch']}"
    on_hub = base == source["model"] and base != SHORT_NAME  # the Hub links a base model, so it must be there
    adapter = result["kind"] == "adapter"
    data = ModelCardData(
        library_name="peft" if adapter else "transformers",
        base_model=base if on_hub else None,
        license=licence,
        tags=["atwu", *["lora"] * adapter, *["unlearning"] * ("recipe" in record)],
    )
    return f"---\n{data.to_yaml()}\n---\n\n" + template.render(
        {"recipe": None} | dict(record),
        name=name,
        adapter=adapter,
        lora=result["lora"],
        source=source,
        public=public_text,
    )


def _licence(model: str) -> str | None:
    """Return the licence that the original model's own card names, if the card is in its folder or in the Hub's cache."""
    from huggingface_hub import ModelCard, try_to_load_from_cache
    from yaml import YAMLError

    folder = Path(model).expanduser()
    card = folder / "README.md" if folder.exists() else try_to_load_from_cache(model, "README.md")
    if not isinstance(card, str | Path) or not Path(card).is_file():
        return None
    try:
        licence: str | None = ModelCard.load(card, ignore_metadata_errors=True).data.license
    except (ValueError, YAMLError):  # somebody else's card
        return None
    return licence


def public_record(record: Any) -> Any:
    """Return a `run.json` record, or any plain data, with all texts passed through `public_text`."""
    if isinstance(record, Mapping):
        return {key: public_record(value) for key, value in record.items() if key not in _OWN}
    if isinstance(record, list | tuple):
        return [public_record(value) for value in record]
    if isinstance(record, str | PurePath):
        return public_text(str(record))
    return record


def public_command(text: str) -> str:
    """Return a command line with each word passed through `public_text`; everything else is unchanged."""

    def word(match: re.Match[str]) -> str:
        try:
            (plain,) = shlex.split(match[0])
        except ValueError:
            return public_text(match[0])
        public = public_text(plain)
        # Nothing private in it: it keeps the quotes with which it was written.
        if public == plain:
            return public_text(match[0])
        return shlex.quote(public)

    return _SHELL_WORD.sub(word, text)


def public_text(text: str) -> str:
    """Remove private parts of a text: paths are reduced to their last part, URLs lose user and query.

    A path starts with a slash, a drive or `~`, or contains `..`; it may occur in a sentence, after `NAME=` or `KIND:`,
    or in a list of sources joined by " + ". Anything else that looks like a path may be a Hub name and is kept.
    """
    return " + ".join(map(_part, text.split(" + ")))


_OWN = frozenset({"cache_dir", "output_dir", "logging_dir"})
"""Settings that only contain local paths."""

# A word ends at a blank outside quotes; quoted parts and escaped characters belong to it.
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""")
# User and query go, since they may hold a token.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s'\"]*@)?(?P<rest>[^\s'\"?#]*)[^\s'\"]*")
_START = r"(?:~[\w.-]*(?=[/\\])|[A-Za-z]:(?=[/\\])|(?:[\w.-]+[/\\])*\.\.(?=[/\\]))?[/\\]"
_WHOLE = re.compile(rf"(?P<before>--?[\w-]+=|[\w.-]+=|\w\w+:)?(?P<path>{_START}[^/\\\s].*)")
"""A text that is a single path; it may contain spaces."""
_INSIDE = re.compile(rf"(?<![^\s=:,;'\"(\[]){_START}(?:[^\s/\\'\"]+[/\\])*(?P<name>[^\s/\\'\"]+)[/\\]?")


def _part(text: str) -> str:
    whole = _WHOLE.fullmatch(text)
    if whole is not None and "://" not in text and "\n" not in text:
        return (whole["before"] or "") + re.split(r"[/\\]", whole["path"].rstrip("/\\"))[-1]
    return _INSIDE.sub(lambda match: match["name"], _URL.sub(_without_secrets, text))


def _without_secrets(url: re.Match[str]) -> str:
    if url["scheme"].lower() == "file://":
        return Path(url["rest"]).name
    return url["scheme"] + url["rest"]


def _short(model: str) -> str:
    """Return a Hub name unchanged, and only the last part of a folder, since model cards are published."""
    if Path(model).expanduser().exists():
        return Path(model).name
    return public_text(model)
