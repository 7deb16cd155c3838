"""Run `evaluate` on several models with the same rows: reference models first, then the evaluated model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atwu._files import check_writable
from atwu.benchmarks.base import Probes
from atwu.benchmarks.rwku import CANONICAL_FORGET, CAPS, load_probes, rwku_tables
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.generations import GenerationStore, Generator
from atwu.evaluation.registry import EvaluateConfig
from atwu.evaluation.result import EvalResult, read_result
from atwu.evaluation.session import ReferenceModels
from atwu.evaluation.weighting_scores import find_auxiliary_models
from atwu.judge.verdicts import Claim, Judge, Pair
from atwu.methods.weightings.token_scorer import find_scorer
from atwu.modeling.load import check_model_name
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.training.progress import Say


class _EstimateOnlyError(Exception):
    """Stops an evaluation before judging, if only the cost estimate is wanted."""


@dataclass
class EvaluationRunner:
    """Evaluate several models with the same rows and options."""

    options: Mapping[str, Any]
    """Arguments of `evaluate` that all models share."""
    judge: Judge
    loading: ModelLoadArgs
    device: str | None = None
    backend: str = "transformers"
    """Generation backend, `transformers` or `vllm`."""
    gpu_memory_utilization: float | None = None
    """Share of GPU memory for vLLM; None: vLLM's default."""
    url: str | None = None
    """Address of the server of the evaluated model, which then only generates answers."""
    key: str = "ATWU_MODEL_KEY"
    """Environment variable with that server's key."""
    concurrency: int = 8
    """Concurrent requests to the server."""
    estimate_only: bool = False
    """Stop before judging and add up the estimated cost."""
    say: Say = print
    _estimates: list[Any] = field(default_factory=list)
    _judged_offline: int = 0

    def measure(
        self, model: str, references: Mapping[str, str], *, output: Path | None
    ) -> tuple[EvalResult | None, dict[str, EvalResult]]:
        """Evaluate the reference models, then the model, and write the results.

        Returns:
            The model's result (None for an estimate), and the results of the reference models by role.
        """
        references_found: dict[str, EvalResult] = {}
        plain = replace(self.loading, revision=None, base=None)
        for role, name in references.items():  # the original model first, since retain-only is compared with it
            if name.endswith(".json"):
                references_found[role] = read_result(name)
                continue
            self.say(f"evaluating the {role} model {name}")
            result = self._measure(name, plain, name=role, reference=True, references=references_found)
            if result is not None:
                references_found[role] = result
                if output is not None:
                    result.write(reference_result_path(output, role))
        if references_found:
            self.say(f"evaluating {model}")
        if self.url is None:
            own = {
                "scorer": find_scorer(model),
                "auxiliary": find_auxiliary_models(model),
                "reference_models": reference_models(references, plain),
            }
            result = self._measure(model, self.loading, name=model, references=references_found, **own)
        else:
            from atwu.evaluation.backends import EndpointGenerator
            from atwu.judge.client import OpenAIChat

            chat = OpenAIChat(model, base_url=self.url, api_key_env=self.key, concurrency=self.concurrency)
            result = self._evaluate(None, None, EndpointGenerator(chat), name=model, references=references_found)
        if result is not None and output is not None:
            result.write(output)
        return result, references_found

    def total(self) -> str:
        """Return the estimated judge cost over all models."""
        if not self._estimates:
            return f"{self._judged_offline} answers, judged offline at no cost"
        total = sum(self._estimates[1:], start=self._estimates[0])
        return f"{total} (all models; comparisons with answers not yet generated are not included)"

    def _measure(self, model: str, loading: ModelLoadArgs, **options: Any) -> EvalResult | None:
        if self.backend != "vllm":
            return self._evaluate(*open_model(model, loading, device=self.device), None, **options)
        from atwu.evaluation.backends import GPU_MEMORY_UTILIZATION, VllmGenerator

        length = EvaluateConfig(**getattr(self.options.get("config"), "values", {})).max_length
        generator = VllmGenerator(
            model,
            loading,
            max_length=length,
            memory_share=GPU_MEMORY_UTILIZATION if self.gpu_memory_utilization is None else self.gpu_memory_utilization,
        )
        network, tokenizer = open_model(model, loading, device=self.device)
        generator.offloaded_model = None if getattr(network, "is_quantized", False) else network
        try:
            return self._evaluate(network, tokenizer, generator, **options)
        finally:
            generator.close()

    def _evaluate(
        self,
        network: Any,
        tokenizer: Any,
        generator: Generator | None,
        *,
        references: Mapping[str, EvalResult],
        **options: Any,
    ) -> EvalResult | None:
        try:
            return evaluate(
                network,
                tokenizer,
                generator=generator,
                original=references.get("original"),
                retain_only=references.get("retain-only"),
                judge=self.judge,
                store=None if network is None else GenerationStore(),  # a served model may change under its name
                before_judging=self._announce,
                **self.options,
                **options,
            )
        except _EstimateOnlyError:
            return None

    def _announce(self, claims: Sequence[Claim], pairs: Sequence[Pair]) -> None:
        """Report the judge cost before judging; stop if only the estimate is wanted."""
        estimate = getattr(self.judge, "estimate", None)
        if estimate is None:
            self._judged_offline += len(claims) + len(pairs)
        else:
            self._estimates.append(estimate(claims, pairs))
            self.say(f"judge: {self._estimates[-1]}")
        if self.estimate_only:
            raise _EstimateOnlyError


def reference_models(references: Mapping[str, str], loading: ModelLoadArgs) -> ReferenceModels | None:
    """Return the reference models; None unless both are given as models."""
    original, retain_only = (references.get(role, ".json") for role in ("original", "retain-only"))
    given = not original.endswith(".json") and not retain_only.endswith(".json")
    return ReferenceModels(original, retain_only, loading) if given else None


def check_names(
    model: str | None, references: Mapping[str, str], *, base: str | None, output: Path | None, overwrite: bool
) -> None:
    """Check models, result files and output paths before anything is loaded."""
    check_writable(output, overwrite=overwrite)
    if model is not None:
        check_model_name(model, base=base)
    for role, name in references.items():
        if name.endswith(".json"):
            read_result(name)
        else:
            check_model_name(name)
            check_writable(None if output is None else reference_result_path(output, role), overwrite=overwrite)


def rwku_probes(folder: Path, subjects: Sequence[str] = (), *, limit: int | None = None) -> Probes:
    """Load RWKU's probes for some subjects (default: those of the ATWU paper), at most `limit` of each kind."""
    named = [name.strip() for name in subjects if name.strip()]
    caps = {kind: min(cap, limit or cap) for kind, cap in CAPS.items()}
    return load_probes(rwku_tables(folder), subjects=named or CANONICAL_FORGET, caps=caps)


def reference_result_path(output: Path, role: str) -> Path:
    """Return the output path of a reference model's result: eval.json -> eval.original.json."""
    return output.with_name(f"{output.stem}.{role}{output.suffix}")
