"""The model card written beside an unlearned or fine-tuned checkpoint."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any


def model_card(record: Mapping[str, Any]) -> str:
    """Markdown for a finished run, from its `run.json` record."""
    source = record["starting_model"]
    name = _short(source["model"]) if source["model"] else "a model in memory"
    if source["scratch"]:
        name = f"a new model of shape {source['scratch']}"
    result = record["result"]
    adapter = result["kind"] == "adapter"
    front = ["---", f"library_name: {'peft' if adapter else 'transformers'}"]
    if adapter and _short(source["model"]) == source["model"]:
        front += [f"base_model: {source['model']}"]
    front += ["tags:", "- atwu", *(["- lora"] if adapter else [])]
    front += ["- unlearning", "---"] if record["command"] == "unlearn" else ["---"]
    rows = "\n".join(
        f"| {split} | {public_text(data['source'] or 'in memory')} | {data['rows']} |"
        for split, data in record["data"].items()
    )
    if record["command"] == "unlearn":
        recipe = record["recipe"]
        title = f"Unlearned with {record['method']}"
        numbers = ", ".join(f"{key} {value:g}" for key, value in recipe["values"].items())
        what = (
            f"`{name}` after unlearning a forget set: weighting **{recipe['weighting']}**, forget loss "
            f"**{recipe['forget_loss']}**, retain loss **{recipe['retain_loss']}** ({numbers})."
        )
        limits = (
            "Unlearning lowers the model's tendency to state the forget set. It is not a proof of deletion: measure it with "
            "`atwu evaluate`, and expect some knowledge to return under further training."
        )
    else:
        title, what = "Fine-tuned model", f"`{name}` after supervised training on answers."
        limits = "The model is likely to repeat its training rows word for word."
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    return "\n".join(
        [
            *front,
            "",
            f"# {title}",
            "",
            what,
            "",
            *_about_adapters(result, name),
            "| rows | source | count |",
            "|---|---|---|",
            rows,
            "",
            f"{record['steps']} optimizer steps, {record['train_seconds']:.0f} s, seed {record['seed']}; {versions}. "
            "All settings are in `run.json`, the course of the training in `log.jsonl`.",
            "",
            limits,
            "",
            "```json",
            json.dumps(
                {"starting_model_fingerprint": source["fingerprint"], "fingerprint": record["result_fingerprint"]}
            ),
            "```",
            "",
        ]
    )


def _about_adapters(result: Mapping[str, Any], base: str) -> list[str]:
    lora = result["lora"]
    if lora is None:
        return []
    where = ", ".join(lora["targets"] or ["every linear layer of the decoder that an adapter can change"])
    if lora["layers"] is not None:
        where += " of layers " + ", ".join(map(str, lora["layers"]))
    trained = f"Trained as LoRA adapters of rank {lora['r']} (alpha {lora['alpha']:g}) on {where}"
    if result["kind"] == "merged":
        return [f"{trained}, merged into the weights.", ""]
    return [
        f"{trained}; this folder holds the adapters alone and needs `{base}`. "
        "`peft.AutoPeftModelForCausalLM.from_pretrained` loads both, and so does `atwu evaluate`; where the base model "
        "is elsewhere, add `--base`.",
        "",
    ]


def public_record(record: Any) -> Any:
    """A `run.json` record, or any plain data, for others to read: its texts are those of `public_text`."""
    if isinstance(record, Mapping):
        return {key: public_record(value) for key, value in record.items() if key not in _OWN}
    if isinstance(record, list | tuple):
        return [public_record(value) for value in record]
    return public_text(str(record)) if isinstance(record, str | PurePath) else record


def public_command(text: str) -> str:
    """A command line for others to read: its words are those of `public_text`, all else is as it was typed."""

    def word(found: re.Match[str]) -> str:
        try:
            (plain,) = shlex.split(found[0])
        except ValueError:
            return public_text(found[0])
        public = public_text(plain)
        return public_text(found[0]) if public == plain else shlex.quote(public)

    return _SHELL_WORD.sub(word, text)


def public_text(text: str) -> str:
    """A text for others to read: of paths of this machine only the last part is left, of URLs no user and no query.

    A path is what starts with a slash, a drive or `~`, or goes up with `..`; it may stand in a sentence, after `NAME=` or
    `KIND:`, or between the " + " of joined sources. What else looks like one may be a Hub name and stays.
    """
    return " + ".join(map(_part, text.split(" + ")))


_OWN = frozenset({"cache_dir", "output_dir", "logging_dir"})
"""Settings that name places of this machine and nothing else."""

_SHELL_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s'\"]*@)?(?P<rest>[^\s'\"?#]*)[^\s'\"]*")
_START = r"(?:~[\w.-]*(?=[/\\])|[A-Za-z]:(?=[/\\])|(?:[\w.-]+[/\\])*\.\.(?=[/\\]))?[/\\]"
_WHOLE = re.compile(rf"(?P<before>--?[\w-]+=|[\w.-]+=|\w\w+:)?(?P<path>{_START}[^/\\\s].*)")
"""A text that is a path and nothing else; it may have spaces."""
_INSIDE = re.compile(rf"(?<![^\s=:,;'\"(\[]){_START}(?:[^\s/\\'\"]+[/\\])*(?P<name>[^\s/\\'\"]+)[/\\]?")


def _part(text: str) -> str:
    whole = None if "://" in text or "\n" in text else _WHOLE.fullmatch(text)
    if whole is not None:
        return (whole["before"] or "") + re.split(r"[/\\]", whole["path"].rstrip("/\\"))[-1]
    return _INSIDE.sub(lambda found: found["name"], _URL.sub(_without_secrets, text))


def _without_secrets(url: re.Match[str]) -> str:
    return Path(url["rest"]).name if url["scheme"].lower() == "file://" else url["scheme"] + url["rest"]


def _short(model: str) -> str:
    """A Hub name as it is; of a folder only its name, since cards get published."""
    return Path(model).name if Path(model).expanduser().exists() else public_text(model)
