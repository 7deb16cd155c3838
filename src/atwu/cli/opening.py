"""From command-line words to objects: models with their tokenizers, rows, judges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from atwu.data.schema import Example
    from atwu.judge.chat import ChatModel
    from atwu.judge.verdicts import Judge


def open_model(
    name: str,
    *,
    dtype: str = "auto",
    device: Any = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
    base: str | None = None,
) -> tuple[Any, Any]:
    """A model on its device, and its tokenizer; what does not fit together is refused before weights are read."""
    from atwu.modeling.device import pick_device
    from atwu.modeling.load import check_model_name, check_vocabulary, load_config, load_model, load_tokenizer

    place = pick_device(device)
    check_model_name(name, base=base)
    tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code, revision=revision, base=base)
    config = load_config(name, trust_remote_code=trust_remote_code, revision=revision, base=base)
    check_vocabulary(tokenizer, config, name=name)
    model = load_model(name, dtype=dtype, trust_remote_code=trust_remote_code, revision=revision, base=base)
    return model.to(place), tokenizer


def open_rows(source: str | None, *, limit: int | None = None) -> tuple[Example, ...]:
    """The rows of a source, at most `limit` of them, evenly spaced; nothing without a source. Warnings are printed."""
    if source is None:
        return ()
    from atwu.data.sources import load_rows

    loaded = load_rows(source)
    for warning in loaded.warnings:
        typer.echo(f"warning: {source}: {warning}", err=True)
    return spread(loaded.rows, limit)


def spread(rows: Sequence[Example], count: int | None) -> tuple[Example, ...]:
    """At most `count` rows, evenly spaced, so that every part of a set ordered by subject is there."""
    if count is None or count >= len(rows):
        return tuple(rows)
    return tuple(rows[index * len(rows) // count] for index in range(count))


def open_judge(
    name: str,
    *,
    url: str | None = None,
    key: str = "OPENAI_API_KEY",
    price: str | None = None,
    max_cost: float | None = None,
    concurrency: int = 8,
) -> Judge:
    """The judge that `--judge` names.

    Raises:
        ValueError: an unknown kind, or options that do not belong to it.
    """
    if name == "offline":
        if url or price or max_cost is not None:
            raise ValueError("--judge-url, --judge-price and --max-cost go with --judge openai:MODEL.")
        from atwu.judge.offline import OfflineJudge

        return OfflineJudge()
    from atwu.judge.prompted import PromptedJudge

    options: dict[str, Any] = {"url": url, "key": key, "price": price, "max_cost": max_cost}
    return PromptedJudge(open_asker(name, **options, concurrency=concurrency, judging=True))


def open_asker(
    name: str,
    *,
    url: str | None = None,
    key: str = "OPENAI_API_KEY",
    price: str | None = None,
    max_cost: float | None = None,
    concurrency: int = 8,
    judging: bool = False,
) -> Any:
    """A chat model behind its store, with its budget; `judging` only matters for what an error says."""
    from atwu.judge.ask import Asker
    from atwu.judge.budget import Budget, Prices
    from atwu.judge.cache import ReplyCache, default_path

    kind, _, model = name.partition(":")
    if kind not in ("openai", "local") or not model:
        offline = "" if judging is False else "offline, "
        raise ValueError(
            f"{name!r} is no {'judge' if judging else 'model'}; use {offline}openai:MODEL or local:FOLDER."
        )
    prices = None
    if price is not None:
        try:
            given, taken = (float(part) for part in price.split(","))
        except ValueError:
            raise ValueError(f"--judge-price must be INPUT,OUTPUT in USD per million tokens, got {price!r}.") from None
        prices = Prices(given, taken)
    chat: ChatModel
    if kind == "openai":
        from atwu.judge.client import OpenAIChat

        chat = OpenAIChat(model, base_url=url, api_key_env=key, concurrency=concurrency)
    else:
        from atwu.judge.local import LocalChat

        if url:
            raise ValueError("--judge-url goes with openai:MODEL; local:FOLDER runs in this process.")
        chat = LocalChat(model)
    # A local model decodes greedily: asked again it says the same.
    attempts = 3 if kind == "openai" else 1
    return Asker(chat, ReplyCache(default_path()), budget=Budget(max_cost, prices), attempts=attempts)


def result_beside(output: Path, role: str) -> Path:
    """Where the result of a model that is compared with goes: eval.json -> eval.original.json."""
    return output.with_name(f"{output.stem}.{role}{output.suffix}")
