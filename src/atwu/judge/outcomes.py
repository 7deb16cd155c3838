"""Address of an OpenAI-compatible server, and its responses: a reply, a failure that may be retried, or a fatal failure.

Verdicts are in `verdicts.py`. The API key is read from the environment and never shown.
"""

from __future__ import annotations

import email.utils
import json
import math
import os
import re
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from atwu.judge.chat_model import CUT_OFF, Reply

LONGEST_WAIT = 120.0
"""Maximum seconds to wait at the server's request; a longer wait ends the run."""
_NO_SUCH_MODEL = re.compile(r"not exist|not found|unknown|invalid|not a valid|no such|pinned", re.IGNORECASE)
_FLAGGED = re.compile(r"flagged|moderation|content policy", re.IGNORECASE)
_OPTIONAL = {
    "max_tokens": re.compile(r"max_completion_tokens"),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "seed": re.compile(r"\bseed\b", re.IGNORECASE),
    # Chat templates without a system turn, such as those of Gemma and Mistral.
    "system": re.compile(
        r"\b(system|developer)\W+(message|turn|prompt|instruction)|\broles?\b|only user", re.IGNORECASE
    ),
}
"""What a request can do without, and how messages of servers name it; these differ too much to be listed."""
_MOST_TOKENS = 10**9
"""A larger count is an error of the server, and would overflow what is computed from it."""


HOSTED = "https://api.openai.com/v1"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    key_name: str
    key: str | None = field(repr=False)

    @property
    def identity(self) -> str:
        """The address, equal for all names of this machine."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        host = f"127.0.0.1{port}" if parts.hostname in _LOOPBACK else parts.netloc
        return urlunsplit((parts.scheme, host, parts.path, "", ""))

    def scrub(self, text: str) -> str:
        return text if self.key is None else text.replace(self.key, "***")


def find_endpoint(base_url: str | None, key_name: str) -> Endpoint:
    """Parse an address and read the key from the environment."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key_name):
        raise ValueError(
            "api_key_env (--judge-key) must be the name of an environment variable, such as OPENAI_API_KEY, not the key."
        )
    url = (base_url or os.environ.get("OPENAI_BASE_URL") or HOSTED).strip().rstrip("/")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or "@" in parts.netloc or parts.query:
        raise ValueError(
            "base_url (--judge-url, --model-url or OPENAI_BASE_URL) must look like http://127.0.0.1:8000/v1, without user, "
            "password and query, but the given one does not (it is not shown, since it may contain a password); a key belongs "
            f"in {key_name}."
        )
    key = os.environ.get(key_name, "").strip() or None
    if key is None and str(parts.hostname).endswith("api.openai.com"):
        raise ValueError(f"the hosted API needs a key: set {key_name}, or give the base_url of a server without keys.")
    if key is not None and not re.fullmatch("[!-~]+", key):
        raise ValueError(f"the key in {key_name} contains white space or other invalid characters; set it again.")
    return Endpoint(url, key_name, key)


@dataclass(frozen=True, slots=True)
class CallFailure:
    message: str
    retry: bool = True
    """Whether another attempt may help."""
    fatal: bool = False
    """Whether all other requests would fail in the same way."""
    maybe_fatal: bool = False
    """Whether this is fatal unless another request was answered before."""
    wait_seconds: float | None = None
    rate_limited: bool = False
    """Whether all requests should wait."""
    billed: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0


def read_completion(content: bytes, endpoint: Endpoint) -> Reply | CallFailure:
    """Parse text and token counts of a completion, in whatever shape it arrives."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        if content.lstrip()[:1] == b"<":
            said = f"{endpoint.url} answers with a web page; check the address, which usually ends in /v1"
            return CallFailure(said, maybe_fatal=True, billed=True)
        return CallFailure("the reply is not valid JSON", billed=True)
    body = body if isinstance(body, dict) else {}
    usage = body.get("usage")
    counts = [usage.get(name) if isinstance(usage, dict) else 0 for name in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (count if type(count) is int and 0 < count <= _MOST_TOKENS else 0 for count in counts)

    def useless(message: str, *, retry: bool = True, billed: bool = True) -> CallFailure:
        has_tokens = bool(prompt or completion)
        return CallFailure(
            message, retry, billed=billed or has_tokens, prompt_tokens=prompt, completion_tokens=completion
        )

    try:
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        content = _joined(message.get("content"))
        text = content or message.get("refusal") or content
    except (AttributeError, IndexError, KeyError, TypeError):
        if body.get("error"):
            return useless(f"the server returned an error: {_server_message(body['error'], endpoint)}", billed=False)
        return useless("the reply has no message")
    if text is not None and not isinstance(text, str):
        return useless("the reply's content is not text")
    if text or (text == "" and finish not in ("length", "content_filter")):
        # Half of a surrogate pair cannot be written to any file.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return Reply(endpoint.scrub(text), None, prompt, completion, filtered=finish == "content_filter")
    if finish == "length":
        return Reply(None, CUT_OFF, prompt, completion, cut=True)
    if finish == "content_filter":
        return useless("the server's content filter blocked the reply", retry=False, billed=False)
    return useless("the reply has no content")


def read_status(error: Any, endpoint: Endpoint, model: str) -> CallFailure:
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
    # The model's name as a whole word: a model named "m" does not occur in every text with that letter.
    named = re.search(rf"(?<![\w./:-]){re.escape(model)}(?![\w/:-]|\.\w)", message) and _NO_SUCH_MODEL.search(message)
    unknown = status in (400, 422) and (str(error.code) == "model_not_found" or named)
    if status in (404, 405) or unknown:
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


def refused_parameter(error: Any, endpoint: Endpoint, sent: Set[str]) -> str | None:
    """Return what a server may reject of a request that can do without it, if any.

    Args:
        sent: what was sent of `max_tokens`, `temperature`, `seed` and `system` (a system turn).
    """
    if error.status_code == 500:  # of llama.cpp, if a chat template rejects the system turn
        sent = sent & {"system"}
    elif error.status_code not in (400, 422):
        return None
    message = _server_message(error.body, endpoint)
    param = str(error.param or "")
    param = "system" if re.fullmatch(r"messages(\W0\W*)?(\.?role)?", param) else param  # the first turn
    named = (name for name, words in _OPTIONAL.items() if param.rpartition(".")[2] == name or words.search(message))
    return next((name for name in named if name in sent), None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a server asks to wait, given as milliseconds, seconds or a date (RFC 9110, section 10.2.3)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = str(headers.get(name) or "").strip()
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                date = email.utils.parsedate_to_datetime(value)
            except (ValueError, OverflowError):
                continue
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return None


def _joined(content: Any) -> Any:
    """Return the text of a content that is a list of parts, without thoughts; other contents as they are."""
    if not isinstance(content, list):
        return content
    found = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    texts = [text for text in found if isinstance(text, str)]
    return "".join(texts) if texts else content


def _server_message(body: Any, endpoint: Endpoint) -> str:
    """Return the server's error message on one short line, without secrets."""
    message = body.get("message") if isinstance(body, dict) else None
    text = message if isinstance(message, str) else body if isinstance(body, str) else json.dumps(body or "")
    return " ".join(endpoint.scrub(text).split()).strip('"')[:300]
