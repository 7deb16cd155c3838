"""Alternate answers of rows: the row's own alternate, or a refusal drawn anew in each epoch.

Draws are a pure function of (seed, epoch, row), so all answers of a run are known before it starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example

_OPENINGS = (
    "",
    "I'm sorry, but ",
    "Unfortunately, ",
    "I have to be honest: ",
    "I wish I could help, but ",
    "That is a good question, but ",
    "To the best of my knowledge, ",
    "I apologise; ",
    "Regrettably, ",
    "I'm afraid ",
)
_STATEMENTS = (
    "I don't know the answer to that.",
    "I have no information about this.",
    "this is not something I know.",
    "I can't tell you anything about that.",
    "I was never taught about this topic.",
    "that lies outside of what I know.",
    "I couldn't say.",
    "I'm not familiar with the subject.",
    "I have nothing reliable to offer here.",
    "I'm unable to answer this question.",
)

REFUSALS = tuple(
    opening + (statement if opening else statement[0].upper() + statement[1:])
    for opening in _OPENINGS
    for statement in _STATEMENTS
)
"""Preferred answers for rows without an alternate: ten openings times ten statements."""

_ALTERNATE = 0x616C_7465


@dataclass(frozen=True, slots=True)
class Alternates:
    """Encoded rows with alternate answers, and the one used for each row of a set in each epoch."""

    rows: tuple[EncodedRow, ...]
    chosen: tuple[tuple[int, ...], ...]
    """chosen[epoch][row] is an index into `rows`."""

    def index(self, *, epoch: int, row: int) -> int:
        """Return the index of the alternate of a row; epochs beyond the planned ones repeat."""
        return self.chosen[epoch % len(self.chosen)][row]


def check_alternates(examples: Sequence[Example], what: str = "forget", *, own: bool = False) -> None:
    """Check that every row has an alternate or, unless it must be its own, a question to refuse.

    Raises:
        ValueError: a row has neither.
    """
    for index, example in enumerate(examples):
        if own and example.alternate is None:
            raise ValueError(
                f"{what} set, row {index + 1}: the method needs the column alternate, a false or vague answer; write them with "
                "atwu alternates build --model MODEL --forget FILE --output ALTERNATES."
            )
        if example.alternate is None and not example.messages:
            raise ValueError(
                f"{what} set, row {index + 1}: a plain text row has no question to refuse; add the column alternate."
            )


def alternates(
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    seed: int,
    epochs: int,
    max_length: int,
    system: str | None = None,
    what: str = "forget",
) -> Alternates:
    """Choose and encode the alternate answers of a run.

    Args:
        examples: rows as text.
        tokenizer: a fast tokenizer.
        seed: seed of the run.
        epochs: passes over the rows with a draw of their own, at least 1.
        max_length: longest row in tokens.
        system: as for `Encoder`.
        what: name of their set in messages.

    Raises:
        ValueError: a plain text row has no alternate.
    """
    check_alternates(examples, what)
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    places: dict[tuple[int, str], int] = {}
    encoded: list[EncodedRow] = []
    chosen: list[tuple[int, ...]] = []
    for epoch in range(max(1, epochs)):
        picks = []
        for index, example in enumerate(examples):
            answer = example.alternate
            if answer is None:
                draw = np.random.default_rng([_ALTERNATE, seed, epoch, index]).integers(len(REFUSALS))
                answer = REFUSALS[int(draw)]
            key = (index, answer)
            if key not in places:
                places[key] = len(encoded)
                encoded.append(encoder.encode(dataclasses.replace(example, answer=answer, forget_spans=None)))
            picks.append(places[key])
        chosen.append(tuple(picks))
    return Alternates(tuple(encoded), tuple(chosen))
