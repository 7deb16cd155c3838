"""Generating many texts once: equal prompts together, texts kept on disk, a killed run continued.

A store is a folder with one JSON-lines file per generator. Its first line says whose texts follow, every other line is
one text under a hash of its prompt and decoding. Lines are only ever appended, a batch at a time, so several processes
may use one store and a killed one loses no batch but its last. Only the user may read the files, whose texts may hold
what a model knows; deleting the folder forgets them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from atwu._cache import short_hash
from atwu.evaluation.prompts import Decoding, Generation, Generator, Prompt


@dataclass(slots=True)
class Spent:
    """What was newly generated, added up over the calls that it is given to."""

    prompts: int = 0
    tokens: int = 0


class GenerationStore:
    """Generations on disk, found by generator, prompt and decoding."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, identity: str) -> Path:
        """The file of a generator."""
        return self.folder / f"{short_hash(identity)}.jsonl"

    def read(self, identity: str) -> dict[str, Generation]:
        """Generations by key; of several for one key the first, and nothing for a line that is not whole."""
        try:
            content = self.path(identity).read_bytes()
        except FileNotFoundError:
            return {}
        found: dict[str, Generation] = {}
        for line in content.split(b"\n"):
            entry = _entry(line)
            if entry is not None:
                found.setdefault(*entry)
        return found

    def append(self, identity: str, entries: Sequence[tuple[str, Generation]]) -> None:
        """Add (key, generation) pairs; on return they are on disk."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = [{"key": key, "text": made.text, "tokens": made.tokens} for key, made in entries]
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        # Appending with one write keeps the lines of several processes apart.
        file = os.open(self.path(identity), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(file).st_size
            if size == 0:
                content = json.dumps({"generator": identity}).encode() + b"\n" + content
            elif _byte_at(file, size - 1) != b"\n":
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
    spent: Spent | None = None,
) -> list[Generation]:
    """Generate a text for each prompt, each distinct one once, and none that is stored.

    Args:
        generator: the model.
        prompts: any, repeated ones too.
        decoding: settings for all of them.
        store: where generations are read from and, after every batch, written to.
        progress: label of a progress bar, or None for none.
        spent: grows by what had to be generated.

    Returns:
        Generations in the order of the prompts.

    Raises:
        RuntimeError: the generator left prompts out; what it did generate is stored.
    """
    keys = [generation_key(prompt, decoding) for prompt in prompts]
    distinct = dict(zip(reversed(keys), reversed(prompts), strict=True))  # the first of equal prompts stays
    identity = generator.identity if store is not None else ""
    stored = store.read(identity) if store is not None else {}
    found = {key: stored[key] for key in distinct if key in stored}
    missing = [key for key in dict.fromkeys(keys) if key not in found]
    spent = spent if spent is not None else Spent()
    if missing:
        start, before = time.perf_counter(), spent.tokens
        with tqdm(total=len(missing), desc=progress, unit="prompt", disable=progress is None) as bar:

            def keep(done: Sequence[tuple[int, Generation]]) -> None:
                entries = [(missing[index], generation) for index, generation in done]
                if store is not None:
                    store.append(identity, entries)
                found.update(entries)
                spent.prompts += len(entries)
                spent.tokens += sum(generation.tokens for _, generation in entries)
                rate = (spent.tokens - before) / max(time.perf_counter() - start, 1e-9)
                bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
                bar.update(len(entries))

            generator.generate([distinct[key] for key in missing], decoding, keep)
    left = sum(key not in found for key in missing)
    if left:
        raise RuntimeError(
            f"the generator returned without {left} of {len(missing)} texts; run again to ask for those."
        )
    return [found[key] for key in keys]


def _entry(line: bytes) -> tuple[str, Generation] | None:
    """Key and generation of a line, or None if it is anything else."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    match value:
        case {"key": str(key), "text": str(text), "tokens": int(tokens)}:
            return key, Generation(text, tokens)
    return None


def _byte_at(file: int, place: int) -> bytes:
    os.lseek(file, place, os.SEEK_SET)  # appending writes go to the end all the same
    return os.read(file, 1)
