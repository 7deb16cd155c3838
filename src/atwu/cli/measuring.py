"""One evaluation after the other: the models that are compared with, then the one that is asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from atwu.cli.opening import open_model, result_beside
from atwu.cli.parameters import check_output

if TYPE_CHECKING:
    from atwu.evaluation.prompts import Generator
    from atwu.evaluation.result import EvalResult
    from atwu.judge.verdicts import Claim, Judge, Pair


class _Estimated(Exception):  # noqa: N818
    """Everything was gathered, and nothing is to be judged."""


class Measuring:
    """Runs `evaluate` on several models with the same rows and options."""

    def __init__(
        self,
        *,
        options: Mapping[str, Any],
        judge: Judge,
        loading: Mapping[str, Any],
        backend: str,
        estimate_only: bool,
    ) -> None:
        """Bind what all models share.

        Args:
            options: arguments of `evaluate`.
            judge: the judge among them.
            loading: arguments of `open_model`.
            backend: what generates, transformers or vllm.
            estimate_only: stop before anything is judged, and add up what it would cost.
        """
        from atwu._cache import cache_folder
        from atwu.evaluation.generations import GenerationStore

        store = GenerationStore(cache_folder() / "generations")
        self._options = {**options, "store": store, "before_judging": self._announce}
        self._judge, self._loading, self._backend, self._stop = judge, loading, backend, estimate_only
        self._estimates: list[Any] = []
        self._free = 0

    def references(self, names: Mapping[str, str | None], *, output: Path | None) -> dict[str, EvalResult]:
        """Results of the models that are compared with: read, or measured and written beside the output."""
        from atwu.evaluation.result import read_result

        found = {role: read_result(name) for role, name in names.items() if name and name.endswith(".json")}
        for role, name in names.items():
            if name is None or role in found:
                continue
            typer.echo(f"measuring the {role} model {name}", err=True)
            result = self._run(
                name, name=role, reference=True, references={k: v for k, v in found.items() if k == "original"}
            )
            if result is not None:
                found[role] = result
                if output is not None:
                    result.write(result_beside(output, role))
        return {role: found[role] for role in names if role in found}

    def model(
        self, name: str, *, references: Mapping[str, EvalResult], revision: str | None, base: str | None
    ) -> EvalResult | None:
        """Measure the model that is asked about; None if only the estimate was wanted."""
        if references:
            typer.echo(f"measuring {name}", err=True)
        return self._run(name, name=name, references=references, revision=revision, base=base)

    def endpoint(
        self, name: str, *, url: str, key: str, concurrency: int, references: Mapping[str, EvalResult]
    ) -> EvalResult | None:
        """Measure a model behind a server, by its generations alone."""
        from atwu.evaluation.backends import EndpointGenerator
        from atwu.judge.client import OpenAIChat

        chat = OpenAIChat(name, base_url=url, api_key_env=key, concurrency=concurrency)
        return self._evaluate(None, None, EndpointGenerator(chat), name=name, references=references)

    def total(self) -> str:
        """What judging would cost over all models."""
        if not self._estimates:
            return f"{self._free} answers, judged offline at no cost"
        total = self._estimates[0]
        for estimate in self._estimates[1:]:
            total = total + estimate
        return f"{total} (all models; without comparisons to answers that are not there yet)"

    def _run(
        self,
        model: str,
        *,
        name: str,
        references: Mapping[str, EvalResult],
        reference: bool = False,
        revision: str | None = None,
        base: str | None = None,
    ) -> EvalResult | None:
        from atwu.methods.weightings.scorer import find_scorer

        generator: Generator | None = None
        if self._backend == "vllm":  # first, since it takes its share of the device's memory at once
            from atwu.evaluation.backends import VllmGenerator

            generator = VllmGenerator(model)
        network, tokenizer = open_model(model, **self._loading, revision=revision, base=base)
        return self._evaluate(
            network,
            tokenizer,
            generator,
            name=name,
            references=references,
            reference=reference,
            scorer=None if reference else find_scorer(model),
        )

    def _evaluate(
        self,
        network: Any,
        tokenizer: Any,
        generator: Generator | None,
        *,
        name: str,
        references: Mapping[str, EvalResult],
        reference: bool = False,
        scorer: Any = None,
    ) -> EvalResult | None:
        from atwu.evaluation.run import evaluate

        try:
            return evaluate(
                network,
                tokenizer,
                generator=generator,
                scorer=scorer,
                original=references.get("original"),
                retain_only=references.get("retain-only"),
                reference=reference,
                name=name,
                **self._options,
            )
        except _Estimated:
            return None

    def _announce(self, claims: Sequence[Claim], pairs: Sequence[Pair]) -> None:
        """Say what judging will cost before it starts; stop there if only the estimate was asked for."""
        estimate = getattr(self._judge, "estimate", None)
        if estimate is None:
            self._free += len(claims) + len(pairs)
        else:
            self._estimates.append(estimate(claims, pairs))
            typer.echo(f"judge: {self._estimates[-1]}", err=True)
        if self._stop:
            raise _Estimated


def check_names(
    model: str,
    references: Mapping[str, str | None],
    *,
    base: str | None,
    remote: bool,
    output: Path | None,
    overwrite: bool,
) -> None:
    """Check models, result files and places to write before anything is loaded."""
    from atwu.evaluation.result import read_result
    from atwu.modeling.load import check_model_name

    check_output(output, overwrite=overwrite)
    if not remote:
        check_model_name(model, base=base)
    for role, name in references.items():
        if name is None:
            continue
        if name.endswith(".json"):
            read_result(name)
            continue
        check_model_name(name)
        if output is not None:
            check_output(result_beside(output, role), overwrite=overwrite)
