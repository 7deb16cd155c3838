"""Prompts, decoding settings and generated texts, kept in the cache of replies so that no text is generated twice."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from atwu._cache import short_hash, warn_uncached
from atwu._file_reading import read_json
from atwu._progress import progress_bar
from atwu.data.render import without_thoughts
from atwu.data.schema import Message
from atwu.errors import AtwuError
from atwu.judge.reply_cache import CacheError, ReplyCache, default_path


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
    max_new_tokens: int = 64
    temperature: float = 0.0
    """0 is greedy decoding."""
    seed: int = 0
    """Seed for a temperature above 0; each (seed, prompt, draw) has its own noise, independent of the batch."""
    stop: tuple[str, ...] = ()
    """The text is cut before the first of these strings."""


@dataclass(frozen=True, slots=True)
class Generation:
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
            on_done: Called after every batch with (index, generation) pairs.
        """


@functools.cache
def _shipped() -> Mapping[str, tuple[str, int]]:
    texts: dict[str, tuple[str, int]] = read_json(Path(__file__).with_name("shipped_generations.json"))
    return texts


class GenerationStore:
    """Generations in the cache of replies, by generator and `generation_key`; those that every request needs from `smollm2`
    are shipped (`scripts/ship_generations.py`).

    Generations can be made again, so a cache that cannot be used gives one warning and no error.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path or default_path())
        self._cache: ReplyCache | None = None

    def read(self, identity: str, keys: Iterable[str]) -> dict[str, Generation]:
        # All generators share the cache, and judges do, too.
        names = {short_hash([identity, key]): key for key in keys}
        shipped = {key: Generation(*_shipped()[name]) for name, key in names.items() if name in _shipped()}
        values = self._use(lambda cache: cache.get_many(names))
        # What this cache holds comes before what was shipped.
        return shipped | {names[name]: Generation(**value) for name, value in values.items()}

    def append(self, identity: str, entries: Iterable[tuple[str, Generation]]) -> None:
        """Store (key, generation) pairs durably; the first of a key is kept."""
        values = {short_hash([identity, key]): {"text": text.text, "tokens": text.tokens} for key, text in entries}
        self._use(lambda cache: cache.put_many(values))

    def _use(self, work: Callable[[ReplyCache], dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
        try:
            self._cache = self._cache or ReplyCache(self.path)
            return work(self._cache)
        except CacheError as error:
            warn_uncached(self.path, str(error.__cause__))
            return {}


def generation_key(prompt: Prompt, decoding: Decoding) -> str:
    """Hash everything that determines a text of a given generator; greedy texts have neither seed nor draw."""
    # A greedy text is the same for every seed, so runs with different seeds share it.
    sampled = None
    if decoding.temperature > 0:
        sampled = [float(decoding.temperature), decoding.seed, prompt.draw]
    return short_hash(
        {
            "messages": [[message.role, message.content] for message in prompt.messages],
            "prefill": prompt.prefill,
            "max_new_tokens": decoding.max_new_tokens,
            "stop": list(decoding.stop),
            "sampled": sampled,
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
    # Reversed, since a dict keeps the last of equal keys, and the first prompt is wanted.
    distinct = dict(zip(reversed(keys), reversed(prompts), strict=True))
    identity, known = "", dict[str, Generation]()
    if store is not None:
        # Only here, since it hashes the weights.
        identity = generator.identity
        known = store.read(identity, distinct)
    missing = [key for key in dict.fromkeys(keys) if key not in known]
    start, spent = time.perf_counter(), 0
    shown = progress is not None and bool(missing)
    with progress_bar(total=len(missing), desc=progress, unit="prompt", shown=shown, leave=False) as bar:

        def keep(done: Sequence[tuple[int, Generation]]) -> None:
            nonlocal spent
            entries = [(missing[index], generation) for index, generation in done]
            if store is not None:
                store.append(identity, [entry for entry in entries if entry[1].error is None])
            known.update(entries)
            spent += sum(generation.tokens for _, generation in entries)
            rate = spent / max(time.perf_counter() - start, 1e-9)
            bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
            bar.update(len(entries))

        if missing:
            generator.generate([distinct[key] for key in missing], decoding, keep)
    # A generator may leave prompts out without an error.
    left = sum(key not in known for key in missing)
    if left:
        raise AtwuError(
            f"the generator returned no text for {left} of {len(missing)} prompts; run again to retry them."
        )
    return [known[key] for key in keys]
