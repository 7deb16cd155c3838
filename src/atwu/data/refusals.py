"""Refusals to prefer over a secret, for rows that bring none of their own: ten openings times ten statements."""

from __future__ import annotations

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
