"""Encode rows as token ids, labels and token labels.

The text of a row (see `atwu.data.render`) is tokenized once, with offsets, which show the tokens of the answer and those
that overlap a forget span. Counted tokens (those with loss) are the answer tokens and the terminal token, not prompt and
template; in a plain text row, every token except the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from atwu.data.render import (
    OPEN,
    RenderedRow,
    check_system,
    of_tokenizer,
    prompt_opens_thoughts,
    render_row,
    starts_with_thoughts,
)
from atwu.data.schema import IGNORE_INDEX, Example, Span, overlap
from atwu.data.spool import store_rows

_T = TypeVar("_T")
_SPACE_MARKS = "▁Ġ "
UNLIMITED = 1_000_000
"""Tokens, for a model that states no limit, and where none is wanted."""


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """One row as tokens; all tuples have one entry per token (unshifted axis)."""

    input_ids: tuple[int, ...]
    labels: tuple[int, ...]
    """Token id on counted tokens, IGNORE_INDEX on prompt and template."""
    token_labels: tuple[int, ...] | None
    """1 on counted tokens that overlap a forget span, else 0; None if the row has no forget_spans."""
    answer_offsets: tuple[Span | None, ...]
    """Character range of the token in the answer (leading space included); None outside the answer."""
    has_terminal: bool
    """False if the answer was truncated at `max_length`, so that no end-of-turn token is trained."""

    @property
    def answer_start(self) -> int:
        """Index of the first counted token."""
        return next(index for index, label in enumerate(self.labels) if label != IGNORE_INDEX)

    def counted(self, values: Sequence[_T]) -> list[_T]:
        """Select the values of counted tokens from one value per token."""
        return [value for value, label in zip(values, self.labels, strict=True) if label != IGNORE_INDEX]

    def counted_after(self, place: int) -> EncodedRow:
        """Count only tokens that reach beyond a place in the answer, and the terminal token; all as before if there is none."""
        labels = tuple(
            label if offset is None or offset[1] > place else IGNORE_INDEX
            for label, offset in zip(self.labels, self.answer_offsets, strict=True)
        )
        if all(label == IGNORE_INDEX for label in labels):
            return self
        return replace(self, labels=labels)

    @property
    def text_labels(self) -> tuple[int, ...]:
        """Labels that count only the text of the answer, without the terminal token."""
        both = zip(self.labels, self.answer_offsets, strict=True)
        return tuple(IGNORE_INDEX if offset is None else label for label, offset in both)

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """Token ids before the first counted token, the prompt of generation."""
        return self.input_ids[: self.answer_start]


@dataclass(frozen=True, slots=True)
class EncodedRows:
    rows: Sequence[EncodedRow]
    warnings: tuple[str, ...]


_Tokens = tuple[list[int], list[Span]]
"""Token ids of a text, and the character range of each."""


class Encoder:
    def __init__(self, tokenizer: Any, *, max_length: int = 512, system: str | None = None) -> None:
        """Create an encoder.

        Args:
            tokenizer: a fast tokenizer of transformers (offsets are needed); its chat template is used, or
                "Question: ...\\nAnswer: ..." if it has none.
            max_length: longest row in tokens; longer answers are truncated and lose their terminal token.
            system: text of a system turn for conversations without one; None adds none.
        """
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"{type(tokenizer).__name__} is not a fast tokenizer, so it has no character offsets; use one "
                "(AutoTokenizer.from_pretrained(name) returns one if the model has a tokenizer.json)."
            )
        if max_length < 2:
            raise ValueError(f"max_length must be at least 2 tokens, got {max_length}.")
        check_system(system)
        self.tokenizer = tokenizer
        self.system = system
        self.max_length = max_length
        self._limit = (
            f"max_length is {max_length}; shorten the prompt, or raise max_length if the model has more positions."
        )
        added = tokenizer.added_tokens_decoder
        # Marks of a template are added tokens, special or not; so are runs of spaces, which end nothing.
        special = {index for index, token in added.items() if token.special or token.content.strip()}
        special |= set(tokenizer.all_special_ids)
        # Some tokenizers use one token for unknown, start and end; a pure unknown token does not end an answer.
        start_and_end = {tokenizer.bos_token_id, tokenizer.eos_token_id}
        self._special = special - ({tokenizer.unk_token_id} - start_and_end)
        self._blanks: dict[int, bool] = {}
        """Token -> whether it is only a space."""
        # Whether a start token is added is asked of the tokenizer itself: `add_bos_token` is not always obeyed.
        probe = list(tokenizer("a")["input_ids"])
        self._adds_bos = tokenizer.bos_token_id is not None and probe[:1] == [tokenizer.bos_token_id]

    @classmethod
    def within_positions(cls, tokenizer: Any, config: Any) -> Encoder:
        """Create an encoder of prompts whose limit is that of the model.

        Args:
            config: configuration of the model's text part.
        """
        positions = int(getattr(config, "max_position_embeddings", None) or UNLIMITED)
        encoder = cls(tokenizer, max_length=positions)
        encoder._limit = f"the model has only {positions} positions; shorten the prompt or use another model."
        return encoder

    def encode(self, example: Example, *, where: str | None = None) -> EncodedRow:
        where = where or f"row with question {example.question[:60]!r}"
        if not example.answer.strip():
            raise ValueError(f"{where}: the answer is empty; add text or remove the row.")
        try:
            rendered = render_row(example, self.tokenizer, system=self.system)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        # The template may write more behind the end of the answer; nothing of it is trained.
        (ids, ranges), first, stop = self._answer_tokens(rendered, where)
        ids = ids[: stop + 1]
        offsets: list[Span | None] = [None] * len(ids)
        offsets[first:stop] = [_within_answer(span, rendered) for span in ranges[first:stop]]
        if self._adds_bos and ids[0] != self.tokenizer.bos_token_id:
            ids, offsets, first = [self.tokenizer.bos_token_id, *ids], [None, *offsets], first + 1
        # No token predicts the first one, so a text without a prompt has no loss there.
        first = max(first, 1)
        if first >= self.max_length:
            raise ValueError(f"{where}: the prompt alone has {first} tokens, but {self._limit}")
        length, marks = min(len(ids), self.max_length), None
        spans = example.forget_spans
        if spans is not None:
            places = enumerate(offsets[:length])
            marks = tuple(int(index >= first and touches(offset, spans, example.answer)) for index, offset in places)
        return EncodedRow(
            input_ids=tuple(ids[:length]),
            labels=(*[IGNORE_INDEX] * first, *ids[first:length]),
            token_labels=marks,
            answer_offsets=tuple(offsets[:length]),
            has_terminal=length == len(ids),
        )

    def encode_rows(self, rows: Iterable[Example], *, what: str) -> EncodedRows:
        """Encode a set of rows; `what` is its name in messages, such as `forget`."""
        truncated, unlabelled, plain = [], [], []

        def every() -> Iterator[EncodedRow]:
            for number, example in enumerate(rows, start=1):
                if example.messages and not starts_with_thoughts(example.answer):
                    plain.append(number)
                row = self.encode(example, where=f"{what}, row {number}")
                if not row.has_terminal:
                    truncated.append(number)
                    encoded_until = max(offset[1] for offset in row.answer_offsets if offset is not None)
                    if any(end > encoded_until for _, end in example.forget_spans or ()):
                        unlabelled.append(number)
                yield row

        encoded, warnings = store_rows(every()), []
        if plain and prompt_opens_thoughts(self.tokenizer):
            warnings.append(
                f"{what}: the chat template ends prompts with {OPEN}, but {len(plain)} answers have no thoughts; they are "
                "trained and measured without the mark, unlike what a server sends. Turn thoughts off where the model is used, "
                "or give rows with thoughts."
            )
        if truncated:
            warnings.append(
                f"{what}: {len(truncated)} of {len(encoded)} answers are longer than max_length={self.max_length} and were "
                f"truncated, without a terminal token (first: row {truncated[0]})."
            )
        if unlabelled:
            warnings.append(
                f"{what}: {len(unlabelled)} of them lose some of their forget_spans (first: row {unlabelled[0]})."
            )
        return EncodedRows(rows=encoded, warnings=tuple(warnings))

    def encode_prompt(self, example: Example, *, prefill: str = "") -> tuple[int, ...]:
        """Return the token ids that generation starts from: those before the answer as in training, then the prefill.

        Args:
            prefill: text that the answer starts with. Trailing spaces are dropped, since they belong to the next token.
                Text that the prompt already ends with (such as `Answer:` in the plain form) is not repeated.
        """
        if not prefill.strip():
            return self.encode(example).prompt_ids
        # A prompt such as "... Answer:" ends with what the answer would begin with.
        rendered = render_row(example, self.tokenizer, system=self.system)
        if rendered.text[: rendered.start].rstrip().endswith(prefill.strip()):
            return self.encode(example).prompt_ids
        row = self.encode(example.with_answer(prefill.rstrip()))
        if not row.has_terminal:
            raise ValueError(
                f"row with question {example.question[:60]!r}: prompt and prefill leave no room for an answer, since "
                f"{self._limit}"
            )
        # Without the terminal token: the answer goes on.
        last = max(index for index, offset in enumerate(row.answer_offsets) if offset is not None)
        return row.input_ids[: last + 1]

    def _answer_tokens(self, rendered: RenderedRow, where: str) -> tuple[_Tokens, int, int]:
        """Return the tokens, the index of the first answer token, and that of the terminal token (added if missing)."""
        tokens, first = self._split(rendered)
        ids, ranges = tokens
        if first == len(ids):
            raise ValueError(f"{where}: the tokenizer returns no token for the answer; change or remove the row.")
        for index in range(first, len(ids)):
            if ids[index] in self._special and ranges[index][1] > rendered.end:
                return tokens, first, index
        if rendered.end < len(rendered.text):  # text after the answer without an end token
            return self._answer_tokens(replace(rendered, text=rendered.text[: rendered.end]), where)
        eos = self.tokenizer.eos_token_id
        if eos is None:
            raise ValueError(
                f"{where}: no token ends the answer: the template has no special token after it, and the tokenizer"
                f"{of_tokenizer(self.tokenizer)} has no eos_token; set it in tokenizer_config.json, or set tokenizer.eos_token."
            )
        # An end token that is the whole answer is its text.
        if ids[-1] != eos or len(ids) == first + 1:
            ids.append(eos)
            ranges.append((rendered.end, rendered.end))
        return tokens, first, len(ids) - 1

    def _split(self, rendered: RenderedRow) -> tuple[_Tokens, int]:
        """Tokenize the whole text and return the index of the first answer token."""
        text, boundary = rendered.text, rendered.boundary
        ids, ranges = self._tokenize(text)
        behind = (index for index, (start, end) in enumerate(ranges) if end > rendered.start or start >= boundary)
        first = next(behind, len(ranges))
        if first < len(ids) and text[ranges[first][0] : boundary].strip():
            # One token spans prompt and answer: tokenize the two sides separately.
            (left, before), (right, after) = self._tokenize(text[:boundary]), self._tokenize(text[boundary:])
            moved = [(start + boundary, end + boundary) for start, end in after]
            return (left + right, before + moved), len(left)
        return (ids, ranges), first

    def _tokenize(self, text: str) -> _Tokens:
        """Return ids and character ranges, with ranges normalized across tokenizers (leading space included)."""
        out = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids = list(out["input_ids"])
        ranges: list[Span] = []
        reached = 0
        for token, (start, end) in zip(ids, out["offset_mapping"], strict=True):
            if start > reached and text[reached:start].isspace():
                start = reached  # byte-level tokenizers may exclude the leading space
            if token not in self._blanks:
                self._blanks[token] = not self.tokenizer.convert_ids_to_tokens(token).strip(_SPACE_MARKS)
            if self._blanks[token] and text[start:end].strip():
                end = start  # the range of SentencePiece's dummy space includes the next character
            ranges.append((start, end))
            reached = max(reached, end)
        return ids, ranges


def template_terminal(tokenizer: Any) -> int | None:
    """Return the token with which the chat template ends an answer, None without one.

    It is often another than `eos_token`: `<|im_end|>` of a tokenizer whose `eos_token` is `<|endoftext|>`.
    """
    if not tokenizer.chat_template:
        return None
    for system in (None, "Be brief."):  # some templates need a system turn
        try:
            # Some templates begin with a long system turn.
            encoder = Encoder(tokenizer, system=system, max_length=UNLIMITED)
            return encoder.encode(Example.from_qa("Hello?", "Hello.")).input_ids[-1]
        except ValueError:  # a slow tokenizer, or a template that needs other turns
            continue
    return None


def _within_answer(span: Span, rendered: RenderedRow) -> Span | None:
    start, end = span
    if start >= rendered.end:
        return None
    shift = rendered.trimmed - rendered.start
    start = max(start, rendered.start)
    return start + shift, max(start, min(end, rendered.end)) + shift


def touches(offset: Span | None, spans: Sequence[Span], answer: str) -> bool:
    """Return whether a token overlaps one of the ranges, ignoring spaces around its word; False outside the answer (None)."""
    if offset is None:
        return False
    start, end = offset
    piece = answer[start:end]
    if piece.strip():  # spaces around a word do not count as overlap
        start, end = start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
    return any(overlap((start, end), span) for span in spans)
