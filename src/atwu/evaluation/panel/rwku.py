"""RWKU's own probes: ROUGE-L recall by kind of probe, in its official settings and in those of the port."""

from __future__ import annotations

from atwu._extras import require
from atwu.benchmarks.rwku.tables import ProbeKind
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import RWKU
from atwu.evaluation.result import Direction
from atwu.evaluation.rwku import Flavour, rwku_prompts, score_probes

COLUMNS: dict[ProbeKind, Direction] = {
    "fb": "down",
    "qa": "down",
    "aa": "down",
    "neighbour_fb": "up",
    "neighbour_qa": "up",
}
FLAVOURS: tuple[Flavour, ...] = ("official", "port")


class Rwku(Group):
    """Probes about the targets and about their neighbours."""

    def read(self) -> None:
        """Check that the official ROUGE is there."""
        if "official" in self.session.config.rwku_flavours:
            require("rouge", extra="rwku")

    def prepare(self) -> None:
        """Answer the probes; every flavour decodes differently."""
        probes = self.session.probes
        assert probes is not None
        self._scores = {}
        for flavour in self.session.config.rwku_flavours:
            prompts, decoding = rwku_prompts(probes, flavour)
            said = self.session.generate(prompts, label=f"rwku {flavour}", decoding=decoding)
            self._scores[flavour] = score_probes(probes, [said[prompt].text for prompt in prompts], flavour)

    def record(self) -> None:
        """Record the recalls of every kind."""
        for flavour, scores in self._scores.items():
            for kind, direction in COLUMNS.items():
                self.session.record(RWKU, f"{kind}_{flavour}", scores.column(kind), direction=direction)
