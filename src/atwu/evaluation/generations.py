"""Prompts, decoding settings and generated texts, and a store on disk so that no text is generated twice.

A store is a folder with one JSON-lines file per generator. The first line identifies the generator; every other line is
one text under a hash of its prompt and decoding. Lines are only appended, one batch at a time, so several processes can
share a store and an interrupted one loses at most its last batch. Files are readable by the user only, since texts may
contain what a model knows.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from atwu._cache import cache_folder, short_hash, warn_uncached
from atwu._disk_errors import cannot_write
from atwu._progress import progress_bar
from atwu.data.schema import Message
from atwu.data.thoughts import without_thoughts
from atwu.errors import AtwuError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends with the user's turn, and optionally the beginning of the answer."""

    messages: tuple[Message, ...]
    prefill: str = ""
    """Beginning of the answer; not part of the generated text."""
    draw: int = 0
    """Index of the sample, to distinguish repeated draws at a temperature above 0."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decoding settings."""

    max_new_tokens: int = 64
    temperature: float = 0.0
    """0 is greedy decoding."""
    seed: int = 0
    """Seed for a temperature above 0; each (seed, prompt, draw) has its own noise, independent of the batch."""
    stop: tuple[str, ...] = ()
    """The text is cut before the first of these strings."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A generated text."""

    text: str
    """Text without special tokens and surrounding white space."""
    tokens: int
    """Number of generated tokens, including the end token."""
    error: str | None = None
    """Why a server gave no text for this prompt."""

    @property
    def answer(self) -> str:
        """Text without the thoughts of a reasoning model, the answer to measure; empty if it ends within them."""
        return without_thoughts(self.text) or ""


class Generator(Protocol):
    """Interface of a model that continues prompts."""

    @property
    def identity(self) -> str:
        """Everything about the model that can change a text: backend, weights, template, length limits."""

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Sequence[tuple[int, Generation]]], None]
    ) -> None:
        """Generate for all prompts, in any order.

        Args:
            prompts: Distinct prompts.
            decoding: Decoding settings.
            on_done: Called after every batch with (index, generation) pairs.
        """


class GenerationStore:
    """Generations on disk, keyed by generator, prompt and decoding."""

    def __init__(self, folder: str | Path | None = None) -> None:
        """Use a folder; by default one in the cache."""
        self.folder = cache_folder() / "generations" if folder is None else Path(folder)

    def path(self, identity: str) -> Path:
        """Return the file of a generator."""
        return self.folder / f"{short_hash(identity)}.jsonl"

    def read(self, identity: str) -> dict[str, Generation]:
        """Return the generations by key (the first of duplicates); a warning counts damaged lines."""
        try:
            content = self.path(identity).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found: dict[str, Generation] = {}
        head, *lines = content.split(b"\n")
        damaged = int(head != _head(identity))
        for line in filter(None, lines):
            if line == head:  # a second process also found the file empty
                continue
            entry = _entry(line)
            if entry is not None:
                found.setdefault(*entry)
            damaged += entry is None
        if damaged:
            logger.warning(
                "warning: %s has %d damaged lines; missing texts are generated again",
                self.path(identity),
                damaged,
            )
        return found

    def append(self, identity: str, entries: Sequence[tuple[str, Generation]]) -> None:
        """Append (key, generation) pairs durably; warn once if the folder cannot be written to."""
        try:
            self._append(identity, entries)
        except OSError as error:
            if (reason := cannot_write(error)) is None:
                raise
            warn_uncached(self.folder.parent, reason)

    def _append(self, identity: str, entries: Sequence[tuple[str, Generation]]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = b"".join(_line(key, made) + b"\n" for key, made in entries)
        # Appending with one write keeps the lines of several processes apart.
        file = os.open(self.path(identity), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(file).st_size
            if size == 0:
                content = _head(identity) + b"\n" + content
            elif os.pread(file, 1, size - 1) != b"\n":
                content = b"\n" + content  # the last writer was killed in the middle of a line
            while content:
                content = content[os.write(file, content) :]
            os.fsync(file)
        finally:
            os.close(file)


def generation_key(prompt: Prompt, decoding: Decoding) -> str:
    """Hash everything that determines a text of a given generator; greedy texts have neither seed nor draw."""
    sampled = decoding.temperature > 0
    return short_hash(
        {
            "messages": [[message.role, message.content] for message in prompt.messages],
            "prefill": prompt.prefill,
            "max_new_tokens": decoding.max_new_tokens,
            "stop": list(decoding.stop),
            "sampled": [float(decoding.temperature), decoding.seed, prompt.draw] if sampled else None,
        }
    )


def generate_all(
    generator: Generator,
    prompts: Sequence[Prompt],
    decoding: Decoding,
    *,
    store: GenerationStore | None = None,
    progress: str | None = None,
) -> list[Generation]:
    """Generate a text for each prompt, in order; skips duplicates and stored texts and stores after every batch.

    Raises:
        AtwuError: The generator skipped prompts; what it did generate is stored.
    """
    keys = [generation_key(prompt, decoding) for prompt in prompts]
    distinct = dict(zip(reversed(keys), reversed(prompts), strict=True))  # keeps the first of equal prompts
    identity = generator.identity if store is not None else ""
    stored = store.read(identity) if store is not None else {}
    found = {key: stored[key] for key in distinct if key in stored}
    missing = [key for key in dict.fromkeys(keys) if key not in found]
    if missing:
        start, spent = time.perf_counter(), 0
        with progress_bar(
            total=len(missing), desc=progress, unit="prompt", shown=progress is not None, leave=False
        ) as bar:

            def keep(done: Sequence[tuple[int, Generation]]) -> None:
                nonlocal spent
                entries = [(missing[index], generation) for index, generation in done]
                if store is not None and (texts := [entry for entry in entries if entry[1].error is None]):
                    store.append(identity, texts)
                found.update(entries)
                spent += sum(generation.tokens for _, generation in entries)
                rate = spent / max(time.perf_counter() - start, 1e-9)
                bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
                bar.update(len(entries))

            generator.generate([distinct[key] for key in missing], decoding, keep)
    left = sum(key not in found for key in missing)
    if left:
        raise AtwuError(
            f"the generator returned no text for {left} of {len(missing)} prompts; run again to retry them."
        )
    return [found[key] for key in keys]


def _head(identity: str) -> bytes:
    """Return the first line of a generator's file."""
    return json.dumps({"generator": identity}).encode()


def _line(key: str, made: Generation) -> bytes:
    """Return one generation as a line, with its hash."""
    line = {"key": key, "text": made.text, "tokens": made.tokens}
    return json.dumps(line | {"hash": short_hash(line)}).encode()


def _entry(line: bytes) -> tuple[str, Generation] | None:
    """Parse a line into key and generation; None if it is damaged."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    match value:
        case {"key": str(key), "text": str(text), "tokens": int(tokens)} if line == _line(
            key, Generation(text, tokens)
        ):
            return key, Generation(text, tokens)
    return None
