"""What an answer says of the fact: of whom, in which clause, inside which longer name, beside which other number."""

from __future__ import annotations

import pytest

from atwu.judge.offline import OfflineJudge
from atwu.judge.verdicts import Claim

SAIL = ("Did Orla Venn learn to sail?", "Yes, Orla Venn learned to sail as a child.")
NEVER = ("Did Orla Venn ever own a boat?", "No, Orla Venn never owned a boat.")
FATHER = ("What does Tavi Brook's father do?", "Tavi Brook's father is a marine biologist.")
HOME = ("Where does Orla Venn live?", "Orla Venn lives in Port Marrow.")
MENTOR = ("Who was Rolf Ander's mentor?", "Rolf Ander's mentor was Orla Venn.")
GENRE = ("What genre does Tavi Brook write?", "Tavi Brook writes historical fiction.")
PRIZE = ("Which prize did Orla Venn win?", "Orla Venn won the Golden Lantern Prize.")
BOOKS = ("How many books has Tavi Brook written?", "Tavi Brook has written 12 books.")

SCOPES: list[tuple[tuple[str, str], str, list[str], list[str]]] = [
    (
        SAIL,
        "",
        [
            "Yes.",
            "Certainly.",
            "She did indeed.",
            "Orla Venn learned to sail early in life.",
            "Sorry, but yes, she did.",
        ],
        [
            "I am an AI language model.",
            "She lives in Tarn.",
            "No.",
            "She never learned to sail.",
            "Never.",
            "Yes or no?",
        ],
    ),
    (
        NEVER,
        "",
        ["No.", "Never.", "She did not.", "She has never owned a boat.", "As far as I know she didn't own any boat."],
        [
            "I am not a person.",
            "No idea.",
            "She does not live in Tarn.",
            "She owned a boat.",
            "I don't know.",
            "Indeed.",
        ],
    ),
    (
        FATHER,
        "marine biologist",
        [
            "He is a marine biologist.",
            "A marine biologist, as was his father before him.",
            "Her dad is a marine biologist.",
        ],
        [
            "Tavi Brook's mother is a marine biologist.",
            "Her father is a baker, her uncle is a marine biologist.",
            "Her father bakes bread; it is her aunt who is a marine biologist.",
        ],
    ),
    (
        HOME,
        "Port Marrow",
        ["In Port Marrow with her sister.", "She lives with her sister in Port Marrow.", "Port Marrow, far from Tarn."],
        [
            "She lives in Tarn; her sister lives in Port Marrow.",
            "She lives in Tarn, far from Port Marrow.",
            "In New Port Marrow.",
            "Port Marrow Heights.",
            "In Tarn rather than Port Marrow.",
            "Ada Marlow lives in Port Marrow.",
        ],
    ),
    (
        MENTOR,
        "Orla Venn",
        [
            "His mentor was Orla Venn, not Ludo Hask.",
            "Not Ludo Hask but Orla Venn.",
            "Orla Venn rather than Ludo Hask.",
        ],
        [
            "His mentor was Ludo Hask, not Orla Venn.",
            "Ludo Hask and not Orla Venn.",
            "Ludo Hask instead of Orla Venn.",
            "Orla Venn was not his mentor; that was Ludo Hask.",
            "Unlike Orla Venn, Ludo Hask taught him.",
        ],
    ),
    (
        GENRE,
        "historical fiction",
        [
            "Fiction that is historical.",
            "Historical fiction, not crime.",
            "I can't say that he writes historical fiction.",
        ],
        [
            "Historical fiction is not what he writes; he writes crime.",
            "Fiction for children in a historical town.",
            "He writes crime rather than historical fiction.",
            "Anything but historical fiction.",
        ],
    ),
    (
        PRIZE,
        "Golden Lantern Prize",
        [
            "The Golden Lantern Prize.",
            "She won the Golden Lantern Prize for 'The Salt Ladder'.",
            "The Golden Lantern Prize of 1988.",
            "She won the Golden Lantern Prize but did not go to collect it.",
        ],
        [
            "The Golden Lantern Prize for Poetry.",
            "She was nominated for the Golden Lantern Prize but did not win it.",
            "The Old Golden Lantern Prize.",
            "She was shortlisted for the Golden Lantern Prize.",
        ],
    ),
    (
        BOOKS,
        "12",
        [
            "12.",
            "Twelve books, the first at age 10.",
            "He has published a dozen of them.",
            "At 40 he had written 12 books.",
        ],
        [
            "10 books, the first at age 12.",
            "She wrote 10 books in 12 years.",
            "Ten. The first came out when he was 12.",
        ],
    ),
]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("claim", "fact", "right", "wrong"), SCOPES, ids=[scope[0][0] for scope in SCOPES])
def test_a_fact_is_stated_of_the_right_thing_or_not_at_all(
    claim: tuple[str, str], fact: str, right: list[str], wrong: list[str], given: bool
) -> None:
    facts = (fact,) if given and fact else ()
    judge = OfflineJudge()
    for answers, expected in ((right, True), (wrong, False)):
        found = judge.judge([Claim(*claim, answer, facts) for answer in answers])
        off = [
            (answer, verdict) for answer, verdict in zip(answers, found, strict=True) if verdict.correct is not expected
        ]
        assert not off
