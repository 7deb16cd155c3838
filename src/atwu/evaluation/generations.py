"""What is generated from and what comes back, and generating many texts once: kept on disk, a killed run continued.

A store is a folder with one JSON-lines file per generator. Its first line says whose texts follow, every other line is
one text under a hash of its prompt and decoding. Lines are only ever appended, a batch at a time, so several processes
may use one store and a killed one loses no batch but its last. Only the user may read the files, whose texts may hold
what a model knows; deleting the folder forgets them.
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

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends with the user's turn, and the beginning of the answer if it is given."""

    messages: tuple[Message, ...]
    prefill: str = ""
    """Words the answer starts with; not part of the generated text."""
    draw: int = 0
    """Number of the sample; only matters at a temperature above 0, where it tells repeated draws apart."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How text is generated."""

    max_new_tokens: int = 64
    temperature: float = 0.0
    """0 is greedy."""
    seed: int = 0
    """Of the draws at a temperature above 0; each (seed, prompt, draw) has its own, whatever is in the batch."""
    stop: tuple[str, ...] = ()
    """The text is cut before the first of these."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model said."""

    text: str
    """Without special tokens and white space around it."""
    tokens: int
    """Tokens generated for it, an end token included."""


class Generator(Protocol):
    """A model that continues prompts."""

    @property
    def identity(self) -> str:
        """Names everything about the model that can change a text: backend, weights, template, length limits."""

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Sequence[tuple[int, Generation]]], None]
    ) -> None:
        """Generate for all prompts, in any order.

        Args:
            prompts: distinct prompts.
            decoding: settings.
            on_done: called after every batch with (index, generation) pairs.
        """


class GenerationStore:
    """Generations on disk, found by generator, prompt and decoding."""

    def __init__(self, folder: str | Path | None = None) -> None:
        """Use a folder, by default that of the cache."""
        self.folder = cache_folder() / "generations" if folder is None else Path(folder)

    def path(self, identity: str) -> Path:
        """The file of a generator."""
        return self.folder / f"{short_hash(identity)}.jsonl"

    def read(self, identity: str) -> dict[str, Generation]:
        """Generations by key; of several for one key the first. Lines that are not whole are counted in a warning."""
        try:
            content = self.path(identity).read_bytes()
        except FileNotFoundError:
            return {}
        found: dict[str, Generation] = {}
        head, *lines = content.split(b"\n")
        damaged = int(head != _head(identity))
        for line in filter(None, lines):
            if line == head:  # of a second process that found the file empty, too
                continue
            entry = _entry(line)
            if entry is not None:
                found.setdefault(*entry)
            damaged += entry is None
        if damaged:
            logger.warning(
                "warning: %s has %d damaged lines; texts that are missing are generated again",
                self.path(identity),
                damaged,
            )
        return found

    def append(self, identity: str, entries: Sequence[tuple[str, Generation]]) -> None:
        """Add (key, generation) pairs; on return they are on disk, or it was said once that nothing can be kept there."""
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
    """Hash of all that decides a text of a given generator; greedy texts have no seed and no draw."""
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
    """Generate a text for each prompt, in their order; each distinct one once, and none that is stored.

    The store is written to after every batch.

    Raises:
        RuntimeError: the generator left prompts out; what it did generate is stored.
    """
    keys = [generation_key(prompt, decoding) for prompt in prompts]
    distinct = dict(zip(reversed(keys), reversed(prompts), strict=True))  # the first of equal prompts stays
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
                if store is not None:
                    store.append(identity, entries)
                found.update(entries)
                spent += sum(generation.tokens for _, generation in entries)
                rate = spent / max(time.perf_counter() - start, 1e-9)
                bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
                bar.update(len(entries))

            generator.generate([distinct[key] for key in missing], decoding, keep)
    left = sum(key not in found for key in missing)
    if left:
        raise RuntimeError(
            f"the generator returned without {left} of {len(missing)} texts; run again to ask for those."
        )
    return [found[key] for key in keys]


def _head(identity: str) -> bytes:
    """The first line of a generator's file."""
    return json.dumps({"generator": identity}).encode()


def _line(key: str, made: Generation) -> bytes:
    """One generation, with a hash of it."""
    line = {"key": key, "text": made.text, "tokens": made.tokens}
    return json.dumps(line | {"hash": short_hash(line)}).encode()


def _entry(line: bytes) -> tuple[str, Generation] | None:
    """Key and generation of a line, or None if it is anything else."""
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
