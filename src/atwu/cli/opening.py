"""From command-line words to objects: models with their tokenizers, rows, judges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from atwu.data.schema import Example
    from atwu.judge.ask import Asker
    from atwu.judge.budget import Prices
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


def warn_of_other_system(name: str, system: str | None) -> None:
    """Say so when a run of this package trained the model with another system turn than it is about to be read with."""
    import json
    import shlex

    file = Path(name) / "run.json"
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
        return
    trained = record["config"].get("system")
    if trained == system:
        return
    there, here = (
        "without a system turn" if text is None else f"with the system turn {text!r}" for text in (trained, system)
    )
    advice = "leave --system out" if trained is None else f"pass --system {shlex.quote(trained)}"
    typer.secho(f"warning: {name} was trained {there} and is read {here}; {advice}.", fg=typer.colors.YELLOW, err=True)


def open_rows(source: str | None, *, limit: int | None = None) -> tuple[Example, ...]:
    """The rows of a source, at most `limit` of them, evenly spaced; nothing without a source. Warnings are printed."""
    if source is None:
        return ()
    from atwu.benchmarks.sources import load_rows
    from atwu.benchmarks.spread import spread

    loaded = load_rows(source)
    for warning in loaded.warnings:
        typer.echo(f"warning: {source}: {warning}", err=True)
    return spread(loaded.rows, limit)


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What the command line says about a judge or a paraphraser."""

    url: str | None = None
    key: str = "OPENAI_API_KEY"
    price: str | None = None
    max_cost: float | None = None
    concurrency: int = 8
    timeout: float = 60.0
    reply: int | None = None

    @property
    def prices(self) -> Prices | None:
        """INPUT,OUTPUT as numbers."""
        from atwu.judge.budget import Prices

        if self.price is None:
            return None
        try:
            given, taken = (float(part) for part in self.price.split(","))
        except ValueError:
            raise ValueError(
                f"--judge-price must be INPUT,OUTPUT in USD per million tokens, got {self.price!r}."
            ) from None
        return Prices(given, taken)


def open_judge(name: str, options: JudgeOptions) -> Judge:
    """The judge that `--judge` names.

    Raises:
        ValueError: an unknown kind, or options that do not belong to it.
    """
    if name == "offline":
        if options.url or options.price or options.max_cost is not None:
            raise ValueError("--judge-url, --judge-price and --max-cost go with --judge openai:MODEL.")
        from atwu.judge.offline import OfflineJudge

        return OfflineJudge()
    from atwu.judge.prompted import PromptedJudge

    return PromptedJudge(open_asker(name, options, what="judge"))


def open_asker(name: str, options: JudgeOptions, *, what: str) -> Asker:
    """A chat model behind its store, with its budget; `what` it is for is only said in errors.

    Raises:
        ValueError: an unknown kind, or options that do not belong to it.
    """
    from atwu.judge.ask import Asker
    from atwu.judge.budget import Budget
    from atwu.judge.cache import ReplyCache, default_path

    kind, _, model = name.partition(":")
    if kind not in ("openai", "local") or not model:
        offline = "offline, " if what == "judge" else ""
        raise ValueError(f"{name!r} is no {what}; use {offline}openai:MODEL or local:FOLDER.")
    budget = Budget(options.max_cost, options.prices)
    chat: ChatModel
    if kind == "openai":
        from atwu.judge.client import OpenAIChat

        chat = OpenAIChat(
            model,
            base_url=options.url,
            api_key_env=options.key,
            concurrency=options.concurrency,
            timeout=options.timeout,
        )
    else:
        from atwu.judge.local import LocalChat

        if options.url:
            raise ValueError("--judge-url goes with openai:MODEL; local:FOLDER runs in this process.")
        chat = LocalChat(model)
    # A local model decodes greedily: asked again it says the same.
    attempts = 3 if kind == "openai" else 1
    return Asker(chat, ReplyCache(default_path()), budget=budget, attempts=attempts, max_tokens=options.reply)


def result_beside(output: Path, role: str) -> Path:
    """Where the result of a model that is compared with goes: eval.json -> eval.original.json."""
    return output.with_name(f"{output.stem}.{role}{output.suffix}")
