"""Rows into token ids, labels and token labels.

The whole text of a row (see `atwu.data.render_row`) is tokenised once, with offsets; they tell which tokens are the
answer's and which of those touch a forget span. Answer tokens and the terminal token carry loss, prompt and template do
not; in a plain text row every token does except the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from atwu.data.render import RenderedRow, check_system, render_row
from atwu.data.schema import IGNORE_INDEX, Example, Span
from atwu.data.spool import store_rows

T = TypeVar("T")
_SPACE_MARKS = "▁Ġ "


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """One row as tokens; all tuples have one entry per token (unshifted axis)."""

    input_ids: tuple[int, ...]
    labels: tuple[int, ...]
    """The token id where it is counted, IGNORE_INDEX on prompt and template."""
    token_labels: tuple[int, ...] | None
    """1 where a counted token touches a forget span, else 0; None when the row has no annotation."""
    answer_offsets: tuple[Span | None, ...]
    """Character range of the token within the answer (a leading space included); None outside the answer."""
    has_terminal: bool
    """False when the answer was cut at `max_length`, so that no end-of-turn token is trained."""

    @property
    def answer_start(self) -> int:
        """Index of the first counted token."""
        return next(index for index, label in enumerate(self.labels) if label != IGNORE_INDEX)

    def counted(self, values: Sequence[T]) -> list[T]:
        """Those of some values, one per token, that belong to counted tokens."""
        return [value for value, label in zip(values, self.labels, strict=True) if label != IGNORE_INDEX]

    @property
    def text_labels(self) -> tuple[int, ...]:
        """The labels, counted in the answer's text alone: not at the terminal token."""
        both = zip(self.labels, self.answer_offsets, strict=True)
        return tuple(IGNORE_INDEX if offset is None else label for label, offset in both)

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The ids before the first counted token: what generation starts from."""
        return self.input_ids[: self.answer_start]


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Encoded rows of one set, in the order given, with what was lost on the way."""

    rows: Sequence[EncodedRow]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Ids of a text with the character range of each."""

    ids: list[int]
    ranges: list[Span]


class Encoder:
    """Turns rows into tokens for one tokenizer."""

    def __init__(self, tokenizer: Any, *, max_length: int = 512, system: str | None = None) -> None:
        """Bind a tokenizer.

        Args:
            tokenizer: a fast tokenizer of transformers (offsets are needed); its chat template is used, or
                "Question: ...\\nAnswer: ..." when it has none.
            max_length: longest row in tokens; longer answers are cut at the right and lose their terminal token.
            system: text of a system turn put before conversations that have none; None puts none.

        Raises:
            ValueError: slow tokenizer, or a value out of range.
        """
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"{type(tokenizer).__name__} gives no character offsets; a fast tokenizer is required "
                "(AutoTokenizer.from_pretrained(name) gives one when the model has a tokenizer.json)."
            )
        if max_length < 2:
            raise ValueError(f"max_length must be at least 2 tokens, got {max_length}.")
        check_system(system)
        self.tokenizer = tokenizer
        self.system = system
        self.max_length = max_length
        added = tokenizer.added_tokens_decoder
        special = {index for index, token in added.items() if token.special} | set(tokenizer.all_special_ids)
        # Some tokenizers use one token for unknown, start and end; a token that is only "unknown" ends nothing.
        kept = {tokenizer.bos_token_id, tokenizer.eos_token_id}
        self._special = special - ({tokenizer.unk_token_id} - kept)
        probe = list(tokenizer("a")["input_ids"])
        self._blanks: dict[int, bool] = {}
        self._adds_bos = tokenizer.bos_token_id is not None and probe[:1] == [tokenizer.bos_token_id]

    def encode(self, example: Example, *, where: str | None = None) -> EncodedRow:
        """Encode one row.

        Args:
            example: the row.
            where: its place, put in front of every error; by default its question.

        Raises:
            ValueError: an empty answer, the prompt alone reaches `max_length`, the template refuses the row, or there is
                no token to end the answer with.
        """
        where = where or f"row with question {example.question[:60]!r}"
        if not example.answer.strip():
            raise ValueError(f"{where}: the answer is empty; give it text or remove the row.")
        try:
            rendered = render_row(example, self.tokenizer, system=self.system)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        tokens, first, stop = self._answer_tokens(rendered, where)
        ids = tokens.ids[: stop + 1]
        offsets = [
            _within_answer(span, rendered) if first <= index < stop else None
            for index, span in enumerate(tokens.ranges[: stop + 1])
        ]
        if self._adds_bos and ids[0] != self.tokenizer.bos_token_id:
            ids, offsets, first = [self.tokenizer.bos_token_id, *ids], [None, *offsets], first + 1
        first = max(first, 1)  # nothing predicts the first token
        if first >= self.max_length:
            raise ValueError(
                f"{where}: the prompt alone takes {first} tokens and max_length is {self.max_length}; "
                "raise max_length or shorten the prompt."
            )
        spans = example.forget_spans
        marks = spans and [
            int(index >= first and touches(offsets[index], spans, example.answer)) for index in range(len(ids))
        ]
        keep = min(len(ids), self.max_length)
        return EncodedRow(
            input_ids=tuple(ids[:keep]),
            labels=tuple(token if index >= first else IGNORE_INDEX for index, token in enumerate(ids[:keep])),
            token_labels=None if spans is None else tuple(marks[:keep]) if marks else (0,) * keep,
            answer_offsets=tuple(offsets[:keep]),
            has_terminal=keep == len(ids),
        )

    def encode_rows(self, rows: Iterable[Example], *, what: str) -> EncodedRows:
        """Encode a set of rows.

        Args:
            rows: the rows.
            what: name of the set in messages, such as `forget`.

        Returns:
            The encoded rows, one for each row given, and counted warnings.

        Raises:
            ValueError: as `encode`, naming the row.
        """
        cut, unmarked = [], []

        def every() -> Iterator[EncodedRow]:
            for number, example in enumerate(rows, start=1):
                row = self.encode(example, where=f"{what}, row {number}")
                if not row.has_terminal:
                    cut.append(number)
                    seen = max(offset[1] for offset in row.answer_offsets if offset is not None)
                    if any(end > seen for _, end in example.forget_spans or ()):
                        unmarked.append(number)
                yield row

        encoded, warnings = store_rows(every()), []
        if cut:
            warnings.append(
                f"{what}: {len(cut)} of {len(encoded)} answers are longer than max_length={self.max_length} and were "
                f"truncated, without a terminal token (first: row {cut[0]})."
            )
        if unmarked:
            warnings.append(f"{what}: {len(unmarked)} of them lose part of their forget_spans (first: {unmarked[0]}).")
        return EncodedRows(rows=encoded, warnings=tuple(warnings))

    def encode_prompt(self, example: Example, *, prefill: str = "") -> tuple[int, ...]:
        """The ids generation starts from.

        Args:
            example: the row.
            prefill: words that the answer starts with, in place of the row's own. Spaces at their end are left out:
                they belong to the token that comes next. Words that the prompt already ends with, as the plain form does
                with `Answer:`, are not said twice.

        Returns:
            Exactly the ids that come before the answer in training, and those of the prefill as an answer's beginning.

        Raises:
            ValueError: a prefill too long for `max_length`, or as `encode`.
        """
        if not prefill.strip():
            return self.encode(example).prompt_ids
        rendered = render_row(example, self.tokenizer, system=self.system)
        if rendered.text[: rendered.start].rstrip().endswith(prefill.strip()):
            return self.encode(example).prompt_ids
        row = self.encode(replace(example, answer=prefill.rstrip(), forget_spans=None))
        if not row.has_terminal:
            raise ValueError(
                f"row with question {example.question[:60]!r}: prompt and prefill leave no room for an answer in "
                f"max_length={self.max_length}; raise it or shorten them."
            )
        last = max(index for index, offset in enumerate(row.answer_offsets) if offset is not None)
        return row.input_ids[: last + 1]

    def _answer_tokens(self, rendered: RenderedRow, where: str) -> tuple[_Tokens, int, int]:
        """Tokens of the row, index of the answer's first token, and index of the terminal token (added if need be)."""
        tokens, first = self._split(rendered)
        if first == len(tokens.ids):
            raise ValueError(f"{where}: the tokenizer gives no token for the answer; change or remove the row.")
        for index in range(first, len(tokens.ids)):
            if tokens.ids[index] in self._special and tokens.ranges[index][1] > rendered.end:
                return tokens, first, index
        if rendered.end < len(rendered.text):  # text after the answer, but nothing that ends it
            return self._answer_tokens(replace(rendered, text=rendered.text[: rendered.end]), where)
        eos = self.tokenizer.eos_token_id
        if eos is None:
            raise ValueError(
                f"{where}: nothing ends the answer: the template writes no special token after it and the tokenizer "
                "has no eos_token; set tokenizer.eos_token."
            )
        if tokens.ids[-1] != eos or len(tokens.ids) == first + 1:
            tokens.ids.append(eos)
            tokens.ranges.append((rendered.end, rendered.end))
        return tokens, first, len(tokens.ids) - 1

    def _split(self, rendered: RenderedRow) -> tuple[_Tokens, int]:
        """Tokens of the whole text and the index of the answer's first token."""
        text, boundary = rendered.text, rendered.boundary
        tokens = self._tokenize(text)
        first = _first_token(tokens.ranges, rendered)
        if first < len(tokens.ids) and text[tokens.ranges[first][0] : boundary].strip():
            # One token spans the end of the prompt and the start of the answer: tokenise the two sides on their own.
            left, right = self._tokenize(text[:boundary]), self._tokenize(text[boundary:])
            moved = [(start + boundary, end + boundary) for start, end in right.ranges]
            return _Tokens(left.ids + right.ids, left.ranges + moved), len(left.ids)
        return tokens, first

    def _tokenize(self, text: str) -> _Tokens:
        """Ids and character ranges, the ranges made alike for all kinds of tokenizer (leading space included)."""
        out = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids = list(out["input_ids"])
        ranges: list[Span] = []
        reached = 0
        for token, (start, end) in zip(ids, out["offset_mapping"], strict=True):
            if start > reached and text[reached:start].isspace():
                start = reached  # byte-level tokenizers may leave the leading space out of the range
            if self._blank(token) and text[start:end].strip():
                end = start  # SentencePiece's dummy space claims the character after it
            ranges.append((start, end))
            reached = max(reached, end)
        return _Tokens(ids, ranges)

    def _blank(self, token: int) -> bool:
        """Whether a token is nothing but space."""
        found = self._blanks.get(token)
        if found is None:
            name = self.tokenizer.convert_ids_to_tokens(token)
            found = self._blanks[token] = not name.strip(_SPACE_MARKS)
        return found


def _first_token(ranges: Sequence[Span], rendered: RenderedRow) -> int:
    for index, (start, end) in enumerate(ranges):
        if end > rendered.start or start >= rendered.boundary:
            return index
    return len(ranges)


def _within_answer(span: Span, rendered: RenderedRow) -> Span | None:
    start, end = span
    if start >= rendered.end:
        return None
    shift = rendered.trimmed - rendered.start
    start = max(start, rendered.start)
    return start + shift, max(start, min(end, rendered.end)) + shift


def touches(offset: Span | None, spans: Sequence[Span], answer: str) -> bool:
    """Whether a token overlaps one of some ranges of the answer, the space before its word aside; None is outside of it."""
    if offset is None:
        return False
    start, end = offset
    piece = answer[start:end]
    if piece.strip():  # the space before a word belongs to its token, not to the word
        start, end = start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
    return any(start < stop and begin < end for begin, stop in spans)
