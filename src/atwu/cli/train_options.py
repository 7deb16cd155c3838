"""Options of transformers' `TrainingArguments`, read from its source text: importing it takes seconds, even for a typo."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atwu.cli.cli_options import CliOption

_KINDS = {"bool": bool, "int": int, "float": float, "str": str}


@functools.cache
def trainer_options() -> list[CliOption]:
    """Return the options of the installed transformers that a command line can set, except the output folder."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).with_name("training_args.py").read_text(encoding="utf-8")
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    return [option for option in _options(classes["TrainingArguments"]) if option.name != "output_dir"]


def _options(source: ast.ClassDef) -> Iterator[CliOption]:
    """Yield an option for each field `NAME: TYPE = field(default=DEFAULT, metadata={"help": HELP})`."""
    for node in source.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        kinds = ast.unparse(node.annotation).split(" | ")
        many = "list[str]" in kinds and "str" not in kinds
        kind = str if many else next((_KINDS[name] for name in _KINDS if name in kinds), None)
        if kind is not None and isinstance(node.value, ast.Call):
            given = {keyword.arg: keyword.value for keyword in node.value.keywords}
            metadata = given["metadata"]
            assert isinstance(metadata, ast.Dict)
            about = {_literal(key): _literal(value) for key, value in zip(metadata.keys, metadata.values, strict=True)}
            yield CliOption(
                node.target.id,
                kind,
                _literal(given.get("default")),
                about["help"],
                many,
                group="transformers.TrainingArguments",
                common=False,
                choices=tuple(about.get("choices") or ()),
            )


def _literal(node: ast.expr | None) -> Any:
    """Return the value of a literal, or None: some defaults and choices are computed."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None
