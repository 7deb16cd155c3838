"""Convert a tokenizer to GGUF entries: byte-level BPE (GPT-2, Llama 3) and SentencePiece BPE (Llama 2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atwu.data.encode import template_terminal

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Pre-tokenizer pattern of Llama 3."""
ELSEWHERE = "try the converter of llama.cpp (--llama-cpp PATH)"
_SPACE = "▁"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """Tokenizer entries of a GGUF file."""

    pre: str | None
    """llama.cpp's name of the pre-tokenizer of byte-level BPE; None for SentencePiece, which has none."""
    tokens: tuple[str, ...]
    """Tokens in the order of their ids."""
    types: tuple[int, ...]
    """`gguf.TokenType` of each token."""
    merges: tuple[str, ...]
    """Merges from first to last."""
    special: Mapping[str, int]
    """Ids of `bos`, `eos`, `unk`, `pad` and `eot`, if defined."""
    adds_bos: bool
    space_prefix: bool
    """Whether a space is prepended to a text."""
    chat_template: str | None

    @property
    def scores(self) -> tuple[float, ...]:
        """Scores by which llama.cpp orders SentencePiece merges: earlier merges have higher scores."""
        rank = {merge.replace(" ", ""): place for place, merge in reversed(list(enumerate(self.merges)))}
        return tuple(-float(rank.get(token, len(rank))) for token in self.tokens)

    def add_to(self, writer: Any) -> None:
        """Add the entries to a `gguf.GGUFWriter`."""
        writer.add_tokenizer_model("llama" if self.pre is None else "gpt2")
        writer.add_tokenizer_pre(self.pre or "default")
        writer.add_token_list(self.tokens)
        if self.pre is None:
            writer.add_token_scores(self.scores)
        writer.add_token_types(self.types)
        writer.add_token_merges(self.merges)
        for name, index in self.special.items():
            getattr(writer, f"add_{name}_token_id")(index)
        writer.add_add_bos_token(self.adds_bos)
        writer.add_add_space_prefix(self.space_prefix)
        if self.chat_template:
            writer.add_chat_template(self.chat_template)


def gguf_vocabulary(tokenizer: Any, size: int) -> GgufVocabulary:
    """Return the entries of a fast tokenizer.

    Args:
        tokenizer: byte-level or SentencePiece BPE.
        size: rows of the embedding matrix; ids without token get placeholders.
    """
    from gguf import TokenType

    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    model = rules["model"]
    if model["type"] != "BPE":
        raise ValueError(f"its tokenizer has type {model['type']}, but only BPE can be written to GGUF; {ELSEWHERE}.")
    pieces = bool(model.get("byte_fallback"))
    tokens, types = [f"[PAD{index}]" for index in range(size)], [int(TokenType.UNUSED)] * size
    for token, index in model["vocab"].items():
        tokens[index] = token
        types[index] = int(TokenType.BYTE if pieces and _BYTE.fullmatch(token) else TokenType.NORMAL)
    for added in rules["added_tokens"]:
        index = added["id"]
        tokens[index] = added["content"]
        types[index] = int(TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED)
    named = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk", "pad")}
    if (end := template_terminal(tokenizer)) != tokenizer.eos_token_id:
        named["eot"] = end  # end of turn, at which llama.cpp stops, too
    special = {name: int(index) for name, index in named.items() if index is not None}
    start = list(tokenizer("a")["input_ids"])
    template = tokenizer.chat_template
    return GgufVocabulary(
        pre=None if pieces else _word_splitting(rules),
        tokens=tuple(tokens),
        types=tuple(types),
        merges=tuple(merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]),
        special=special,
        adds_bos=start[:1] == [special.get("bos")],
        space_prefix=pieces and _space_prefix(rules),
        chat_template=template if isinstance(template, str) else (template or {}).get("default"),
    )


def _word_splitting(rules: Mapping[str, Any]) -> str:
    """Return llama.cpp's name of a pre-tokenizer of the tokenizers library."""
    if rules["normalizer"] is not None:
        kind = rules["normalizer"]["type"]
        raise ValueError(f"its tokenizer normalizes text ({kind}), which GGUF cannot represent; {ELSEWHERE}.")
    steps = _steps(rules["pre_tokenizer"], "pretokenizers")
    kinds = [step["type"] for step in steps]
    if kinds and kinds[-1] == "ByteLevel" and not steps[-1]["add_prefix_space"]:
        if kinds == ["ByteLevel"] and steps[0]["use_regex"]:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"] and steps[1]["use_regex"]:
            return "smollm"
        if kinds == ["Split", "ByteLevel"] and steps[0]["pattern"] == {"Regex": LLAMA3} and not steps[1]["use_regex"]:
            return "llama-bpe"
    names = " and ".join(kinds) or "nothing"
    raise ValueError(f"its tokenizer has the pre-tokenizer {names}, which is not supported; {ELSEWHERE}.")


def _space_prefix(rules: Mapping[str, Any]) -> bool:
    """Return whether a SentencePiece tokenizer prepends a space."""
    before, cut = _steps(rules["normalizer"], "normalizers"), _steps(rules["pre_tokenizer"], "pretokenizers")
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    if not before and [step["type"] for step in cut] == ["Metaspace"] and not cut[0]["split"]:
        return bool(cut[0]["prepend_scheme"] != "never")
    if not cut and before in ([spaces], [{"type": "Prepend", "prepend": _SPACE}, spaces]):
        return len(before) == 2
    kinds = " and ".join(step["type"] for step in (*before, *cut)) or "nothing"
    raise ValueError(f"its tokenizer treats spaces by {kinds}, unlike SentencePiece; {ELSEWHERE}.")


def _steps(rule: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer."""
    if rule is None:
        return []
    steps: list[Mapping[str, Any]] = rule[inner] if rule["type"] == "Sequence" else [rule]
    return steps
