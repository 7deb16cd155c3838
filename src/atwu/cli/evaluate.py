"""`atwu evaluate`: measure what a model knows of the forget set and of the retain set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from atwu.cli.cli_options import OPTIONS_GROUP, CliOption, cli_option, listed_options
from atwu.cli.shared import (
    DEVICE,
    ROWS_HELP,
    ResultFile,
    note,
    open_rows,
    say,
    terminal,
    warn,
)
from atwu.errors import UsageError
from atwu.judge.open_judge import MODEL_KEY, EstimatedJudgeOptions
from atwu.modeling.open_model import ModelLoadArgs

if TYPE_CHECKING:
    from atwu.benchmarks.base import Probe, Probes
    from atwu.evaluation.evaluate import Evaluation
    from atwu.evaluation.result import EvalResult
    from atwu.evaluation.session import ReferenceModels
    from atwu.judge.verdicts import Claim, Judge, Pair

_NEEDS = {"rwku-flavour": "probes", "task_folder": "task", "task_limit": "task"}
"""Settings that have no effect without another option."""
EVALUATED_SETS, EVALUATION, EVALUATED_MODEL = "Model and data", "Metrics and settings", "Loading the model"


def metric_settings() -> Iterator[CliOption]:
    """Yield the options of metric settings; those of single metrics are only shown by --help-all."""
    from atwu.evaluation.registry import all_settings

    for setting in all_settings():
        name, group = setting.flag or setting.name, EVALUATION
        if setting.metric:
            group = f"Settings of {setting.metric}"
        yield CliOption.of(setting, name=name, group=group, common=not setting.metric, needs=_NEEDS.get(name, ""))


@dataclass(kw_only=True)
class EvaluateCommand:
    """Evaluate a model: what it still knows of the forget set, and what it preserves of the retain set.

    Generations (except of a served model) and verdicts are cached, so an interrupted evaluation continues when the same
    command runs again, and no judge call is paid twice. Every value has a 95 % bootstrap interval; see
    docs/learn/judging.md.

    Example: atwu evaluate -m unlearned --original target --forget forget.jsonl --retain retain.jsonl --all -o eval.json
    """

    heading: ClassVar[str] = EVALUATED_SETS
    model: str | None = cli_option(
        "Model to evaluate: folder (also of an adapter), Hub name, or name on the server at --model-url. (required)",
        None,
        alias=("-m",),
    )
    forget: str | None = cli_option(f"Forget set: {ROWS_HELP}.", None)
    retain: str | None = cli_option("Retain set: same kinds of source.", None)
    holdout: str | None = cli_option(
        "Holdout set: rows that the model was never trained on, for membership attacks.", None
    )
    extra_retain: list[str] | None = cli_option("Further retain set, as NAME=SOURCE; repeatable.", None)
    original: str | None = cli_option(
        "Original model, or its result file. Adds judged forget quality (FQ), retain degradation (RD), unlearning "
        "quality (UQ), win rate and recovery under attacks.",
        None,
    )
    retain_only: str | None = cli_option(
        "Model trained without the forget set, or its result file. Adds forget quality (p-value) and privleak; "
        "with --original, both as models, the unlearning depth score (metric uds).",
        None,
    )
    probes: str | None = cli_option(
        "Benchmark whose own probes are answered, such as lume, muse:news or rwku:FORGET/RETAIN (`atwu benchmarks`).",
        None,
    )
    metrics: str | None = cli_option(
        "Metrics, comma-separated; see --list. Default: memorization,scores,rouge.", None, group=EVALUATION
    )
    # `all` and `list` are functions of Python, so these fields have other names than their flags.
    everything: bool = cli_option(
        "Compute all metrics that the given sets allow.", False, flag="all", group=EVALUATION, excludes="metrics"
    )
    listing: bool = cli_option("List the metrics and exit.", False, flag="list", group=EVALUATION)
    json: bool = cli_option("Print the list as JSON.", False, group=EVALUATION, common=False, needs="list")
    limit: int | None = cli_option(
        "Maximum number of rows per set, evenly spaced. Default: all rows.", None, least=1, group=EVALUATION
    )
    settings: dict[str, Any] = listed_options(metric_settings)
    judging: EstimatedJudgeOptions
    model_url: str | None = cli_option(
        "Evaluate --model on this OpenAI-compatible server; only metrics of generated answers.",
        None,
        group=EVALUATED_MODEL,
    )
    model_key: str = cli_option(
        "Environment variable with the API key of --model-url, if required.",
        MODEL_KEY,
        group=EVALUATED_MODEL,
        needs="model_url",
    )
    device: str | None = cli_option(DEVICE, None, group=EVALUATED_MODEL)
    loading: ModelLoadArgs = cli_option("", group=EVALUATED_MODEL)
    result: ResultFile = cli_option("", group=OPTIONS_GROUP)

    def run(self) -> None:
        if self.listing:
            from atwu.cli.listings import list_metrics

            list_metrics(as_json=self.json)
            return
        from atwu.evaluation.registry import (
            EvaluateConfig,
            all_settings,
            check_inputs_used,
            check_installed,
            find_metric,
            selected_metrics,
        )

        wanted: Any = None
        if self.everything or (self.metrics or "").strip() == "all":
            wanted = "all"
        elif self.metrics:
            wanted = [name.strip() for name in self.metrics.split(",")]
            for name in wanted:
                find_metric(name)  # a typo is answered before torch is imported
        from atwu.benchmarks.base import evenly_spaced
        from atwu.evaluation.evaluate import Evaluation
        from atwu.judge.open_judge import open_judge
        from atwu.modeling.open_model import check_system_prompt
        from atwu.report.table_writers import panel_table

        model = self._check_options()
        named_by = {setting.flag or setting.name: setting.name for setting in all_settings()}
        config = EvaluateConfig(**{named_by[flag]: value for flag, value in self.settings.items()})
        sources = {"forget": self.forget, "retain": self.retain, "holdout": self.holdout} | named_sets(
            self.extra_retain or ()
        )
        present = [name for name, source in sources.items() if source]
        if config.tasks:
            present.append("tasks")
        if self.probes:
            present.append(self.probes.partition(":")[0])
        compared = {"original": self.original, "retain-only": self.retain_only}
        references = {role: name for role, name in compared.items() if name is not None}
        names = selected_metrics(
            wanted,
            sets=present,
            weights=self.model_url is None,
            reference_models=self._reference_models(references) is not None,
        )
        check_inputs_used(names, sets=present, weights=self.model_url is None)
        check_installed(names, config)
        if self.judging.estimate and not any(find_metric(name).judged for name in names):
            raise UsageError(f"--estimate requires a metric that uses the judge; none of {', '.join(names)} does.")
        # All names and paths are checked before the first model is loaded, which takes minutes.
        known = self._check_names(model, references)
        for name in dict.fromkeys([model, *references.values()]):
            warn(filter(None, [check_system_prompt(name, config.system)]))
        judge = open_judge(self.judging)
        cost = JudgeCost(judge, stop=self.judging.estimate)
        rows = {name: open_rows(source) for name, source in sources.items()}
        subsets = {name: evenly_spaced(every, self.limit) for name, every in rows.items()}
        evaluation = Evaluation(
            metrics=wanted, settings=config, judge=judge, before_judging=cost.announce, probes=self._probes()
        )
        # What counts over the retain rows, such as rarity, reads all of them, also with --limit.
        sets = {**subsets, "pool": rows["retain"]}
        result, reference_results = self._results(model, references, known, sets, evaluation)
        if result is None:
            say(f"judge: {cost}")
            return
        title = model
        if reference_results:
            title = "unlearned"
        terminal().print(panel_table({title: result, **reference_results}))
        warn(result.warnings)
        if self.result.output is not None:
            say(f"written: {self.result.output}")

    def _check_options(self) -> str:
        """Check combinations of options and return the model's name."""
        if self.model is None:
            raise UsageError("--model is missing; give a folder, a Hub name, or the name of a model at --model-url.")
        if not (self.forget or self.retain or self.probes or self.settings.get("task")):
            raise UsageError("no rows are given; give --forget, --retain or both, or --probes or --task.")
        if self.model_url is not None and (self.loading.revision or self.loading.base):
            raise UsageError("--revision and --base do not apply to the served model of --model-url; leave them out.")
        for name in filter(None, (self.original, self.retain_only)):
            if self.model_url is not None and not name.endswith(".json"):
                raise UsageError(
                    f"a served model is only compared with served ones; evaluate {name} with --model-url first, and give its "
                    "result file."
                )
        return self.model

    def _reference_models(self, references: Mapping[str, str]) -> ReferenceModels | None:
        """Return the reference models; None unless both are given as models."""
        from atwu.evaluation.session import ReferenceModels

        # One that was not given counts as a result file: there is no model to look into.
        original, retain_only = (references.get(role, ".json") for role in ("original", "retain-only"))
        if original.endswith(".json") or retain_only.endswith(".json"):
            return None
        # Revision and base of the options are those of --model.
        return ReferenceModels(original, retain_only, replace(self.loading, revision=None, base=None))

    def _check_names(self, model: str, references: Mapping[str, str]) -> dict[str, EvalResult]:
        """Check models and output paths before anything is loaded; return the references given as results, by role."""
        from atwu._files import check_writable
        from atwu.evaluation.result import read_result
        from atwu.modeling.load import check_model_name

        # An existing result stops the command now, and not after an hour.
        check_writable(self.result.output, overwrite=self.result.overwrite)
        if self.model_url is None:
            check_model_name(model, base=self.loading.base, revision=self.loading.revision)
        results = {role: read_result(name) for role, name in references.items() if name.endswith(".json")}
        for role, name in references.items():
            if role in results:
                continue
            check_model_name(name)
            check_writable(self._reference_path(role), overwrite=self.result.overwrite)
        return results

    def _reference_path(self, role: str) -> Path | None:
        """Return the output path of a reference model's result: eval.json -> eval.original.json."""
        output = self.result.output
        if output is None:
            return None
        # Its own file, so that a later command can give it in place of the model.
        return output.with_name(f"{output.stem}.{role}{output.suffix}")

    def _results(
        self,
        model: str,
        references: Mapping[str, str],
        known: Mapping[str, EvalResult],
        rows: Mapping[str, Any],
        evaluation: Evaluation,
    ) -> tuple[EvalResult | None, dict[str, EvalResult]]:
        """Evaluate the reference models, then the model, and write the results.

        Returns:
            The model's result (None for an estimate), and the results of the reference models by role.
        """
        from atwu.evaluation.weighting_scores import find_auxiliary_models
        from atwu.methods.weightings.token_scorer import find_scorer

        results: dict[str, EvalResult] = {}
        for role, name in references.items():  # the original model first, since retain-only is compared with it
            if role in known:
                results[role] = known[role]
                continue
            note(f"evaluating the {role} model {name}")
            plain = replace(self.loading, revision=None, base=None)  # those of the options are of --model
            result = self._evaluate(name, plain, results, rows, replace(evaluation, name=role, reference=True))
            if result is not None:
                results[role] = result
                path = self._reference_path(role)
                if path is not None:
                    result.write(path)
        if results:
            note(f"evaluating {model}")
        loading = None
        evaluation = replace(evaluation, name=model)
        if self.model_url is None:
            loading = self.loading
            evaluation = replace(
                evaluation,
                scorer=find_scorer(model),
                auxiliary=find_auxiliary_models(model),
                reference_models=self._reference_models(references),
            )
        result = self._evaluate(model, loading, results, rows, evaluation)
        if result is not None and self.result.output is not None:
            result.write(self.result.output)
        return result, results

    def _evaluate(
        self,
        model: str,
        loading: ModelLoadArgs | None,
        references: Mapping[str, EvalResult],
        rows: Mapping[str, Any],
        evaluation: Evaluation,
    ) -> EvalResult | None:
        """Evaluate one model, which is served if `loading` is None; returns None for an estimate."""
        from atwu.evaluation.backends import EndpointGenerator
        from atwu.evaluation.evaluate import evaluate
        from atwu.evaluation.generations import GenerationStore
        from atwu.modeling.open_model import open_model

        network = tokenizer = store = None
        generator: Any = None
        with contextlib.suppress(_EstimateOnlyError):
            if loading is None:  # without a store: a served model may change under its name
                from atwu.judge.client import OpenAIChat

                concurrency = self.judging.judge_concurrency
                chat = OpenAIChat(model, base_url=self.model_url, api_key_env=self.model_key, concurrency=concurrency)
                generator = EndpointGenerator(chat)
            else:
                store = GenerationStore()
                network, tokenizer = open_model(model, loading, device=self.device)
            evaluation = replace(
                evaluation,
                generator=generator,
                store=store,
                original=references.get("original"),
                retain_only=references.get("retain-only"),
            )
            return evaluate(network, rows, evaluation, tokenizer=tokenizer)
        return None

    def _probes(self) -> Probes | None:
        """Return the probes of the benchmark; --limit is per kind of probe."""
        if self.probes is None:
            return None
        from atwu.benchmarks.base import evenly_spaced
        from atwu.benchmarks.sources import load_benchmark

        probes = load_benchmark(self.probes).probes
        if probes is None:
            raise UsageError(f"the benchmark {self.probes} has no probes of its own; leave out --probes.")
        # Per kind, since the score of a benchmark is a mean over its kinds.
        kept: list[Probe] = []
        for kind in dict.fromkeys(probe.kind for probe in probes.probes):
            kept += evenly_spaced([probe for probe in probes.probes if probe.kind == kind], self.limit)
        note(f"{probes.name}: {len(kept)} of {len(probes.probes)} probes")
        return replace(probes, probes=tuple(kept))


class _EstimateOnlyError(Exception):
    """Stops an evaluation before judging, if only the cost estimate is wanted."""


class JudgeCost:
    """Cost of judging, announced before it is spent and added up over all models."""

    def __init__(self, judge: Judge, *, stop: bool) -> None:
        """Start at nothing; `stop` ends every evaluation before judging."""
        self._judge, self._stop = judge, stop
        self._estimates: list[Any] = []
        self._offline = 0

    def announce(self, claims: Sequence[Claim], pairs: Sequence[Pair]) -> None:
        estimate = getattr(self._judge, "estimate", None)
        if estimate is None:
            self._offline += len(claims) + len(pairs)
        else:
            self._estimates.append(estimate(claims, pairs))
            note(f"judge: {self._estimates[-1]}")
        if self._stop:
            raise _EstimateOnlyError

    def __str__(self) -> str:
        if not self._estimates:
            return f"{self._offline} answers, judged offline at no cost"
        total = sum(self._estimates[1:], start=self._estimates[0])
        return f"{total} (all models; comparisons with answers not yet generated are not included)"


def named_sets(texts: Sequence[str]) -> dict[str, str | None]:
    """Parse the NAME=SOURCE pairs of --extra-retain."""
    from atwu.evaluation.columns import RESERVED_SET_NAMES

    sets: dict[str, str | None] = {}
    for text in texts:
        name, _, source = text.partition("=")
        if not name or not source or name in RESERVED_SET_NAMES or name in sets:
            raise UsageError(f"--extra-retain must be NAME=SOURCE with a new, unreserved name, got {text!r}.")
        sets[name] = source
    return sets
