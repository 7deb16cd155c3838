"""Judge with a prompted chat model: rubric and texts as input, one JSON object as output.

Texts to judge are inserted into the rubric's template once, between tags that they cannot close. Verdicts are read only
from the model's reply, by `read_verdict`. Its ValueError makes the reply unreadable: `asker.py` asks again, and after the
last attempt the answer is unscored.
"""

from __future__ import annotations

import contextlib
import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from atwu.data.render import without_thoughts
from atwu.judge.asker import Asker, CallEstimate, Unscored
from atwu.judge.chat_model import CORRECTNESS, PREFERENCE, ChatRequest, rubric_request
from atwu.judge.verdicts import Claim, Pair, Preference, Verdict

_HEADER = re.compile(r"(?:assistant\s*(?::|\n)\s*)+", re.IGNORECASE)
_VERDICT = re.compile(
    r"""
    \A\W*(yes|no|true|false)\W*(?=\Z|\n|\{)                            # on a line of its own
    | \bverdict(?:\s+is)?\W{0,12}(yes|no|true|false)\b              # behind its name, as in the rubric's object
      (?!\ +\w | \W{1,6}(?:or|but)?\W*(?:yes|no)\b)                  # and not the start of a sentence or a choice
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""A verdict, as models say it that cannot be held to the schema of the rubric."""
_WORDS = {"YES": True, "TRUE": True, "NO": False, "FALSE": False}
_EMPTY = Verdict(False, "empty answer")


class PromptedJudge:
    """Judge with our rubrics and any chat model (protocol of the ATWU paper: binary verdicts, temperature 0)."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker

    def with_new_counters(self) -> PromptedJudge:
        return PromptedJudge(self.asker.with_new_counters())

    @property
    def identity(self) -> Mapping[str, Any]:
        return {
            "kind": "prompted",
            "rubrics": [CORRECTNESS.version, PREFERENCE.version],
            "model": dict(self.asker.identity),
            "attempts": self.asker.attempts,
        }

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Return whether each answer states its reference's fact; an empty answer does not, and costs no call."""
        requests = [_correctness_request(claim) for claim in claims]
        replies = iter(self.asker.ask([request for request in requests if request], read_verdict))
        verdicts = []
        for request in requests:
            reply = next(replies) if request else _EMPTY
            verdicts.append(Verdict(None, reply.reason) if isinstance(reply, Unscored) else reply)
        return verdicts

    def prefer(self, pairs: Sequence[Pair]) -> list[Preference]:
        """Return ratings from 1 to 10 of the two answers of each pair, in the order shown."""
        replies = self.asker.ask(list(map(_preference_request, pairs)), read_preference, description="compare")
        return [Preference(None, None, reply.reason) if isinstance(reply, Unscored) else reply for reply in replies]

    def estimate(self, claims: Sequence[Claim], pairs: Sequence[Pair] = ()) -> CallEstimate:
        correctness = [request for claim in claims if (request := _correctness_request(claim))]
        preferences = list(map(_preference_request, pairs))
        return self.asker.estimate(correctness, read_verdict) + self.asker.estimate(preferences, read_preference)


def clean_answer(text: str) -> str:
    """Prepare an answer for the judge: strip it, remove a leftover role header, convert to lower case."""
    return without_header(text).lower()


def without_header(text: str) -> str:
    # Models trained on chats repeat the name of their role.
    text = text.strip()
    header = _HEADER.match(text)
    if header is None:
        return text
    return text[header.end() :].strip()


def read_verdict(text: str) -> Verdict:
    """Parse `{"verdict": "YES" or "NO", "reason": "..."}`, or any other reply that names one verdict.

    The object may be cut off by the length limit, or have single quotes or words around it; then there is no reason.
    """
    # "YES or NO" names two, and then none is the verdict.
    named = {_WORDS[(alone or behind).upper()] for alone, behind in _VERDICT.findall(_answer(text))}
    if len(named) != 1:
        raise ValueError("the reply does not name one verdict")
    reason = ""
    with contextlib.suppress(ValueError):
        reason = _reason(json_object(text))
    return Verdict(named.pop(), reason)


def read_preference(text: str) -> Preference:
    """Parse `{"first": number, "second": number, "reason": "..."}` with numbers from 1 to 10."""
    reply = json_object(text)
    return Preference(_rating(reply.get("first")), _rating(reply.get("second")), _reason(reply))


def yes_or_no(value: Any) -> bool:
    """Parse YES, NO, true or false, in any case and with punctuation."""
    if isinstance(value, bool):
        return value
    word = str(value).strip(string.whitespace + string.punctuation).upper()
    if word not in _WORDS:
        raise ValueError("the verdict is neither YES nor NO")
    return _WORDS[word]


def json_object(text: str) -> dict[str, Any]:
    """Parse the JSON object of a reply; thoughts before it, and words and code fences around it, are dropped."""
    answer = _answer(text)
    try:
        # Not strict: models write line breaks inside texts.
        value = json.loads(answer[answer.find("{") : answer.rfind("}") + 1], strict=False)
    # A reply of thousands of open brackets exceeds the depth of the parser.
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("no JSON object") from None
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


def _answer(text: str) -> str:
    """Return what follows the thoughts of a reply."""
    answer = without_thoughts(text)
    if answer is None:
        raise ValueError("the reply ends within its thoughts")
    return answer


def _rating(value: Any) -> float:
    # True is an `int`, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 10:
        raise ValueError("a rating is not a number from 1 to 10")
    return float(value)


def _reason(reply: Mapping[str, Any]) -> str:
    return str(reply.get("reason") or "")


def _correctness_request(claim: Claim) -> ChatRequest | None:
    """Build the request; None for an empty answer."""
    # As the ATWU authors prepare answers.
    answer = clean_answer(claim.answer)
    if not answer:
        return None
    fields = {"question": claim.question, "reference": claim.reference, "answer": answer}
    return rubric_request(CORRECTNESS, fields)


def _preference_request(pair: Pair) -> ChatRequest:
    fields = {
        "instruction": pair.instruction,
        "first": without_header(pair.first),
        "second": without_header(pair.second),
    }
    return rubric_request(PREFERENCE, fields)
