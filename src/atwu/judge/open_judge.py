"""Create a judge from its name, such as `offline` or `openai:my-model`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atwu.judge.asker import Asker
    from atwu.judge.budget import Prices
    from atwu.judge.chat_model import ChatModel
    from atwu.judge.verdicts import Judge


def _judge_option(default: Any, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": help, "group": "Judge", **more})


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Judge model, server and price."""

    judge: str = _judge_option(
        "offline",
        "offline (rules, no model), openai:MODEL (any OpenAI-compatible server), or local:FOLDER (a transformers model).",
    )
    judge_url: str | None = _judge_option(
        None, "Base URL of the server, such as http://localhost:8000/v1. Default: OPENAI_BASE_URL, else the OpenAI API."
    )
    judge_key: str = _judge_option("OPENAI_API_KEY", "Environment variable with the API key of the server.")
    judge_price: str | None = _judge_option(None, "Price as INPUT,OUTPUT in USD per million tokens, such as 0.25,2.")
    max_cost: float | None = _judge_option(
        None,
        "Maximum cost in USD; no request is sent that could exceed it. Needs --judge-price. Default: no limit.",
        least=0,
    )
    judge_concurrency: int = _judge_option(8, "Maximum number of concurrent calls.", least=1)
    judge_timeout: float = _judge_option(60.0, "Timeout of a call in seconds, until the end of the reply.", least=1)
    judge_max_tokens: int | None = _judge_option(
        None,
        "Maximum number of new tokens per reply; reasoning models need thousands. Default: set by each prompt.",
        least=1,
    )

    @property
    def prices(self) -> Prices | None:
        """Prices from --judge-price; None without it."""
        from atwu.judge.budget import Prices

        if self.judge_price is None:
            return None
        try:
            given, taken = (float(part) for part in self.judge_price.split(","))
        except ValueError:
            raise ValueError(
                f"--judge-price must be INPUT,OUTPUT in USD per million tokens, got {self.judge_price!r}."
            ) from None
        return Prices(given, taken)


@dataclass(frozen=True, kw_only=True)
class EstimatedJudgeOptions(JudgeOptions):
    """Judge options of commands that can estimate the cost."""

    estimate: bool = _judge_option(
        False, "Print the number of calls, the tokens and the price, and exit without sending any."
    )


def open_judge(options: JudgeOptions) -> Judge:
    """Return the offline judge, or one that prompts a chat model."""
    if options.judge == "offline":
        check_offline(options)
        from atwu.judge.offline import OfflineJudge

        return OfflineJudge()
    from atwu.judge.prompted import PromptedJudge

    return PromptedJudge(open_asker(options, what="judge"))


def check_offline(options: JudgeOptions) -> None:
    """Check that no server options are given for the offline judge."""
    if options.judge_url or options.judge_price or options.max_cost is not None:
        raise ValueError("--judge-url, --judge-price and --max-cost require --judge openai:MODEL.")


def open_asker(options: JudgeOptions, *, what: str) -> Asker:
    """Create a chat model with cache and budget; `what` names its purpose in errors."""
    from atwu.judge.asker import Asker
    from atwu.judge.budget import Budget
    from atwu.judge.reply_cache import ReplyCache, default_path

    kind, _, model = options.judge.partition(":")
    if kind not in ("openai", "local") or not model:
        offline = "" if what == "model" else "offline, "
        raise ValueError(f"{options.judge!r} is not a {what}; use {offline}openai:MODEL or local:FOLDER.")
    chat: ChatModel
    if kind == "openai":
        from atwu.judge.client import OpenAIChat

        chat = OpenAIChat(
            model,
            base_url=options.judge_url,
            api_key_env=options.judge_key,
            concurrency=options.judge_concurrency,
            timeout=options.judge_timeout,
        )
    else:
        from atwu.judge.local import LocalChat

        if options.judge_url:
            raise ValueError("--judge-url requires openai:MODEL; local:FOLDER runs in this process.")
        chat = LocalChat(model)
    # A local model decodes greedily, so a retry gives the same reply.
    attempts = 3 if kind == "openai" else 1
    budget = Budget(options.max_cost, options.prices)
    return Asker(
        chat, ReplyCache(default_path()), budget=budget, attempts=attempts, max_tokens=options.judge_max_tokens
    )
