"""Judge with a prompted chat model: rubric and texts as input, one JSON object as output, parsed strictly.

Texts to judge are inserted into the rubric's template once, between tags that they cannot close. Verdicts are read only
from the model's reply, by `read_verdict`. Its ValueError makes the reply unreadable: `asker.py` asks again, and after the
last attempt the answer is unscored.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from atwu._file_reading import parse_yaml
from atwu.data.render import without_thoughts
from atwu.judge.asker import Asker, Unscored
from atwu.judge.budget import CostEstimate
from atwu.judge.chat_model import CORRECTNESS, PREFERENCE, ChatRequest, rubric_request
from atwu.judge.verdicts import Claim, Pair, Preference, Verdict

_HEADER = re.compile(r"(?:assistant\s*(?::|\n)\s*)+", re.IGNORECASE)
_WRAPPED = re.compile(r"<(\w+)>(.*?)</\1>|\\boxed\{(.*?)\}", re.DOTALL)
"""A verdict in a tag or a box of LaTeX."""
_LABEL = re.compile(r"\A\W*(?:(?:my|the|final)\s+)*(?:answer|verdict)\W*(?:is\b)?", re.IGNORECASE)
"""What a reply without an object may say before YES or NO."""
_FLAT = re.compile(r"\{[^{}]*\}")
_PUNCTUATION = string.whitespace + string.punctuation + "“”„‘’"
_BEGINS = re.compile(r"\W*(yes|no|true|false)\s*[,.:;(–-](?P<rest>.*)", re.IGNORECASE | re.DOTALL)
"""The verdict of an object, with a reason behind it."""
_EITHER = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_STRAIGHT = str.maketrans("“”„", '"""')
_WORDS = {"YES": True, "TRUE": True, "NO": False, "FALSE": False}
_PAIR = re.compile(r"""(\{\s*)?["']?verdict["']?\s*:\s*["']?(yes|no|true|false)\b""", re.IGNORECASE)
"""The verdict of an object whose rest cannot be parsed, such as a reason with quotation marks."""
_SAYS = {True: re.compile(r"\bYES\b|\bYes[.,!:]|\byes,"), False: re.compile(r"\bNO\b|\bNo[.,!:]|\bno,")}
"""Verdict -> how words around the object of a reply say it; a small "no" alone may belong to any sentence."""
_CUT_ENDS = ('"}', "}", '": null}', "null}")
"""What may be missing at the end of a reply that the length limit cut off."""
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

    def estimate(self, claims: Sequence[Claim], pairs: Sequence[Pair] = ()) -> CostEstimate:
        correctness = [request for claim in claims if (request := _correctness_request(claim))]
        preferences = list(map(_preference_request, pairs))
        return self.asker.estimate(correctness, read_verdict) + self.asker.estimate(preferences, read_preference)


def clean_answer(text: str) -> str:
    """Prepare an answer for the judge: strip it, remove a leftover role header, convert to lower case."""
    return without_header(text).lower()


def without_header(text: str) -> str:
    text = text.strip()
    header = _HEADER.match(text)
    return text[header.end() :].strip() if header else text


def read_verdict(text: str) -> Verdict:
    """Parse `{"verdict": "YES" or "NO", "reason": "..."}`, or a reply whose first line is the verdict alone."""
    answer = _WRAPPED.sub(lambda found: found[2] or found[3] or "", _answer(text))
    first, _, rest = _LABEL.sub("", answer).strip(_PUNCTUATION).partition("\n")
    bare = _WORDS.get(first.strip(_PUNCTUATION).upper())
    if bare is not None and not _SAYS[not bare].search(rest):
        return Verdict(bare, rest.strip())
    try:
        reply, around = _object_and_words(text)
    except ValueError:
        found = _PAIR.findall(answer.translate(_STRAIGHT))  # (brace, word)
        if not any(brace for brace, _ in found) or len({word.upper() for _, word in found}) > 1:
            raise
        reply, around = {"verdict": found[0][1]}, answer[: answer.find("{")] + answer[answer.rfind("}") + 1 :]
    reply = _with_verdict(reply)
    verdict = yes_or_no(reply.get("verdict"))
    if _SAYS[not verdict].search(around):
        raise ValueError("the words around the verdict contradict it")
    return Verdict(verdict, _reason(reply))


def _with_verdict(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the one object with a verdict: the reply, or one inside it; names in lower case."""
    named = {str(name).lower(): value for name, value in reply.items()}
    if len(named) < len(reply):
        raise ValueError("a JSON object that says two things")
    inside = [value for value in named.values() if isinstance(value, dict)]
    return named if "verdict" in named or len(inside) != 1 else _with_verdict(inside[0])


def read_preference(text: str) -> Preference:
    """Parse `{"first": number, "second": number, "reason": "..."}` with numbers from 1 to 10."""
    reply = json_object(text)
    return Preference(_rating(reply.get("first")), _rating(reply.get("second")), _reason(reply))


def yes_or_no(value: Any) -> bool:
    """Parse YES, NO, true or false, in any case and with punctuation, or a list of one of these."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (begins := _BEGINS.match(value)) and not _EITHER.search(begins["rest"]):
        value = begins[1]
    found = _WORDS.get(value.strip(_PUNCTUATION).upper()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("the verdict is neither YES nor NO")
    return found


def json_object(text: str) -> dict[str, Any]:
    """Parse the one JSON object of a reply.

    Thoughts before it, words and code fences around it, special tokens, invalid escapes such as `\\(`, and a text that the
    length limit cut off are allowed; so are several objects that differ in their reasons only.
    """
    return _object_and_words(text)[0]


def _object_and_words(text: str) -> tuple[dict[str, Any], str]:
    """Return the object of a reply, and the words around it."""
    # Backslashes that JSON does not allow in a string, as in `\(`, are doubled.
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\(?![\"\\/bfnrtu])", r"\1\\\\", _answer(text))
    found, words = _objects(text)
    if not found and (start := text.find("{")) >= 0:
        if re.search(r'"\s*:\s*-?\d+\.?\d*\s*$', text):
            raise ValueError("the reply ends within a number")
        cut = (_objects(text[start:].rstrip() + end) for end in _CUT_ENDS)
        found, words = next((each for each in cut if each[0]), ([], ""))
        words += text[:start]
    if not found:  # single or typographic quotes, words without quotes, a comma too many: valid in YAML
        text = text.translate(_STRAIGHT)
        found, words = [parse_yaml(each, what="the reply") for each in _FLAT.findall(text)], _FLAT.sub("", text)
    if not found:
        raise ValueError("no JSON object")
    if any({**each, "reason": None} != {**found[0], "reason": None} for each in found[1:]):
        raise ValueError("several JSON objects that differ")
    return found[0], words


def _answer(text: str) -> str:
    """Return what follows the thoughts of a reply."""
    answer = without_thoughts(text)
    if answer is None:
        raise ValueError("the reply ends within its thoughts")
    return answer


def _objects(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the JSON objects of a text, and the text without them."""
    found, words, at = [], "", 0
    while (start := text.find("{", at)) >= 0:
        try:
            value, end = json.JSONDecoder(strict=False, object_pairs_hook=_without_repeats).raw_decode(text, start)
            found.append(value)
        except (json.JSONDecodeError, RecursionError):
            end = start + 1
        words += text[at:start]
        at = end
    return found, words + text[at:]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if any(found[name] != value for name, value in pairs):
        raise ValueError("a JSON object that says two things")
    return found


def _rating(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 10:
        raise ValueError("a rating is not a number from 1 to 10")
    return float(value)


def _reason(reply: Mapping[str, Any]) -> str:
    reason = reply.get("reason")
    return "" if reason is None else str(reason)


def _correctness_request(claim: Claim) -> ChatRequest | None:
    """Build the request; None for an empty answer."""
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
