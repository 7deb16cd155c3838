"""`atwu judge`: measure how far a judge can be trusted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from atwu.cli.cli_options import cli_option
from atwu.cli.shared import ResultFile, say, terminal
from atwu.judge.open_judge import EstimatedJudgeOptions, JudgeOptions

AGREEMENT_SCHEMA = "atwu.agreement/1"


@dataclass(kw_only=True)
class JudgeAgreementCommand:
    """Compare a judge with human labels or with another judge: accuracy, kappa, false positives and negatives.

    Before you rely on a judge, check it on about a hundred labelled answers of your own.

    Example: atwu judge agreement --judge openai:my-model --judge-url http://localhost:8000/v1 --data labelled.jsonl
    """

    data: Path | None = cli_option(
        "JSONL with question, reference, answer, label (optional: facts, kind, split). Default: the labelled cases "
        "shipped with the package.",
        None,
        alias=("-d",),
    )
    split: str | None = cli_option(
        "Split to use. Default: test for the shipped cases (the offline rules were tuned on dev).",
        None,
        choices=("dev", "test"),
    )
    show_errors: int = cli_option("Number of disagreements to print.", 5, least=0)
    result: ResultFile
    judging: EstimatedJudgeOptions
    against: str | None = cli_option(
        "Second judge to compare with instead of the labels, named like --judge.", None, group="Judge"
    )

    def run(self) -> None:
        from atwu._files import versions, write_json
        from atwu.judge.agreement import agreement, load_cases
        from atwu.judge.open_judge import open_judge
        from atwu.judge.prompted import PromptedJudge
        from atwu.report.terminal_tables import agreement_table

        self.result.check()
        split = self.split or ("test" if self.data is None else None)
        loaded = load_cases(split, path=self.data)
        if not loaded:
            raise ValueError(f"there is no case in split {split!r}; leave out --split to use all cases.")
        claims = [case.claim for case in loaded]
        judge, against = self.judging.judge, self.against
        # Server options apply to the judge that uses a server.
        against_uses_model = against not in (None, "offline")
        first = open_judge(JudgeOptions() if judge == "offline" and against_uses_model else self.judging)
        second = None
        if against is not None:
            second = open_judge(replace(self.judging, judge=against) if against_uses_model else JudgeOptions())
        if isinstance(first, PromptedJudge) and isinstance(second, PromptedJudge):
            second.asker.budget = first.asker.budget  # one limit for both
        if self.judging.estimate:
            for name, one in ((judge, first), (against, second)):
                estimate = getattr(one, "estimate", None)
                if one is not None:
                    say(f"{name}: {estimate(claims) if estimate else 'judged offline at no cost'}")
            return
        verdicts = first.judge(claims)
        expected = (
            [case.label for case in loaded] if second is None else [each.correct for each in second.judge(claims)]
        )
        judged = [verdict.correct for verdict in verdicts]
        found = agreement(expected, judged, kinds=[case.kind for case in loaded])
        identities = {"judge": dict(first.identity), "against": "labels" if second is None else dict(second.identity)}
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
