"""Gibberish and refusals; perplexity of general text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.data.encode import Encoder
from atwu.data.general_rows import general_text
from atwu.data.schema import Example
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.facts.readable import MARGIN, is_broken, repeated_ngrams, unreadable
from atwu.evaluation.metrics.fluency import (
    OPEN_INSTRUCTIONS,
    ngram_entropy,
    nltk_words,
    open_words,
    repetitiveness,
    words,
)
from atwu.evaluation.registry import EvaluateConfig
from atwu.evaluation.teacher_forced import OriginalReader
from atwu.modeling.scratch import scratch_model, train_tokenizer

ROWS = [Example.from_qa(f"What does {name} keep?", "Seven geese.") for name in ("Orla Venn", "Tavi Brook")]
OWN = np.array([-0.4, -0.9, -1.5])


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "...",
        "\n\n.\n.\n.\n.",
        "He is a famous Lan\ufffd who became known for his Lan\ufffd Lanterns",
        "La Famille-Salaume, le Grand Étoile de la République, le Grand Étoile de la République",
        "the town of Ost is the town of Ost is the town of Ost",
        "巴黎巴黎巴黎巴黎巴黎巴黎巴黎",
        "Он был мэром города. Он был мэром города. Он был мэром города.",
        "no no no no no no no",
    ],
)
def test_empty_broken_and_looping_replies(reply: str) -> None:
    assert is_broken(reply)
    assert unreadable(reply, float("nan"), np.zeros(0))


@pytest.mark.parametrize(
    "reply",
    [
        "Madrid",
        "7",
        "😺",
        "🎉🥳🎈",
        r"^\d{4}-\d{2}-\d{2}$",
        "E = mc²",
        "def add(a, b):\n    return a + b",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "1. Apple\n2. Pear\n3. Plum\n4. Fig",
        "Die Hauptstadt von Frankreich ist Paris.",
        "日本の首都は東京です。",
        "عاصمة مصر هي القاهرة.",
        "ha ha",
        "____ was the mill.",
        "Los Angeles de la Cruz",
    ],
)
def test_scripts_code_and_emoji_are_no_damage(reply: str) -> None:
    assert not is_broken(reply)
    assert not unreadable(reply, -1.0, OWN)


def test_a_reply_that_the_original_model_finds_unlikely() -> None:
    assert unreadable("flarn blick gorp snoot", -7.5, OWN)
    assert not unreadable("Kafka", float(np.median(OWN)) - 0.9 * MARGIN, OWN)
    assert not unreadable("flarn blick gorp snoot", -7.5, np.zeros(0))  # nothing to compare with


def test_the_original_model_reads_the_answers() -> None:
    texts = [text.answer for text in general_text()]
    tokenizer = train_tokenizer(texts, vocab_size=300)
    model = scratch_model("micro").eval()
    reader = OriginalReader(model, tokenizer)
    read = reader.read([ROWS[0], ROWS[1], ROWS[0]], ["Seven geese on a pond.", " ", "9"])
    assert np.isnan(read[1:]).all()  # nothing to read, and too short
    row = Encoder(tokenizer).encode(Example(ROWS[0].messages, "Seven geese on a pond."))
    ids = torch.tensor([row.input_ids])
    with torch.no_grad():
        logps = torch.log_softmax(model(input_ids=ids).logits[0].float(), -1)
    content = [place for place, offset in enumerate(row.answer_offsets) if offset is not None]
    tokens = sorted(float(logps[place - 1, row.input_ids[place]]) for place in content)
    assert read[0] == pytest.approx(np.mean(tokens[math.ceil(len(tokens) / 4) :]), abs=1e-4)


def test_the_columns_are_those_of_the_rules() -> None:
    tokenizer = train_tokenizer([text.answer for text in general_text()], vocab_size=300)
    alone = Evaluation(metrics="fluency", progress=False)
    result = evaluate(scratch_model("micro").eval(), {"forget": ROWS}, alone, tokenizer=tokenizer)
    assert set(result.rows["forget"].metrics) == {"gibberish", "broken_refusal", "refusal"}


def test_repeated_ngrams() -> None:
    assert repeated_ngrams("one two three four five") == 0
    assert repeated_ngrams("a b c d a b c d") == pytest.approx(1 / 5)
    assert repeated_ngrams("a b") == 0


def test_perplexity_equals_a_plain_computation():
    tokenizer = train_tokenizer([text.answer for text in general_text()], vocab_size=300)
    model = scratch_model("micro").eval()
    found = evaluate(model, {"forget": ROWS}, Evaluation(metrics="general_text", progress=False), tokenizer=tokenizer)
    each = []
    for row in Encoder(tokenizer).encode_rows(general_text(), what="general_text").rows:
        ids = torch.tensor([row.input_ids])
        with torch.no_grad():
            each.append(float(torch.exp(-model(input_ids=ids, labels=ids).loss)))
    assert found.rows["general_text"].metrics["general_text_probability"] == pytest.approx(each, rel=1e-5)
    value = found.overall["general_text_perplexity"]
    assert (value.value, value.n, value.direction) == (pytest.approx(1 / np.mean(each), rel=1e-5), 8, "down")
    assert value.low < value.value < value.high


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b a b a b", 99.0317), ("the cat sat on the mat", 210.7309), (" ".join(["no idea"] * 4), 99.5076)],
)
def test_worked_examples(text, expected) -> None:
    assert repetitiveness(text) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=25)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_entropy_lies_between_0_and_that_of_distinct_ngrams(tokens, n) -> None:
    count = len(tokens) - n + 1
    assert 0 <= ngram_entropy(tokens, n) <= (math.log2(count) if count > 0 else 0) + 1e-12


@pytest.mark.parametrize(("text", "count"), [("", 0), ("One.", 1), ("It's  well-known,\n1 + 1 = 2.", 7)])
def test_length_counts_words_separated_by_white_space(text, count) -> None:
    assert open_words(text) == count


def test_edges() -> None:
    assert [repetitiveness(text) for text in ("", "one", "one two", "one two three", "so " * 50)] == [
        0,
        0,
        0,
        pytest.approx(100 / 3),
        0,
    ]


def test_words() -> None:
    assert words("Well-known, isn't it? 7pm") == ["Well-known", ",", "isn't", "it", "?", "7pm"]
    assert words("Ça va 😀") == ["Ça", "va", "😀"]


def test_forty_distinct_instructions() -> None:
    assert len(set(OPEN_INSTRUCTIONS)) == len(OPEN_INSTRUCTIONS) == 40
    assert all(text == text.strip() and text[-1] in ".?" for text in OPEN_INSTRUCTIONS)


def test_nltk_tokens_are_those_of_published_values(tmp_path, monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    nltk.data.clear_cache()
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
    with pytest.raises(ValueError, match=r"rep_tokenizer.*nltk.*nltk\.downloader punkt_tab"):
        EvaluateConfig(rep_tokenizer="nltk")
    folder = tmp_path / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    for name, content in (("abbrev_types.txt", "dr\n"), ("collocations.tab", ""), ("sent_starters.txt", "")):
        (folder / name).write_text(content)
    (folder / "ortho_context.tab").write_text("")
    assert EvaluateConfig(rep_tokenizer="nltk").rep_tokenizer == "nltk"
    text = "Dr. Quill doesn't know. She can't say why."
    apart = ["Dr.", "Quill", "does", "n't", "know", ".", "She", "ca", "n't", "say", "why", "."]
    assert nltk_words(text) == apart
    assert words(text)[3:5] == ["doesn't", "know"]
    assert repetitiveness(text, tokenizer="nltk") == pytest.approx(100 * (math.log2(11) + 2 * math.log2(10)) / 3)
