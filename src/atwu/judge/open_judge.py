"""A judge from the words that name it, such as `offline` or `openai:my-model`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atwu.judge.asker import Asker
    from atwu.judge.budget import Prices
    from atwu.judge.chat_model import ChatModel
    from atwu.judge.verdicts import Judge


def _told(default: Any, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": help, "group": "Judge", **more})


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Which model judges, where it is, and what it may cost."""

    judge: str = _told(
        "offline", "offline (rules, no model), openai:MODEL (any OpenAI-compatible server), or local:FOLDER."
    )
    judge_url: str | None = _told(None, "Address of the server, such as http://localhost:8000/v1.")
    judge_key: str = _told("OPENAI_API_KEY", "Environment variable that holds the key of the server.")
    judge_price: str | None = _told(None, "USD per million input,output tokens, such as 0.25,2.")
    max_cost: float | None = _told(None, "Stop before more than this many USD are spent.", least=0)
    judge_concurrency: int = _told(8, "Calls in flight at once.", least=1)
    judge_timeout: float = _told(60.0, "Seconds a call may take, from sending to the end of its reply.", least=1)
    judge_max_tokens: int | None = _told(
        None, "Cap on the judge's reply in tokens; a reasoning model needs thousands.", least=1
    )

    @property
    def prices(self) -> Prices | None:
        """INPUT,OUTPUT as numbers."""
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
    """The same for commands that can say beforehand what judging will cost."""

    estimate: bool = _told(False, "Print calls, tokens and price, and stop before any is sent.")


def open_judge(options: JudgeOptions) -> Judge:
    """The judge that the options name.

    Raises:
        ValueError: an unknown kind, or options that do not belong to it.
    """
    if options.judge == "offline":
        check_offline(options)
        from atwu.judge.offline import OfflineJudge

        return OfflineJudge()
    from atwu.judge.prompted import PromptedJudge

    return PromptedJudge(open_asker(options, what="judge"))


def check_offline(options: JudgeOptions) -> None:
    """Refuse what rules have no use for.

    Raises:
        ValueError: names the options.
    """
    if options.judge_url or options.judge_price or options.max_cost is not None:
        raise ValueError("--judge-url, --judge-price and --max-cost go with --judge openai:MODEL.")


def open_asker(options: JudgeOptions, *, what: str) -> Asker:
    """A chat model behind its store, with its budget; `what` it is for is only said in errors.

    Raises:
        ValueError: an unknown kind, or options that do not belong to it.
    """
    from atwu.judge.asker import Asker
    from atwu.judge.budget import Budget
    from atwu.judge.reply_cache import ReplyCache, default_path

    kind, _, model = options.judge.partition(":")
    if kind not in ("openai", "local") or not model:
        offline = "" if what == "model" else "offline, "
        raise ValueError(f"{options.judge!r} is no {what}; use {offline}openai:MODEL or local:FOLDER.")
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
            raise ValueError("--judge-url goes with openai:MODEL; local:FOLDER runs in this process.")
        chat = LocalChat(model)
    # A local model decodes greedily: asked again it says the same.
    attempts = 3 if kind == "openai" else 1
    budget = Budget(options.max_cost, options.prices)
    return Asker(
        chat, ReplyCache(default_path()), budget=budget, attempts=attempts, max_tokens=options.judge_max_tokens
    )
