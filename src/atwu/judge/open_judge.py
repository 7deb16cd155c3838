"""Create a judge from its name, such as `offline` or `openai:my-model`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from atwu.errors import UsageError

if TYPE_CHECKING:
    from atwu.judge.asker import Asker
    from atwu.judge.verdicts import Judge

MODEL_KEY = "ATWU_MODEL_KEY"
"""Environment variable with the key of a served model; not the one of the judge, which another server must not see."""


def _judge_option(default: Any, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": help, "group": "Judge", **more})


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    judge: str = _judge_option(
        "offline",
        "offline (rules, no model), or openai:MODEL (any OpenAI-compatible server).",
    )
    judge_url: str | None = _judge_option(
        None, "Base URL of the server, such as http://localhost:8000/v1. Default: OPENAI_BASE_URL, else the OpenAI API."
    )
    judge_key: str = _judge_option("OPENAI_API_KEY", "Environment variable with the API key of the server.")
    max_calls: int | None = _judge_option(
        None, "Maximum number of calls; the same command continues where it stopped. Default: no limit.", least=0
    )
    judge_concurrency: int = _judge_option(8, "Maximum number of concurrent calls.", least=1)
    judge_timeout: float = _judge_option(60.0, "Maximum seconds of a call without a byte of the reply.", least=1)
    judge_max_tokens: int | None = _judge_option(
        None,
        "Maximum number of new tokens per reply; reasoning models need thousands. Default: set by each prompt.",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class EstimatedJudgeOptions(JudgeOptions):
    estimate: bool = _judge_option(False, "Print the number of calls and their tokens, and exit without sending any.")


def open_judge(options: JudgeOptions) -> Judge:
    if options.judge == "offline":
        check_offline(options)
        from atwu.judge.offline import OfflineJudge

        return OfflineJudge()
    from atwu.judge.prompted import PromptedJudge

    return PromptedJudge(open_asker(options, what="judge"))


_OF_MODELS = ("judge_url", "judge_key", "judge_timeout", "max_calls", "judge_max_tokens")
"""Options that the offline judge does not use; `judge_concurrency` also applies to a served model whose answers are judged."""


def check_offline(options: JudgeOptions) -> None:
    """Check that no option of a judge model is given for the offline judge."""
    defaults = {option.name: option.default for option in fields(options)}
    unused = [f"--{name.replace('_', '-')}" for name in _OF_MODELS if getattr(options, name) != defaults[name]]
    if unused:
        raise UsageError(
            f"--judge {options.judge} does not use {', '.join(unused)}; give --judge openai:MODEL, or leave them out."
        )


def open_asker(options: JudgeOptions, *, what: str) -> Asker:
    """Create a chat model with cache and budget; `what` names its purpose in errors."""
    from atwu.judge.asker import Asker, Budget
    from atwu.judge.client import OpenAIChat
    from atwu.judge.reply_cache import ReplyCache, default_path

    kind, _, model = options.judge.partition(":")
    if kind != "openai" or not model:
        offline = "offline or "
        if what == "model":
            offline = ""
        raise ValueError(f"{options.judge!r} names no {what}; use {offline}openai:MODEL.")
    chat = OpenAIChat(
        model,
        base_url=options.judge_url,
        api_key_env=options.judge_key,
        concurrency=options.judge_concurrency,
        timeout=options.judge_timeout,
    )
    return Asker(
        chat, ReplyCache(default_path()), budget=Budget(options.max_calls), max_tokens=options.judge_max_tokens
    )
