"""The model card written beside an unlearned or fine-tuned checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def model_card(record: Mapping[str, Any]) -> str:
    """Markdown for a finished run, from its `run.json` record."""
    source = record["starting_model"]
    name = _public(source["model"]) if source["model"] else f"a new model of shape {source['scratch']}"
    result = record["result"]
    adapter = result["kind"] == "adapter"
    front = ["---", f"library_name: {'peft' if adapter else 'transformers'}"]
    if adapter and not _local(source["model"]):
        front += [f"base_model: {source['model']}"]
    front += ["tags:", "- atwu", *(["- lora"] if adapter else [])]
    front += ["- unlearning", "---"] if record["command"] == "unlearn" else ["---"]
    rows = "\n".join(
        f"| {split} | {_public(data['source'])} | {data['rows']} |" for split, data in record["data"].items()
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
    where = "every linear layer of the decoder" if lora["targets"] is None else ", ".join(lora["targets"])
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
    """A `run.json` record for others to read: of paths of this machine only the last part is left."""
    if isinstance(record, Mapping):
        return {key: public_record(value) for key, value in record.items() if key not in _OWN}
    if isinstance(record, list):
        return [public_record(value) for value in record]
    return _public(record) if isinstance(record, str) and ("/" in record or "\\" in record) else record


_OWN = frozenset({"cache_dir", "output_dir", "logging_dir"})
"""Settings that name places of this machine and nothing else."""


def _public(name: str) -> str:
    """A Hub or benchmark name as it is; of a local path only the last part, since cards get published."""
    return Path(name).name if _local(name) else name


def _local(name: str) -> bool:
    path = Path(name)
    return path.exists() or path.is_absolute()
