"""One spelling for numbers, dates, clock times and amounts, so that "3rd of March" and "1961-03-03" can be compared.

`with_digits` rewrites a text; everything else in it stays. English only; a date of three numbers is read day first
unless only month first makes sense.
"""

from __future__ import annotations

import re


def listed(text: str) -> tuple[str, ...]:
    """Entries of a table written as one string with blanks between."""
    return tuple(text.split())


MONTHS = listed("january february march april may june july august september october november december")

_ONES = listed("zero one two three four five six seven eight nine")
_TEENS = listed("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
_TENS = listed("twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_ORDINALS = {
    **{
        word: value
        for value, word in enumerate(listed("first second third fourth fifth sixth seventh eighth ninth"), 1)
    },
    **{word.removesuffix("y") + "ieth": value for value, word in zip(range(20, 100, 10), _TENS, strict=True)},
    **{word + "th": value for value, word in enumerate(_TEENS, 10)},
    "twelfth": 12,
}
_SMALL = {word: value for value, word in enumerate((*_ONES, *_TEENS))} | {
    word: value for value, word in zip(range(20, 100, 10), _TENS, strict=True)
}
_WORD = "|".join(sorted((*_SMALL, *_SCALES, *_ORDINALS), key=len, reverse=True))
_NUMBER_WORDS = re.compile(rf"\b(?:{_WORD})(?:(?:\s+and\s+|[\s-]+)(?:{_WORD}))*\b", re.I)

_MONTH = "|".join(month[:3] for month in MONTHS)
_ABBREVIATED = re.compile(
    rf"\b(?:(?<=\d )({_MONTH}|sept)\b\.?|({_MONTH}|sept)\b\.?(?= \d)|(jan|feb|apr|aug|sept|oct|nov|dec)\b\.?)", re.I
)
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b")
_THREE_NUMBERS = re.compile(r"\b(\d{1,2})([./-])(\d{1,2})\2(\d{4})\b")
_MONTH_AND_YEAR = re.compile(r"\b(\d{1,2})/(\d{4})\b")

_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))?\s*([ap])\.?m\b\.?|\b(\d{1,2}):(\d\d)\b", re.I)
_PAST = re.compile(
    r"\b(?:a )?(?:(half|quarter|\d{1,2})(?: minutes)? (past)|(quarter|\d{1,2}(?= minutes))(?: minutes)? (to)) "
    r"(\d{1,2}|noon|midnight)\b",
    re.I,
)
_O_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))? o'?clock\b", re.I)
_PART_OF_DAY = re.compile(
    r"\b(\d{1,2})(?:[:. ](\d\d))? (?:in the (morning|evening|afternoon)|at (night))\b|\bat (\d{1,2}) ([0-5]\d)(?=[.!]?$)",
    re.I,
)
_YEARS = re.compile(r"\b(1\d|20)(\d\d)[-–/](\d\d)\b(?![-–/])")
_WEEKDAYS = re.compile(r"\bmon(?:day)?s?(?: to | through | until |\s?[-–]\s?)fri(?:day)?s?\b", re.I)

_GROUPS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:,\d{3})+|(?:[  ]\d{3})+)(?![\d])")
_SCALED = re.compile(r"\b(\d+(?:\.\d+)?)[\s-](hundred|thousand|million|billion)\b", re.I)
_HALF = re.compile(r"\b(\d+) and a half\b|\b(\d+)\s?½", re.I)
_ORDINAL_ENDING = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b", re.I)
_DECIMALS = re.compile(r"\b(\d+)\.(\d*?)0+\b(?!\.\d)")

_SIGNS = {"€": "euro", "$": "dollar", "£": "pound", "¥": "yen"}
_SIGN_FIRST = re.compile(r"([€$£¥])\s?(\d+(?:\.\d+)?)")
_UNITS = {
    "m": "metre", "km": "kilometre", "cm": "centimetre", "mm": "millimetre", "kg": "kilogram", "g": "gram", "l": "litre",
    "h": "hour", "hrs": "hours", "min": "minute", "mins": "minutes", "yrs": "years", "ha": "hectare", "ft": "foot",
    "mi": "mile", "lbs": "pound", "pct": "percent", "km/h": "kilometre an hour", "kph": "kilometre an hour",
    "kmh": "kilometre an hour", "mph": "mile an hour",
}  # fmt: skip
_UNIT = re.compile(rf"(?<=\d)\s?({'|'.join(sorted(_UNITS, key=len, reverse=True))})\b")
_PER = re.compile(r"(?<=[a-z]) (?:per|each|every) (?=(?:second|minute|hour|day|night|week|month|year)\b)", re.I)
_NAMED = "half|third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
_FRACTION = re.compile(
    rf"\b(?:(a|an|\d+|{'|'.join(_SMALL)})[\s-](third|quarter|{_NAMED})s?|(half)) "
    r"(?:of (?!an? )|(?=the\b|its\b|his\b|her\b|their\b))",
    re.I,
)
_OUT_OF = re.compile(rf"\b(\d+|{'|'.join(_SMALL)}) (?:out of|in) (?:every )?(\d+|{'|'.join(_SMALL)}|a hundred)\b", re.I)
_HALF_OF_A = re.compile(
    r"\b(half|(?:a |one |three )?quarters?)(?: of)? an? (hour|day|year|century|million|billion|thousand|hundred)\b",
    re.I,
)
_AND_A_HALF = re.compile(r"\b(?:an?|one|1) ([a-z]+) and a half\b", re.I)
_SUFFIX = re.compile(r"(?<=\d)\s?(?:(k)|(mn|mio|mln)|(bn))\b|(?<=\d)(M)\b")
_TIMES = re.compile(r"\b(\d+(?:\.\d+)?) (100|1000|1000000|1000000000)\b(?![\d,])")
_NTH_MONTH = re.compile(r"\b(\d{1,2}) month of (?:the|each|every) year\b|\b[Mm]onth (?:number )?(\d{1,2})\b")
_NOON = re.compile(r"(?:\b12 (?:o'clock )?)?\b(?:(noon|midday)|midnight)\b")
_DOZEN = re.compile(r"\b(?:(half) a|a|(\d+))[ -]dozen\b", re.I)


def with_digits(text: str) -> str:
    """Rewrite numbers as digits, dates as `3 march 1961`, clock times as `18.3` (18:30), `€5` as `5 euro`."""
    text = _HALF_OF_A.sub(_part_of, text)
    text = _AND_A_HALF.sub(
        lambda found: f"1.5 {found[1]}s" if found[1].lower() not in _SCALES else f"1.5 {found[1]}", text
    )
    text = _OUT_OF.sub(_share, _FRACTION.sub(_fraction, text))
    if _NUMBER_WORDS.search(text):
        text = _SCALED.sub(_scaled, text)
        text = _NUMBER_WORDS.sub(_from_words, text)
    text = _DOZEN.sub(lambda found: "6" if found[1] else str(12 * int(found[2] or 1)), text)
    text = _WEEKDAYS.sub("weekdays", re.sub(r"\b(?:a|one) fortnight\b", "2 weeks", text, flags=re.I))
    text = _PAST.sub(_past, text)
    text = _NOON.sub(lambda found: "12" if found[1] else "0", text)
    text = re.sub(
        r"\b(thrice|twice)\b", lambda found: "3 times" if found[1].lower() == "thrice" else "2 times", text, flags=re.I
    )
    if not any(char.isdigit() for char in text):
        return _ABBREVIATED.sub(_month, text)
    text = _ORDINAL_ENDING.sub(r"\1", _GROUPS.sub(lambda found: re.sub(r"\D", "", found[0]), text))
    text = _HALF.sub(lambda found: f"{found[1] or found[2]}.5", text)
    text = _NTH_MONTH.sub(_month_of, text)
    text = _SUFFIX.sub(lambda found: f" {1000 if found[1] else 10**9 if found[3] else 10**6}", text)
    text = _TIMES.sub(
        lambda found: f"{float(found[1]) * int(found[2]):.10g}" if "." in found[1] or found[2] != "100" else found[0],
        text,
    )
    text = _YEARS.sub(_years, text)
    text = _ISO.sub(lambda found: _date(found[3], found[2], found[1], found[0]), text)
    text = _THREE_NUMBERS.sub(_day_first, text)
    text = _MONTH_AND_YEAR.sub(lambda found: _date("", found[1], found[2], found[0]), text)
    text = _PART_OF_DAY.sub(_part_of_day, text)
    text = _O_CLOCK.sub(lambda found: f"{found[1]}.{found[2] or '00'}", text)
    text = _CLOCK.sub(_clock, text)
    text = _SIGN_FIRST.sub(lambda found: f"{found[2]} {_SIGNS[found[1]]}", text)
    text = re.sub(r"[€$£¥]", lambda found: f" {_SIGNS[found[0]]} ", text)
    text = re.sub(r"\s?(?:%|per cent\b)", " percent", text)
    text = re.sub(r"°\s?[Cc]\b", " degrees celsius", text).replace("°", " degrees ")
    text = _PER.sub(" a ", _UNIT.sub(lambda found: f" {_UNITS[found[1]]}", text))
    text = _DECIMALS.sub(lambda found: f"{found[1]}.{found[2]}".rstrip("."), text)
    return _ABBREVIATED.sub(_month, text)


def _from_words(found: re.Match[str]) -> str:
    """Numbers in one run of number words; a run can hold several ("nine and seventeen", "five two")."""
    numbers: list[int] = []
    total, current, last = 0, 0, ""
    for word in re.split(r"[\s-]+", found[0].lower()):
        if word == "and":
            if last not in ("hundred", "scale"):
                numbers, total, current, last = [*numbers, total + current], 0, 0, ""
            continue
        if word in _SCALES:
            scale = _SCALES[word]
            if scale == 100 and current >= 100:
                numbers, total, current = [*numbers, total + current], 0, 0
            if scale == 100:
                current, last = (current or 1) * 100, "hundred"
            else:
                total, current, last = total + (current or 1) * scale, 0, "scale"
            continue
        value = _SMALL.get(word, _ORDINALS.get(word, 0))
        kind = "one" if value < 10 else "teen" if value < 20 else "ten"
        if last in ("hundred", "scale") or (last == "ten" and kind == "one"):
            current += value
        elif last in ("teen", "ten", "sum") and kind != "one" and total == 0 and 10 <= current < 100:
            current = current * 100 + value  # nineteen ninety
        else:
            numbers, total, current = [*numbers, total + current] if last else numbers, 0, value
        last = "sum" if last == "ten" and kind == "one" else kind
    return " ".join(str(number) for number in ([*numbers, total + current] if last else numbers))


def _value(text: str) -> float:
    text = text.lower()
    return float(text) if text[0].isdigit() else {"a": 1, "an": 1, "a hundred": 100}.get(text) or _SMALL[text]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} percent"


def _fraction(found: re.Match[str]) -> str:
    part = (found[2] or found[3]).lower()
    whole = {"half": 2, "quarter": 4}.get(part) or _ORDINALS[part]
    count = _value(found[1] or "1")
    return f"{_percent(count / whole)} of " if count < whole else found[0]


def _share(found: re.Match[str]) -> str:
    count, whole = _value(found[1]), _value(found[2])
    digits = found[1][0].isdigit() and found[2][0].isdigit() and " in " in found[0]
    return found[0] if digits or not 0 < count < whole <= 100 else _percent(count / whole)


def _part_of(found: re.Match[str]) -> str:
    part, unit = found[1].lower(), found[2].lower()
    share = 0.5 if part == "half" else 0.75 if part.startswith("three") else 0.25
    if unit in _SCALES:
        return f"{share * _SCALES[unit]:.10g}"
    count, smaller = {"hour": (60, "minutes"), "day": (24, "hours"), "year": (12, "months")}.get(unit, (100, "years"))
    return f"{share * count:g} {smaller}"


def _month_of(found: re.Match[str]) -> str:
    number = int(found[1] or found[2])
    return MONTHS[number - 1] if 1 <= number <= 12 else found[0]


def _scaled(found: re.Match[str]) -> str:
    return f"{float(found[1]) * _SCALES[found[2].lower()]:.10g}"


def _date(day: str, month: str, year: str, otherwise: str) -> str:
    return f"{day.lstrip('0')} {MONTHS[int(month) - 1]} {year}".strip() if 1 <= int(month) <= 12 else otherwise


def _years(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]} to {found[1]}{found[3]}" if found[2] < found[3] else found[0]


def _day_first(found: re.Match[str]) -> str:
    day, month = found[1], found[3]
    if int(month) > 12:
        day, month = month, day
    return _date(day, month, found[4], found[0])


def _month(found: re.Match[str]) -> str:
    start = next(group for group in found.groups() if group).lower()[:3]
    return next(month for month in MONTHS if month.startswith(start))


def _clock(found: re.Match[str]) -> str:
    hour, minute = int(found[1] or found[4]), found[2] or found[5] or "00"
    if found[3]:
        hour = hour % 12 + (12 if found[3].lower() == "p" else 0)
    return f"{hour}.{minute}"


def _past(found: re.Match[str]) -> str:
    hour = {"noon": 12, "midnight": 24}.get(found[5].lower()) or int(found[5])
    part = (found[1] or found[3]).lower()
    minutes = {"half": 30, "quarter": 15}.get(part) or int(part)
    return f"{hour - 1}.{60 - minutes:02}" if found[4] else f"{hour}.{minutes:02}"


def _part_of_day(found: re.Match[str]) -> str:
    hour = int(found[1] or found[5])
    if hour < 12 and (found[4] or (found[3] or "").lower() in ("evening", "afternoon")):
        hour += 12
    return f"{hour}.{found[2] or found[6] or '00'}"
