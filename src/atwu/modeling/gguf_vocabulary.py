"""A tokenizer as the entries of a GGUF file: byte-level BPE (GPT-2, Llama 3), and BPE as in SentencePiece (Llama 2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3 cuts a text into words."""
ELSEWHERE = "llama.cpp may know it (--llama-cpp PATH)"
_SPACE = "▁"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """What a GGUF file says about a tokenizer."""

    pre: str | None
    """Llama.cpp's name for the way byte-level BPE cuts a text into words; None for SentencePiece, which does not."""
    tokens: tuple[str, ...]
    """In the order of their ids."""
    types: tuple[int, ...]
    """Of each token: `gguf.TokenType`."""
    merges: tuple[str, ...]
    """From first to last."""
    special: Mapping[str, int]
    """`bos`, `eos`, `unk`, `pad` -> id, as far as there is one."""
    adds_bos: bool
    space_prefix: bool
    """Whether a text is read as if it began with a space."""
    chat_template: str | None

    @property
    def scores(self) -> tuple[float, ...]:
        """What llama.cpp orders SentencePiece's merges by: the earlier a token is made, the higher."""
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
    """The entries of a fast tokenizer.

    Args:
        tokenizer: BPE, byte-level or as in SentencePiece.
        size: rows of the model's embedding matrix; ids that no token has are filled up.

    Raises:
        ValueError: another kind of tokenizer, or one that cuts words in a way without a name in llama.cpp.
    """
    from gguf import TokenType

    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    model = rules["model"]
    if model["type"] != "BPE":
        raise ValueError(f"its tokenizer is {model['type']}, and only BPE is written to GGUF here; {ELSEWHERE}.")
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
    """Llama.cpp's name for a pre-tokenizer of the tokenizers library."""
    if rules["normalizer"] is not None:
        kind = rules["normalizer"]["type"]
        raise ValueError(f"its tokenizer changes texts beforehand ({kind}), which GGUF cannot say; {ELSEWHERE}.")
    parts = _parts(rules["pre_tokenizer"], "pretokenizers")
    kinds = [part["type"] for part in parts]
    if kinds and kinds[-1] == "ByteLevel" and not parts[-1]["add_prefix_space"]:
        if kinds == ["ByteLevel"] and parts[0]["use_regex"]:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and parts[0]["individual_digits"] and parts[1]["use_regex"]:
            return "smollm"
        if kinds == ["Split", "ByteLevel"] and parts[0]["pattern"] == {"Regex": LLAMA3} and not parts[1]["use_regex"]:
            return "llama-bpe"
    found = " and ".join(kinds) or "nothing"
    raise ValueError(f"its tokenizer cuts words by {found}, which has no name here; {ELSEWHERE}.")


def _space_prefix(rules: Mapping[str, Any]) -> bool:
    """Whether a tokenizer as in SentencePiece puts a space before a text."""
    before, cut = _parts(rules["normalizer"], "normalizers"), _parts(rules["pre_tokenizer"], "pretokenizers")
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    if not before and [part["type"] for part in cut] == ["Metaspace"] and not cut[0]["split"]:
        return bool(cut[0]["prepend_scheme"] != "never")
    if not cut and before in ([spaces], [{"type": "Prepend", "prepend": _SPACE}, spaces]):
        return len(before) == 2
    kinds = " and ".join(part["type"] for part in (*before, *cut)) or "nothing"
    raise ValueError(f"its tokenizer treats spaces by {kinds}, which is not as in SentencePiece; {ELSEWHERE}.")


def _parts(rule: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """What a normalizer or pre-tokenizer is made of."""
    if rule is None:
        return []
    found: list[Mapping[str, Any]] = rule[inner] if rule["type"] == "Sequence" else [rule]
    return found
