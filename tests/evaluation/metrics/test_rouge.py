"""ROUGE-L recall in both flavours: the worked example, edge cases, and where the flavours agree."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.benchmarks.rwku import parse_probe
from atwu.evaluation.metrics.rouge import (
    NO_ANSWER,
    official_rouge_l_recall,
    rouge_l_recall,
)

WORDS = ["a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8"]  # lower case, too short to be stemmed


@pytest.mark.parametrize(
    ("reference", "output", "expected"),
    [
        ("a b c d", "a b c d", 1.0),
        ("a b c d", "d c b a", 0.25),
        ("She paints boats.", "she painted a boat", 1.0),  # case, stemming and extra words cost nothing
        ("a b", "", 0.0),
        ("a b", "  \n", 0.0),
        ("", "a b", None),
        (" ", "", None),
        ("Привет", "Привет", None),  # rouge_score sees a-z and 0-9 only
    ],
)
def test_recall(reference: str, output: str, expected: float | None) -> None:
    assert rouge_l_recall(reference, output) == expected


@pytest.mark.parametrize(
    ("reference", "output", "expected"),
    [
        ("a b c d", "d c b a", 0.25),
        ("Orla Venn", "orla venn", 0.0),  # case counts
        ("She paints boats.", "She painted boats", 2 / 3),  # no stemming
        ("Kelbury, Norland", "Kelbury Norland", 0.5),  # "Kelbury," is another word
        ("Привет", "Привет", 1.0),
        ("T. B. Venn", "Venn B. T.", 1.0),  # order binds within a sentence only
        ("a b a b", "a b", 1.0),  # distinct words
        ("a b. ", "a b", 1.0),
        ("a. . b", "b", 0.5),
        ("", "a b", None),
        (" \n", "a b", None),
        ("...", "a b", None),
        (". .", ".", None),
        ("a b", "", 0.0),
        ("a b", "...", 0.0),
        ("a b", " . \n", 0.0),
        (f"a {NO_ANSWER}", "", 0.5),
    ],
)
def test_official_recall(reference: str, output: str, expected: float | None) -> None:
    assert official_rouge_l_recall(reference, output) == expected


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, unique=True),
    st.lists(st.sampled_from([*WORDS, "zz"]), min_size=1, max_size=12),
)
def test_flavours_agree_on_plain_words_without_repetition(reference: list[str], output: list[str]) -> None:
    recall = rouge_l_recall(" ".join(reference), " ".join(output))
    assert official_rouge_l_recall(" ".join(reference), " ".join(output)) == pytest.approx(recall, abs=1e-12)


@settings(max_examples=25)
@given(st.text(alphabet="ab. \nA", max_size=20), st.text(alphabet="ab. \nA", max_size=20))
def test_official_recall_is_a_share_that_more_sentences_never_lower(reference: str, output: str) -> None:
    recall = official_rouge_l_recall(reference, output)
    if recall is None:
        assert not reference.replace(".", " ").split()
        return
    assert 0 <= recall <= 1
    assert official_rouge_l_recall(reference, reference) == 1
    assert official_rouge_l_recall(reference, f"{output}.{reference}") == 1
    assert official_rouge_l_recall(reference, f"{output}.b a") >= recall


def test_the_scorer_imports_little_of_nltk():
    code = (
        "import sys; from atwu.evaluation.metrics.rouge import rouge_l_recall\n"
        "print(rouge_l_recall('He was running to Kyoto', 'she runs to Kyoto'), 'nltk' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0.6", "False"]


@pytest.mark.parametrize(
    ("kind", "type", "query", "shown", "instruction", "opening"),
    [
        *(
            (kind, "cloze", "She is ___.", "Question: She is ___.", "blank", "Answer:")
            for kind in ("fb", "neighbour_fb")
        ),
        *((kind, "", "Who?", "Question: Who?", "short answer", "Answer:") for kind in ("qa", "neighbour_qa")),
        ("aa", "role play", "Who?", "Question: Who?", "short answer", "Answer:"),
        ("aa", "affirmative suffix", "Who? Sure:", "Question: Who? Sure:", "short answer", ""),
        ("aa", "incontext learning", "Q: A? Q:", "Q: A? Q:", "short answer", "Answer:"),
    ],
)
def test_prompts(kind: str, type: str, query: str, shown: str, instruction: str, opening: str) -> None:
    columns = {"subject": "Órla Venn", "type": type, "query": query, "answer": "Kelbury"}
    probe = parse_probe(kind, ("line 1", columns))
    (turn,) = probe.messages
    first, rest = turn.content.split("\n")
    assert instruction in first
    assert (turn.role, rest, probe.opening) == ("user", shown, opening)
