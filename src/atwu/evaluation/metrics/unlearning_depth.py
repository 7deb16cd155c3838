"""Unlearning depth score (UDS, Lee et al. 2026, arXiv 2605.24614): do hidden states still carry the forget rows?

States of another model replace the output of one decoder layer of the original model at the positions that predict the
key tokens. How far the key tokens' log-probability drops with states of the unlearned model is compared with the drop
with states of the retain-only model, which never had the knowledge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.evaluation.columns import FORGET, Column
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.key_tokens import key_token_positions

THRESHOLD = 0.05
"""Drop in nats per token above which a layer encodes the knowledge, as in the paper."""


def layer_erasure(drops: FloatArray, retain_drops: FloatArray) -> FloatArray:
    """Layer erasure ratio: drop with the unlearned model's states over drop with the retain-only model's, within [0, 1].

    Args:
        drops: Drop of the mean log-probability of the key tokens, in nats, for every patched layer; any shape.
        retain_drops: The same with states of the retain-only model.

    Returns:
        The same shape; NaN for layers that do not encode the knowledge (`retain_drops` at most `THRESHOLD`).
    """
    # Below it, the ratio would divide noise by noise.
    encoding = retain_drops > THRESHOLD
    # Without `out`, numpy leaves what `where` excludes uninitialized.
    return np.divide(drops, retain_drops, where=encoding, out=np.full_like(drops, np.nan)).clip(0.0, 1.0)


def unlearning_depth(drops: FloatArray, retain_drops: FloatArray) -> float | None:
    """Mean `layer_erasure` of one row, weighted by `retain_drops`. Range [0, 1]; None if no layer encodes the knowledge.

    0: the states are as good as the original model's; 1: no better than those of the retain-only model.

    Args:
        drops: Shape (layers,), as in `layer_erasure`.
        retain_drops: Shape (layers,).
    """
    erasure = layer_erasure(drops, retain_drops)
    known = np.isfinite(erasure)
    if not known.any():
        return None
    return float(np.average(erasure[known], weights=retain_drops[known]))


def count_key_tokens(row: Example, encoded: EncodedRow) -> EncodedRow | None:
    """Restrict the labels to the key tokens; None if the encoded row has none."""
    positions = key_token_positions(row, encoded.answer_offsets)
    if not positions:
        return None
    labels = [IGNORE_INDEX] * len(encoded.labels)
    for place in positions:
        labels[place] = encoded.labels[place]
    return dataclasses.replace(encoded, labels=tuple(labels), token_labels=None)


class UnlearningDepth(Metric):
    name = "uds"
    about = "Unlearning depth score (UDS): whether hidden states still carry the key tokens, by activation patching"
    cost = "two passes over the forget set per layer; loads the original and the retain-only model in turn"
    needs = (FORGET,)
    needs_reference_models = True
    runs_on_references = False
    columns = (
        Column(
            "uds",
            unlearning_depth,
            "UDS",
            "unlearning depth score: erasure of the key tokens in hidden states, from 0 (original model) to 1 "
            "(retain-only model), mean over layers",
            sets=(FORGET,),
            direction="up",
        ),
        Column(
            "uds_layer_{layer}",
            layer_erasure,
            "erasure, layer {layer}",
            "erasure of the key tokens in the output of this decoder layer, counted from 0",
            sets=(FORGET,),
            direction="up",
            shown=False,
        ),
    )

    def read(self) -> None:
        from atwu.modeling.load import load_config

        models = self.session.reference_models
        assert models is not None
        # By their configurations, before any weights are loaded.
        wanted = _shape(self.session.model.config)
        for role, name in (("original", models.original), ("retain-only", models.retain_only)):
            shape = _shape(load_config(name, **models.loading.load_kwargs))
            if shape != wanted:
                raise ValueError(
                    f"the {role} model {name} has {shape[0]} layers of hidden size {shape[1]}, the evaluated model "
                    f"{wanted[0]} of {wanted[1]}; uds needs three models of the same architecture."
                )
        pairs = zip(self.session.sets[FORGET], self.session.encode_set(FORGET), strict=True)
        counted = (count_key_tokens(row, encoded) for row, encoded in pairs)
        self._rows = {place: row for place, row in enumerate(counted) if row is not None}

    def prepare(self) -> None:
        from atwu.evaluation.activation_patching import layer_outputs, patched_drops
        from atwu.modeling.load import load_model

        if not self._rows:
            return
        session, models, rows = self.session, self.session.reference_models, list(self._rows.values())
        assert models is not None
        batch_tokens, device = session.config.batch_tokens, next(session.model.parameters()).device
        options = {"dtype": models.loading.dtype, **models.loading.load_kwargs}
        retain_only = load_model(models.retain_only, **options).to(device).eval()
        sources = [layer_outputs(model, rows, batch_tokens=batch_tokens) for model in (session.model, retain_only)]
        del retain_only  # before the original model is loaded: two models fit where three do not
        self._drops, self._retain_drops = patched_drops(
            load_model(models.original, **options).to(device).eval(),
            rows,
            sources,
            batch_tokens=batch_tokens,
            progress="patch layers" if session.progress else None,
        )

    def record(self) -> None:
        if not self._rows:
            self.session.warnings.append(
                f"uds: no forget row has key tokens within max_length {self.session.config.max_length}; label them "
                "with forget_spans, or raise max_length."
            )
            return
        scores = list(map(unlearning_depth, self._drops, self._retain_drops))
        # Then there was nothing to erase, and no score says anything.
        if all(score is None for score in scores):
            self.session.warnings.append(
                f"uds: patching states of the retain-only model lowers the log-probability of key tokens by at most "
                f"{self._retain_drops.max():.3f} nats (needed: {THRESHOLD}), so no layer of the original model encodes "
                "them; give the model that was fine-tuned on the forget rows as original."
            )
        self._record("uds", scores)
        for layer, values in enumerate(layer_erasure(self._drops, self._retain_drops).T):
            self._record(f"uds_layer_{layer}", [None if np.isnan(value) else value for value in values])

    def _record(self, name: str, values: Sequence[float | None]) -> None:
        """Record one value per row with key tokens, None for the others."""
        by_place = dict(zip(self._rows, values, strict=True))
        self.record_column(FORGET, name, map(by_place.get, range(len(self.session.sets[FORGET]))))


def _shape(config: Any) -> tuple[int, int]:
    text = config.get_text_config()
    return text.num_hidden_layers, text.hidden_size
