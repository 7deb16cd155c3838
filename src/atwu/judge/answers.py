"""What an answer of an OpenAI-compatible server means: a reply, a failure worth another try, or one that ends the run."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

from atwu.judge.chat import Reply
from atwu.judge.endpoint import Endpoint

LONGEST_WAIT = 120.0
"""Seconds a server may ask to wait; more ends the run."""
_NO_SUCH_MODEL = re.compile(r"not exist|not found|unknown|invalid|not a valid|no such|pinned", re.IGNORECASE)
_FLAGGED = re.compile(r"flagged|moderation|content policy", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|forbidden", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that gave no usable reply."""

    words: str
    again: bool = True
    """Whether another try may help."""
    fatal: bool = False
    """Whether all other requests would fail in the same way."""
    unreachable: bool = False
    """Whether no connection could be made."""
    wait: float | None = None
    """Seconds the server asks to wait."""
    crowded: bool = False
    """Whether all workers should wait."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def read_completion(answer: Any) -> Reply | Failure:
    """The text and token counts of a completion, whose shape is not to be relied on."""
    usage = getattr(answer, "usage", None)
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    prompt_tokens, completion_tokens = (count if type(count) is int and count > 0 else 0 for count in counts)
    return replace(_text(answer), prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def read_status(error: Any, endpoint: Endpoint, model: str) -> Failure:
    """What an HTTP error means for this request and for the others.

    Args:
        error: an `openai.APIStatusError`.
        endpoint: where it comes from.
        model: what was asked for.
    """
    status, said = error.status_code, server_words(error, endpoint)
    words = f"the server answered {status}" + (f": {said}" if said else "")
    if status == 401:
        # The text of the server is left out: it may hold parts of the key.
        name = endpoint.key_name
        problem = "needs a key" if endpoint.key is None else f"does not accept the key in {name}"
        return Failure(f"{endpoint.url} {problem} (401); set {name} to a valid one.", fatal=True)
    if status == 403 and not _FLAGGED.search(said):
        hint = f"check that {endpoint.key_name} may use model {model!r}"
        return Failure(f"{endpoint.url} refuses access; {words}; {hint}.", fatal=True)
    if status in (404, 405) or _model_is_unknown(error, said, model):
        hint = f"check the model's name, {model!r}, and the address, which usually ends in /v1"
        return Failure(f"{endpoint.url} cannot answer; {words}; {hint}.", fatal=True)
    if status == 402 or str(error.code) == "insufficient_quota":
        return Failure(f"{endpoint.url} has no quota left for this key; {words}", fatal=True)
    headers = error.response.headers
    asked = retry_after(headers)
    again = (status in (408, 409, 429) or status >= 500) and headers.get("x-should-retry") != "false"
    if again and asked is not None and asked > LONGEST_WAIT:
        return Failure(f"{endpoint.url} asks to wait {asked:.0f} seconds; run again then ({words}).", fatal=True)
    return Failure(words, again=again, wait=asked, crowded=status == 429 or asked is not None)


def refused_parameter(error: Any, endpoint: Endpoint, sent: Mapping[str, Any]) -> str | None:
    """The parameter a server refuses, of those that were sent and that it can do without."""
    said = server_words(error, endpoint)
    if error.status_code not in (400, 422) or not _UNSUPPORTED.search(said):
        return None
    if "max_tokens" in sent and "max_completion_tokens" in said:
        return "max_tokens"
    return next((name for name in ("temperature", "seed") if name in sent and re.search(rf"\b{name}\b", said)), None)


def server_words(error: Any, endpoint: Endpoint) -> str:
    """The server's own words in an HTTP error, without secrets, on one short line."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    text = message if isinstance(message, str) else body if isinstance(body, str) else json.dumps(body or "")
    return " ".join(endpoint.scrub(text).split()).strip('"')[:300]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from now that the server asks to wait, given as seconds or as a date (RFC 9110, section 10.2.3)."""
    value = str(headers.get("retry-after") or "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _text(answer: Any) -> Reply | Failure:
    if isinstance(answer, str):
        return Failure("the reply is not valid JSON")
    try:
        choice = answer.choices[0]
        content, finish = choice.message.content, getattr(choice, "finish_reason", None)
    except (AttributeError, IndexError, KeyError, TypeError):
        return Failure("the reply has no message")
    text = content or getattr(choice.message, "refusal", None) or content
    if text is not None and not isinstance(text, str):
        return Failure("the reply's content is not text")
    if text or (text == "" and finish not in ("length", "content_filter")):
        return Reply(text=text)
    if finish == "length":
        return Failure("the reply reached max_tokens before any text (a reasoning model?)", again=False)
    if finish == "content_filter":
        return Failure("the server's content filter held the reply back", again=False)
    return Failure("the reply has no content")


def _model_is_unknown(error: Any, said: str, model: str) -> bool:
    if error.status_code not in (400, 422):
        return False
    return str(error.code) == "model_not_found" or (model in said and _NO_SUCH_MODEL.search(said) is not None)
