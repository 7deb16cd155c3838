"""`atwu judge`: how far a judge can be trusted, and a way to ask one about answers made elsewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from atwu.cli.cli_options import cli_option
from atwu.cli.output import ResultFile, say, terminal
from atwu.judge.open_judge import EstimatedJudgeOptions, JudgeOptions

AGREEMENT_SCHEMA = "atwu.agreement/1"


@dataclass(kw_only=True)
class JudgeAgreementCommand:
    """Compare a judge with human labels, or with another judge: accuracy, kappa, false positives and negatives.

    Do this with a hundred answers of your own before you believe a judge.

    Example: atwu judge agreement --judge openai:my-model --judge-url http://localhost:8000/v1 --data labelled.jsonl
    """

    data: Path | None = cli_option(
        "JSONL with question, reference, answer, label (and facts, kind, split); default: the labelled cases that come with "
        "the package.",
        None,
        alias=("-d",),
    )
    split: str | None = cli_option(
        "Default: test for the shipped cases, whose dev half the rules were tuned on.", None, choices=("dev", "test")
    )
    show_errors: int = cli_option("Print this many disagreements.", 5, least=0)
    result: ResultFile
    judging: EstimatedJudgeOptions
    against: str | None = cli_option("Compare with this second judge instead of with the labels.", None, group="Judge")

    def run(self) -> None:
        """Judge, count, print."""
        from atwu._files import versions, write_json
        from atwu.judge.agreement import agreement, load_cases
        from atwu.judge.open_judge import open_judge
        from atwu.judge.prompted import PromptedJudge
        from atwu.report.terminal_tables import agreement_table

        self.result.check()
        split = self.split or ("test" if self.data is None else None)
        loaded = load_cases(split, path=self.data)  # type: ignore[arg-type]
        if not loaded:
            raise ValueError(f"no case in the split {split!r}; leave --split out to use all.")
        claims = [case.claim for case in loaded]
        judge, against = self.judging.judge, self.against
        # Options of a server belong to the one of the two that has one.
        paid = against not in (None, "offline")
        asked = open_judge(JudgeOptions() if judge == "offline" and paid else self.judging)
        other = None
        if against is not None:
            other = open_judge(replace(self.judging, judge=against) if paid else JudgeOptions())
        if isinstance(asked, PromptedJudge) and isinstance(other, PromptedJudge):
            other.asker.budget = asked.asker.budget  # one limit for both
        if self.judging.estimate:
            for name, one in ((judge, asked), (against, other)):
                counted = getattr(one, "estimate", None)
                if one is not None:
                    say(f"{name}: {counted(claims) if counted else 'judged offline at no cost'}")
            return
        verdicts = asked.judge(claims)
        expected = [case.label for case in loaded] if other is None else [each.correct for each in other.judge(claims)]
        said = [verdict.correct for verdict in verdicts]
        found = agreement(expected, said, kinds=[case.kind for case in loaded])
        identities = {"judge": dict(asked.identity), "against": "labels" if other is None else dict(other.identity)}
        if self.result.output is not None:
            write_json(
                self.result.output, {"schema": AGREEMENT_SCHEMA, **identities, **asdict(found), "versions": versions()}
            )
        terminal().print(agreement_table(found, title=f"{judge} against {against or 'labels'}"))
        wrong = [
            (case.claim, verdict)
            for case, verdict, label in zip(loaded, verdicts, expected, strict=True)
            if verdict.correct is not None and label is not None and verdict.correct != label
        ]
        for claim, verdict in wrong[: self.show_errors]:
            say(f"\n{claim.question}\n  reference: {claim.reference}\n  answer:    {claim.answer}")
            say(f"  {judge} says {'yes' if verdict.correct else 'no'} ({verdict.reason})")
        if len(wrong) > self.show_errors:
            say(f"\n... and {len(wrong) - self.show_errors} more disagreements (--show-errors)")
        if self.result.output is not None:
            say(f"written: {self.result.output}")
