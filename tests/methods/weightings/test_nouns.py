"""Noun masks: alignment of character ranges with tokens, the spelling rule, spaCy pipelines."""

from __future__ import annotations

import pytest

from atwu import _extras
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX
from atwu.methods.weightings.fixed_weights import noun_finder, noun_mask, simple_nouns


def row(*offsets):
    """A two-token prompt, one token per offset, a terminal token."""
    labels = (IGNORE_INDEX, IGNORE_INDEX, *range(3, 3 + len(offsets)), 1)
    return EncodedRow((7, 8, *labels[2:]), labels, None, (None, None, *offsets, None), True)


def found(text):
    return [text[start:end] for start, end in simple_nouns(text)]


def test_mask_of_overlapping_tokens():
    answer = "She is Orla Venn."
    tokens = row((0, 3), (3, 6), (6, 9), (9, 11), (11, 16), (16, 17))  # She| is| Or|la| Venn|.
    assert noun_mask(tokens, answer, lambda text: [(7, 16)]).tolist() == [0, 0, 1, 1, 1, 0, 0]
    assert noun_mask(tokens, answer, lambda text: [(8, 9), (0, 1)]).tolist() == [1, 0, 1, 0, 0, 0, 0]
    assert noun_mask(tokens, answer, lambda text: [(0, 17)]).tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert not noun_mask(tokens, answer, lambda text: []).any()


def test_leading_space_is_no_overlap_but_a_space_token_is():
    assert noun_mask(row((0, 2), (2, 5)), "a  b!", lambda text: [(1, 3)]).tolist() == [0, 0, 0]
    assert noun_mask(row((0, 1), (1, 2), (2, 3)), "a b", lambda text: [(1, 2)]).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("text", "nouns"),
    [
        ("The baker Orla Venn lives in Kelbury.", ["Orla Venn", "Kelbury"]),
        ("The Glass Ferry came out in 1961, on 12 March.", ["The Glass Ferry", "1961", "12 March"]),
        ("Tavi sings. Kelbury listens! The rest sleeps.", ["Tavi", "Kelbury"]),
        ("In Kelbury, he paid 3.5 coins.", ["In Kelbury", "3.5"]),
        ("He said I could, and I did.", []),
        ("I'm with Yun-Mara O’Dell.", ["Yun-Mara O’Dell"]),
        ("born in Kelbury.\nTavi Brook's house", ["Kelbury", "Tavi Brook's"]),
        ("Émile visits Ørland", ["Émile", "Ørland"]),
        ("nothing here", []),
        ("", []),
    ],
)
def test_simple_nouns(text, nouns):
    assert found(text) == nouns


def test_missing_spacy_names_the_extra(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(_extras.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'atwu\[nouns\]'"):
        noun_finder("en_core_web_sm")


def test_missing_model_names_the_command():
    pytest.importorskip("spacy")
    with pytest.raises(ImportError, match="python -m spacy download no_such_model_web"):
        noun_finder("no_such_model_web")


@pytest.fixture
def parser():
    """Build a pipeline that parses one sentence: "The baker met Orla Venn in Kelbury ."."""
    spacy = pytest.importorskip("spacy")
    from spacy.language import Language

    pos = ["DET", "NOUN", "VERB", "PROPN", "PROPN", "ADP", "PROPN", "PUNCT"]
    dep = ["det", "nsubj", "ROOT", "compound", "dobj", "prep", "pobj", "punct"]
    heads = [1, 2, 2, 4, 2, 2, 5, 2]

    @Language.component("hand_made_parser")
    def parse(doc):
        return spacy.tokens.Doc(
            doc.vocab, [t.text for t in doc], [bool(t.whitespace_) for t in doc], pos=pos, deps=dep, heads=heads
        )

    nlp = spacy.blank("en")
    nlp.add_pipe("hand_made_parser")
    return nlp


def test_spacy_noun_chunks_are_aligned_with_tokens(parser, tmp_path):
    answer = "The baker met Orla Venn in Kelbury."
    offsets = ((0, 3), (3, 9), (9, 13), (13, 16), (16, 18), (18, 23), (23, 26), (26, 30), (30, 34), (34, 35))
    parser.to_disk(tmp_path / "pipeline")
    finder = noun_finder(str(tmp_path / "pipeline"))
    assert [answer[start:end] for start, end in finder(answer)] == ["The baker", "Orla Venn", "Kelbury"]
    assert noun_mask(row(*offsets), answer, finder).tolist() == [1, 1, 0, 1, 1, 1, 0, 1, 1, 0, 0]


def test_a_pipeline_without_a_parser_is_explained(tmp_path):
    spacy = pytest.importorskip("spacy")
    spacy.blank("en").to_disk(tmp_path)
    with pytest.raises(ValueError, match=r"tagger.*parser"):
        noun_finder(str(tmp_path))("Orla Venn bakes.")
