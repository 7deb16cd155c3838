from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard

from atwu.request.verdict import FORGOTTEN, Criterion, RequestVerdict
from atwu.training.model_card import model_card
from tests.request.tables import answer

RECORD = {
    "original_model": {"model": "orla/venn-1b", "scratch": None, "fingerprint": "a1"},
    "result": {"kind": "model", "lora": None},
    "recipe": {"weighting": "uniform", "forget_loss": "ga", "retain_loss": "nll", "values": {"beta": 1.0}},
    "method": "grad_diff",
    "data": {"forget": {"source": None, "rows": 3}},
    "steps": 4,
    "train_seconds": 1.0,
    "seed": 0,
    "versions": {"atwu": "0.1"},
    "result_fingerprint": "b2",
}


def test_a_card_has_base_model_verdict_and_model_index(tmp_path: Path) -> None:
    parts = (
        Criterion("answers that state a fact", 0.9, 0.12344, 0.02, False, "Some."),
        Criterion("retain loss increase", None, None, 0.15, False, "It is not a number."),
    )
    leak = answer("forget", 3, "blank", stated=True)
    verdict = RequestVerdict(FORGOTTEN, "Nothing is left.", "The rule.", parts, (), (leak,))
    (tmp_path / "README.md").write_text(model_card(RECORD), encoding="utf-8")
    verdict.add_to_card(tmp_path, name="unlearned")
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.base_model == "orla/venn-1b"
    assert card.data.tags == ["atwu", "unlearning"]
    (result,) = card.data.eval_results
    assert (result.metric_name, result.metric_value) == ("answers that state a fact", 0.1234)
    assert card.text.count("# Unlearned with grad_diff") == 1
    assert "## Verdict: forgotten\n\nNothing is left." in card.text
    assert leak.question not in card.content
    assert leak.answer not in card.content


def test_the_licence_is_that_of_the_original_models_card(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    record = RECORD | {"original_model": {"model": str(tmp_path), "scratch": None, "fingerprint": "a1"}}
    data = ModelCard(model_card(record)).data
    assert (data.license, data.base_model) == ("mit", None)
