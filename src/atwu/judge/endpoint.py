"""Address and credentials of a chat server, and removal of secrets from texts.

An address may contain a user, a password or a query; they are sent but never shown. Query values that are not secret (a
deployment, a version) are part of the server's identity, as a hash.
"""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from atwu._cache import short_hash

HOSTED = "https://api.openai.com/v1"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SECRET_NAME = re.compile(r"key|token|secret|sig|pass|auth|credential|code", re.IGNORECASE)
_PACKAGES = ("openai", "httpx", "httpx2", "httpcore", "httpcore2")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and secrets of a server; the repr shows only the address and the name of the key."""

    url: str
    """Address without user, password, query and fragment."""
    key_name: str
    """Environment variable with the key."""
    key: str | None = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    """Basic authentication, if the address has a user."""
    query: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """All texts that must not be shown, longest first."""

    @property
    def identity(self) -> dict[str, str]:
        """Address (equal for all names of this machine) and hash of the query."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        host = f"127.0.0.1{port}" if parts.hostname in _LOOPBACK else parts.netloc
        named = {"base_url": urlunsplit((parts.scheme, host, parts.path, "", ""))}
        query = sorted((name, value) for name, value in self.query.items() if not _SECRET_NAME.search(name))
        return named | ({"query": short_hash(query)} if query else {})

    def scrub(self, text: str) -> str:
        """Replace every secret in a text by `***`."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return re.sub(r"(?i)(bearer)\s+[^\s\"',}]+", r"\1 ***", text)

    def scrub_reply(self, text: str) -> str:
        """Replace secrets in a model's reply by `***`; short ones, such as a user's name, may be words of it."""
        for secret in self.secrets:
            text = text.replace(secret, "***") if len(secret) > 7 else text
        return text


def find_endpoint(base_url: str | None, key_name: str) -> Endpoint:
    """Parse an address and read the key from the environment."""
    try:
        parts = urlsplit((base_url or os.environ.get("OPENAI_BASE_URL") or HOSTED).strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(
            "base_url must look like http://127.0.0.1:8000/v1, but the given one does not (it is not shown, since it may "
            "contain a password)."
        )
    userinfo, _, host = parts.netloc.rpartition("@")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    key = _key(key_name, needed=not userinfo and str(parts.hostname).endswith("api.openai.com"))
    secrets = [value for value in query.values() if len(value) > 5]  # shorter ones are version numbers and flags
    secrets += [line.partition(":")[2].strip() for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()]
    headers = {}
    if userinfo:
        user, _, password = userinfo.partition(":")
        token = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
        secrets += [token, userinfo, user, password, unquote(user), unquote(password)]
    if key is not None:
        secrets += [key, quote(key, safe="")]
    url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    found = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    return Endpoint(url, key_name, key, headers, query, tuple(found))


def _key(name: str, *, needed: bool) -> str | None:
    """Read the key from an environment variable; None if it is not set."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(
            "api_key_env must be the name of an environment variable, such as OPENAI_API_KEY, not the key."
        )
    key = os.environ.get(name, "").strip()
    if not key:
        if needed:
            raise ValueError(f"the hosted API needs a key: set {name}, or give the base_url of a server without keys.")
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"the key in {name} contains white space or other invalid characters; set it again.")
    return key


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the request logs of HTTP packages, which contain addresses and headers."""

    def only_warnings(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    names = [name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] in _PACKAGES]
    loggers = [logging.getLogger(name) for name in names]
    for each in loggers:
        each.addFilter(only_warnings)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(only_warnings)
