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
    "atwu.verdict/1": "atwu.verdict/2",
    "atwu.request/1": "atwu.request/2",
    "atwu.ledger/1": "atwu.ledger/2",
    "atwu.history/1": "atwu.history/2",
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


_SETS: Mapping[str, str] = {"unseen": "holdout_rows", "reworded": "other_prompts"}
"""Old name of a set of a request -> new one."""
_TITLES: Mapping[str, str] = {
    "telling words p": "key-token probability",
    "telling words guessed": "key-token accuracy",
    "telling words said": "key-token recall",
}
"""Old title of a metric in a verdict -> new one."""
_NAMES: Mapping[str, str] = {
    **{name: new for name, new in _KEYS.items() if name.startswith(("telling_", "prose_"))},
    "quantisation": "quantization",
    "demonstrations": "icr_examples",
    "unseen": "holdout",
    "reworded": "other_prompts",
}
"""Old name in a thresholds file -> new one."""
_NAME = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b")
_WEIGHTING = re.compile(rf"\b(?:{'|'.join(WEIGHTING_NAMES)})\b")

Fields = Mapping[str, "str | tuple[str, Fields]"]
"""Old key -> new key, or new key and the keys of the object (or of each object of the list) under it."""
_METRIC: Fields = {"rows": "set", "measure": "metric"}
_CHECK: Fields = {"word": "outcome", "lines": ("scores", {"then": ("baseline", _METRIC)})}
_REQUEST_KEY: Fields = {"unseen": "holdout", "retain_limit": "max_retain_increase", "fit": "auto_memory"}
_FIELDS: Mapping[str, Fields] = {
    "atwu.verdict/1": {
        "word": "outcome",
        "why": "reason",
        "lines": ("metrics", _METRIC),
        "next": "next_steps",
        "limits": "holdout_limits",
    },
    "atwu.request/1": {
        "made": "prepared_at",
        "key": ("key", _REQUEST_KEY),
        "unseen": "holdout",
        "retain_limit": "max_retain_increase",
        "shown": "sample_answers",
        "replaces": "replaced_run_digest",
    },
    "atwu.ledger/1": {
        "made": "prepared_at",
        "finished": "finished_at",
        "key": ("key", _REQUEST_KEY),
        "rows": "forget_rows",
        "before": "model_before",
        "model": "model_after",
        "word": "outcome",
        "why": "reason",
        "thresholds": "thresholds_sha256",
        "known": ("baseline", _METRIC),
        "again": ("regression_checks", _CHECK),
        "stayed": ("utility_drift", {"first": "original", "now": "current"}),
    },
    "atwu.history/1": {
        "looks": ("eval_steps", {"guessed": "accuracy", "losses": "retain_losses"}),
        "kept": "kept_step",
        "steps_back": "rollbacks",
        "rise": "retain_loss_increase",
    },
}
"""Schema of a request's file -> its keys that have other names now."""


def upgrade(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a result file with the current schema, keys and names of weightings."""
    schema, record = record.get("schema"), _rename_weightings(record)
    if schema in ("atwu.eval/2", "atwu.eval/3"):  # with ROC curves, which nothing read
        record = {key: value for key, value in record.items() if key != "curves"}
    if not isinstance(schema, str) or schema not in _SCHEMAS:
        return dict(record)
    fields = _FIELDS.get(schema)
    renamed: dict[str, Any] = rename_keys(record if fields is None else _rename_fields(record, fields))
    return renamed | {"schema": _SCHEMAS[schema]}


def current_names(text: str) -> str:
    """Replace old names of sets and metrics in a thresholds file or in one of its lines."""
    return _NAME.sub(lambda match: _NAMES[match[0]], text)


def current_set(name: str) -> str:
    """Return today's name of a set that an earlier version measured for a request."""
    return _SETS.get(name, name)


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


def _rename_fields(value: Any, fields: Fields) -> Any:
    if isinstance(value, list):
        return [_rename_fields(inner, fields) for inner in value]
    if not isinstance(value, dict):
        return value
    renamed = {}
    for key, inner in value.items():
        new = fields.get(key, key)
        name, deeper = new if isinstance(new, tuple) else (new, None)
        renamed[name] = inner if deeper is None else _rename_fields(inner, deeper)
    if fields is _METRIC:
        renamed["set"] = current_set(renamed.get("set", ""))
        metric = renamed.get("metric", "")
        renamed["metric"] = _TITLES.get(metric, _KEYS.get(metric, metric))
    return renamed
