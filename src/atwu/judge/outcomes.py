"""Interpret responses of OpenAI-compatible servers: a reply, a failure that may be retried, or a fatal failure."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from atwu.judge.chat_model import CUT_OFF, Reply
from atwu.judge.endpoint import Endpoint

LONGEST_WAIT = 120.0
"""Maximum seconds to wait at the server's request; a longer wait ends the run."""
_NO_SUCH_MODEL = re.compile(r"not exist|not found|unknown|invalid|not a valid|no such|pinned", re.IGNORECASE)
_FLAGGED = re.compile(r"flagged|moderation|content policy", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|forbidden", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CallFailure:
    """An attempt without a usable reply."""

    message: str
    retry: bool = True
    """Whether another attempt may help."""
    fatal: bool = False
    """Whether all other requests would fail in the same way."""
    maybe_fatal: bool = False
    """Whether this is fatal unless another request was answered before."""
    wait_seconds: float | None = None
    """Seconds the server asks to wait."""
    rate_limited: bool = False
    """Whether all requests should wait."""
    billed: bool = False
    """Whether the attempt may have been billed."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def read_completion(content: bytes, model: str, endpoint: Endpoint) -> Reply | CallFailure:
    """Parse text, token counts and server fields of a completion, in whatever shape it arrives."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return CallFailure("the reply is not valid JSON", billed=True)
    body = body if isinstance(body, dict) else {}
    usage = body.get("usage")
    counts = [usage.get(name) if isinstance(usage, dict) else 0 for name in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (count if type(count) is int and count > 0 else 0 for count in counts)

    def useless(message: str, *, retry: bool = True, billed: bool = True) -> CallFailure:
        has_tokens = bool(prompt or completion)
        return CallFailure(
            message, retry, billed=billed or has_tokens, prompt_tokens=prompt, completion_tokens=completion
        )

    try:
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text = message.get("content") or message.get("refusal") or message.get("content")
        text = _joined_parts(text) if isinstance(text, list) else text
    except (AttributeError, IndexError, KeyError, TypeError):
        if body.get("error"):
            return useless(f"the server returned an error: {_server_message(body['error'], endpoint)}", billed=False)
        return useless("the reply has no message")
    if text is not None and not isinstance(text, str):
        return useless("the reply's content is not text")
    if text or (text == "" and finish not in ("length", "content_filter")):
        named = {name: body[name] for name in ("model", "system_fingerprint") if isinstance(body.get(name), str)}
        served = {name: value for name, value in named.items() if value and value != model}
        return Reply(text, None, prompt, completion, served=served)
    if finish == "length":
        return Reply(None, CUT_OFF, prompt, completion, cut=True)
    if finish == "content_filter":
        return useless("the server's content filter blocked the reply", retry=False, billed=False)
    return useless("the reply has no content")


def _joined_parts(parts: list[Any]) -> Any:
    """Return the text of a content that is a list of parts; the list itself if none is text."""
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "".join(texts) if texts else parts


def read_status(error: Any, endpoint: Endpoint, model: str) -> CallFailure:
    """Interpret an HTTP error."""
    status, headers = error.status_code, error.response.headers
    message = _server_message(error.body, endpoint)
    words = f"the server returned {status}" + (f": {message}" if message else "")
    if status == 401:
        # The server's message is left out, since it may contain parts of the key.
        name = endpoint.key_name
        problem = "needs a key" if endpoint.key is None else f"does not accept the key in {name}"
        return CallFailure(f"{endpoint.url} {problem} (401); set {name} to a valid one.", retry=False, fatal=True)
    if 300 <= status < 400:
        target = endpoint.scrub(str(headers.get("location", "elsewhere")).partition("?")[0])
        return CallFailure(f"{endpoint.url} redirects to {target}; give the final address.", retry=False, fatal=True)
    if status == 403 and not _FLAGGED.search(message):
        hint = f"check that {endpoint.key_name} may use model {model!r}"
        return CallFailure(f"{endpoint.url} refuses access; {words}; {hint}.", retry=False, maybe_fatal=True)
    if status in (404, 405) or _model_is_unknown(error, message, model):
        hint = f"check the model's name, {model!r}, and the address, which usually ends in /v1"
        return CallFailure(f"{endpoint.url} cannot answer; {words}; {hint}.", retry=False, maybe_fatal=True)
    if status == 402 or str(error.code) == "insufficient_quota":
        return CallFailure(f"{endpoint.url} has no quota left for this key; {words}", retry=False, fatal=True)
    seconds, should_retry = retry_after(headers), headers.get("x-should-retry")
    retry = should_retry == "true" or (should_retry != "false" and (status in (408, 409, 429) or status >= 500))
    if retry and seconds is not None and seconds > LONGEST_WAIT:
        wait = f"{endpoint.url} asks to wait {seconds:.0f} seconds; run again then ({words})."
        return CallFailure(wait, retry=False, fatal=True)
    return CallFailure(words, retry=retry, wait_seconds=seconds, rate_limited=status == 429 or seconds is not None)


def refused_parameter(error: Any, endpoint: Endpoint, sent: Mapping[str, Any]) -> str | None:
    """Return the optional request parameter that a server rejects, if any."""
    message = _server_message(error.body, endpoint)
    if error.status_code not in (400, 422) or not _UNSUPPORTED.search(message):
        return None
    if "max_tokens" in sent and "max_completion_tokens" in message:
        return "max_tokens"
    optional = (name for name in ("temperature", "seed") if name in sent)
    return next((name for name in optional if re.search(rf"\b{name}\b", message)), None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a server asks to wait, given as seconds or as a date (RFC 9110, section 10.2.3)."""
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


def _server_message(body: Any, endpoint: Endpoint) -> str:
    """Return the server's error message on one short line, without secrets."""
    message = body.get("message") if isinstance(body, dict) else None
    text = message if isinstance(message, str) else body if isinstance(body, str) else json.dumps(body or "")
    return " ".join(endpoint.scrub(text).split()).strip('"')[:300]


def _model_is_unknown(error: Any, message: str, model: str) -> bool:
    if error.status_code not in (400, 422):
        return False
    # Match the model's name as a whole word: a model named "m" does not occur in every text with that letter.
    named = re.search(rf"(?<![\w./:-]){re.escape(model)}(?![\w/:-]|\.\w)", message)
    return str(error.code) == "model_not_found" or bool(named and _NO_SUCH_MODEL.search(message))
