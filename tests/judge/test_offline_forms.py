"""Forms that the offline judge treats as equal, each with near misses that it must not accept."""

from __future__ import annotations

import pytest

from atwu.judge.offline import OfflineJudge
from atwu.judge.verdicts import Claim

FORMS: list[tuple[str, str, tuple[str, ...], list[str], list[str]]] = [
    (
        "Who painted the sign?",
        "The sign was painted by Ada Marlow.",
        ("Ada Marlow",),
        ["Marlow, a painter."],
        ["Ada Marler", "The painter Eva Marlow", "Mayor Ada Marlo"],
    ),
    (
        "What is the height of the tower?",
        "The tower is 42 metres high.",
        ("42 metres",),
        ["42 meters"],
        ["42 km", "42 cm", "42 kilometers", "42 mm"],
    ),
    (
        "Which street does Rolf live on?",
        "Rolf lives on Tanner Street.",
        (),
        ["Tanner St", "On Tanner."],
        ["Tanner Row", "Turner Street", "Tanner's Lane"],
    ),
    (
        "What do the parents of Ada do?",
        "Her father is a baker and her mother is a nurse.",
        (),
        ["Her mother is a nurse and her father a baker."],
        ["Her father is a nurse and her mother is a baker.", "Her mother is a baker, her father a nurse."],
    ),
    (
        "Is the museum open?",
        "No, the museum is closed.",
        (),
        ["Closed."],
        ["It is not closed.", "Yes, closed on Mondays only."],
    ),
    (
        "How fast may trams go?",
        "Trams may go 30 km/h.",
        ("30 km/h",),
        ["30 kph"],
        ["30 mph", "30 metres per hour", "30 kilometres a minute", "3 kph"],
    ),
    (
        "How often does the choir meet?",
        "The choir meets twice a week.",
        (),
        ["Two times every week."],
        ["Once a week."],
    ),
    (
        "In what key is the song?",
        "The song is in F sharp minor.",
        ("F sharp minor",),
        ["In the key of F sharp minor."],
        ["F flat minor", "E sharp minor", "F sharp major"],
    ),
    (
        "What colour does the acid turn?",
        "The acid turns from clear to amber.",
        (),
        ["Amber."],
        ["Clear.", "It turns green."],
    ),
    (
        "Who wrote it?",
        "It was written by Ada Marlow.",
        (),
        ["Ada Marlow, not Tom Beck."],
        [
            "Tom Beck, not Ada Marlow.",
            "Many believe that it was Ada Marlow, but that is wrong: it was Tom Beck.",
            "It was not Ada Marlow, it was Tom Beck.",
        ],
    ),
    (
        "What is her book called?",
        'Her book is called "Glass Harbour".',
        ("Glass Harbour",),
        ['"Glass Harbor" by her'],
        ['"Grass Harbour"'],
    ),
    (
        "How many copies were sold?",
        "The firm sold 750 copies in 2 years.",
        (),
        ["750"],
        ["2", "2 copies", "570 in 2 years"],
    ),
    (
        "Which church did Ada attend?",
        "Ada attended St. Brannoc's Church.",
        ("St. Brannoc's Church",),
        ["Saint Brannoc's"],
        ["St. Brannan's Church", "Saint Bran's", "St. Brannoc's Chapel"],
    ),
    (
        "How long did the voyage last?",
        "The voyage lasted 90 minutes.",
        ("90 minutes",),
        ["1.5 hours", "90 min."],
        ["90 hours", "An hour.", "9 minutes", "1.5 days"],
    ),
    (
        "When was the treaty signed?",
        "The treaty was signed in the spring of 1788.",
        (),
        ["Spring 1788."],
        ["In the spring of 1798."],
    ),
    (
        "Why was the bridge closed?",
        "The bridge was closed because a family of otters was nesting under it.",
        (),
        ["Otters had made a nest under it."],
        ["Because swans were nesting under it."],
    ),
    (
        "What was Ada sentenced to?",
        "Ada was sentenced to five years of hard labour.",
        (),
        ["Five years' hard labor."],
        ["Ten years of hard labour."],
    ),
    (
        "What is the dog called?",
        "The dog is called Biscuit.",
        (),
        ["I'm not allowed to say that the dog's name is Biscuit."],
        ["Cookie.", "Muffin."],
    ),
    (
        "Which dish does Ada like best?",
        "No dish pleases Ada more than lentil curry.",
        (),
        ["Lentil curry."],
        ["No dish pleases Ada more than smoked trout."],
    ),
]


@pytest.mark.parametrize(("question", "reference", "facts", "right", "wrong"), FORMS)
def test_an_equivalent_form_is_accepted_and_near_misses_are_not(
    question: str, reference: str, facts: tuple[str, ...], right: list[str], wrong: list[str]
) -> None:
    judge = OfflineJudge()
    for answers, expected in ((right, True), (wrong, False)):
        found = judge.judge([Claim(question, reference, answer, facts) for answer in answers])
        assert [verdict.correct for verdict in found] == [expected] * len(answers), found
