"""Renamed options and weightings, whose errors name the new one, and renamed keys of result files, which are still read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OPTIONS: Mapping[str, str] = {
    "unseen": "holdout",
    "retain_limit": "max_retain_increase",
    "beside": "compare",
    "keep": "extra_retain",
    "fit": "auto_memory",
    "vllm_share": "gpu_memory_utilization",
    "to": "baseline",
    "wordings": "paraphrases",
    "judge_reply_tokens": "judge_max_tokens",
    "continue": "ledger",
    "scale": "setting",
    "demonstrations": "icr_examples",
    "part_options": "component_options",
}
"""Old option -> new option."""
WEIGHTING_NAMES: Mapping[str, str] = {"key_words": "key_tokens"}
"""Old token weighting -> new one."""

_SCHEMAS: Mapping[str, str] = {
    "atwu.eval/2": "atwu.eval/3",
    "atwu.run/1": "atwu.run/2",
    "atwu.search/1": "atwu.search/2",
    "atwu.study/1": "atwu.study/2",
}
"""Earlier schema -> schema that its files are read as."""
_KEYS: Mapping[str, str] = {
    "telling": "key_tokens",
    "telling_probability": "key_token_probability",
    "telling_guessed": "key_token_accuracy",
    "telling_said": "key_token_recall",
    "prose": "general_text",
    "prose_probability": "general_text_probability",
    "prose_perplexity": "general_text_perplexity",
    "quantisation": "quantization",
    "demonstrations": "icr_examples",
    "wordings": "questions_per_row",
    "vllm_share": "gpu_memory_utilization",
    "starting_model": "original_model",
    "scale": "setting",
    "taught_seconds": "target_seconds",
}
"""Old key or metric name -> new one."""

_WEIGHTING = re.compile(rf"\b(?:{'|'.join(WEIGHTING_NAMES)})\b")


def upgrade(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a result file with the current schema, keys and names of weightings."""
    schema, record = record.get("schema"), _rename_weightings(record)
    if schema in ("atwu.eval/2", "atwu.eval/3"):  # with ROC curves, which nothing read
        record = {key: value for key, value in record.items() if key != "curves"}
    if not isinstance(schema, str) or schema not in _SCHEMAS:
        return dict(record)
    renamed: dict[str, Any] = rename_keys(record)
    return renamed | {"schema": _SCHEMAS[schema]}


def rename_keys(value: Any) -> Any:
    """Return plain data with all renamed keys and metric names replaced, at any depth."""
    if isinstance(value, dict):
        names = value.get("metrics")
        listed = {}
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            listed = {"metrics": [_KEYS.get(name, name) for name in names]}
        return {_KEYS.get(key, key): rename_keys(inner) for key, inner in value.items()} | listed
    return [rename_keys(inner) for inner in value] if isinstance(value, list) else value


def _rename_weightings(value: Any, key: str = "") -> Any:
    """Return plain data with today's names of weightings in the values of `weighting`, and in the names of methods."""
    if isinstance(value, dict):
        return {name: _rename_weightings(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rename_weightings(inner) for inner in value]
    if key in ("weighting", "method", "name") and isinstance(value, str):
        return _WEIGHTING.sub(lambda match: WEIGHTING_NAMES[match[0]], value)
    return value
