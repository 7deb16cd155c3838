"""The verdict on the model of a finished request as a server serves it, since what is deployed is what counts.

The server is asked what the folder was asked, without other states, and the same rule decides. A server gives no
probabilities, so that the retain loss is no part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from atwu.data.render import with_system
from atwu.errors import AtwuError
from atwu.evaluation.backends import EMPTY_REPLY
from atwu.evaluation.facts.fact_table import GENERAL, mark_unreadable
from atwu.evaluation.generations import Decoding, Generator, Prompt, generate_all
from atwu.evaluation.teacher_forced import OriginalReader
from atwu.request.finished_request import FinishedRequest, MissingInputError
from atwu.request.measurement import ask_sets, untested
from atwu.request.request_defaults import AUTO
from atwu.request.verdict import RequestVerdict, decide, read_request_verdict
from atwu.training.progress import Say, logged

NO_PROBABILITIES = "the retain loss, as a server gives no probabilities"

WHICH_WEIGHTS = "check which weights the server loads, and how it rounds them: the folder itself was found forgotten"


def served_verdict(
    run: str | Path, served: Generator, *, device: str | None = None, say: Say = logged
) -> RequestVerdict:
    """Ask a served model about the facts, the neighbours and general questions of a finished request, and decide the verdict.

    Args:
        run: folder of a finished run of `unlearn`, with what the original model said.
        served: asks the server.
        device: device of the original model, which reads the answers; if it is not at hand, readability is not measured.
        say: receives one line of plain text per stage.

    Raises:
        ValueError, FileNotFoundError: there is no such run, or its forget rows are missing or changed.
        AtwuError: the server gave no answer to some questions, which might have stated a fact.
    """
    request = FinishedRequest(run, device=device)
    try:
        sets = request.sets
    except MissingInputError as error:
        raise ValueError(f"the served model cannot be asked: {error}; restore what is missing.") from None
    before = request.folder.answers("before")

    def answers(prompts: Sequence[Prompt]) -> list[str]:
        asked = [
            dataclasses.replace(prompt, messages=with_system(prompt.messages, request.request.system))
            for prompt in prompts
        ]
        replies = generate_all(served, asked, Decoding(), progress="served model")
        failed = [reply.error for reply in replies if reply.error not in (None, EMPTY_REPLY)]
        if failed:
            raise AtwuError(
                f"the server gave no answer to {len(failed)} of {len(asked)} questions ({failed[0]}); any of them might state "
                "a fact, so there is no verdict. Ask again when it answers."
            )
        return [reply.answer for reply in replies]

    say("asking the served model what the model of the folder was asked")
    after = ask_sets(answers, sets)
    retain = request.request.retain
    not_tested = [
        NO_PROBABILITIES,
        *untested(request.forget_rows, retain_given=retain is None or retain.source != AUTO),
    ]
    try:
        original = request.open_original()
    except MissingInputError as error:
        not_tested.append(f"whether answers are word salad, since {error}")
    else:
        say("reading its answers with the original model")
        after = mark_unreadable(after, OriginalReader(*original, request.request.system), sets[GENERAL])
    verdict = decide(
        before,
        after,
        max_retain_increase=request.request.max_retain_increase,
        retain_loss_increase=None,
        not_tested=tuple(not_tested),
    )
    # What to train otherwise is said by the verdict on the folder.
    next_steps: tuple[str, ...] = ()
    if read_request_verdict(request.folder.run).good and not verdict.good:
        next_steps = (WHICH_WEIGHTS,)
    return dataclasses.replace(verdict, next_steps=next_steps)
