"""`atwu evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu.cli.cli_options import CliOption, UsageError, cli_option, settings
from atwu.cli.output import ResultFile, note, say, terminal, warn
from atwu.cli.shared import DEVICE, ROWS_HELP, open_rows
from atwu.judge.open_judge import EstimatedJudgeOptions
from atwu.modeling.open_model import ModelLoadArgs

SETS, READING, MODEL = "What is measured", "How it is measured", "The model"


def metric_settings() -> Iterator[CliOption]:
    """Settings of all metrics; those of single ones are for who asks for all options."""
    from atwu.evaluation.registry import all_settings

    for each in all_settings():
        yield CliOption(
            each.flag or each.name,
            each.kind,
            each.default,
            each.help,
            many=each.many,
            group=f"Settings of {each.metric}" if each.metric else READING,
            common=not each.metric,
            choices=each.choices,
            least=each.least,
        )


@dataclass(kw_only=True)
class EvaluateCommand:
    """Measure what a model still knows of forget rows and what it kept of retain rows.

    Generations (of a model at --model-url: not) and verdicts are stored as they come: an evaluation that is killed continues
    when the same command is given again, and nothing is paid for twice. Every number has a 95 % interval;
    docs/reading-results.md tells how to read them.

    Example: atwu evaluate -m unlearned --original target --forget forget.jsonl --retain retain.jsonl --all -o eval.json
    """

    model: str | None = cli_option(
        "Model to measure: folder (of an adapter, too), Hub name, or its name at --model-url. (needed)",
        None,
        alias=("-m",),
        group=SETS,
    )
    forget: str | None = cli_option(f"Rows that should be gone: {ROWS_HELP}.", None, group=SETS)
    retain: str | None = cli_option("Rows that should be there, same kinds.", None, group=SETS)
    holdout: str | None = cli_option("Rows that no model was trained on, for membership attacks.", None, group=SETS)
    extra_retain: list[str] | None = cli_option(
        "Further rows that should be there, as NAME=SOURCE; repeat for several.", None, group=SETS
    )
    original: str | None = cli_option(
        "Starting model, or its result file: adds FQ, RD, UQ, win rate, recovery.", None, group=SETS
    )
    retain_only: str | None = cli_option(
        "Model that never saw the forget rows, or its result file: forget quality, privleak.", None, group=SETS
    )
    rwku: Path | None = cli_option("Folder with RWKU's probe files (forget_level1.jsonl ...).", None, group=SETS)
    rwku_subjects: str | None = cli_option(
        "Subjects, separated by ';'. Default: the ten of the ATWU paper.", None, group=SETS
    )
    metrics: str | None = cli_option(
        "Metrics, comma-separated; see them with --list. Default: memorization,scores,rouge.", None, group=READING
    )
    everything: bool = cli_option("All metrics whose rows are given.", False, flag="all", group=READING)
    listing: bool = cli_option("List the metrics and stop.", False, flag="list", group=READING)
    limit: int | None = cli_option("At most this many rows of each set, evenly spaced.", None, least=1, group=READING)
    settings: dict[str, Any] = settings(metric_settings)
    judging: EstimatedJudgeOptions
    backend: str = cli_option("What generates.", "transformers", choices=("transformers", "vllm"), group=MODEL)
    gpu_memory_utilization: float | None = cli_option(
        "Share of the GPU's memory that vLLM may take. Default: its own, 0.92.", None, group=""
    )
    model_url: str | None = cli_option(
        "Measure --model behind this OpenAI-compatible server; only what generations tell.", None, group=MODEL
    )
    model_key: str = cli_option(
        "Environment variable with the key of --model-url, if it needs one.", "ATWU_MODEL_KEY", group=MODEL
    )
    device: str | None = cli_option(DEVICE, None, group=MODEL)
    loading: ModelLoadArgs = cli_option("", group=MODEL)
    result: ResultFile

    def run(self) -> None:
        """Measure, print, write."""
        if self.listing:
            from atwu.evaluation.registry import listing

            say(listing())
            return
        from atwu.evaluation.evaluate_config import EvaluateConfig
        from atwu.evaluation.registry import check_inputs_used, check_installed, find_metric, selected_metrics
        from atwu.evaluation.runner import EvaluationRunner, check_names
        from atwu.judge.open_judge import open_judge
        from atwu.modeling.open_model import check_system_prompt
        from atwu.report.terminal_tables import panel_table

        model = self._checked()
        config = EvaluateConfig.from_flags(self.settings)
        sources = {"forget": self.forget, "retain": self.retain, "holdout": self.holdout} | named_sets(
            self.extra_retain or ()
        )
        present = [name for name, source in sources.items() if source]
        present += ["rwku"] * (self.rwku is not None) + ["tasks"] * bool(config.tasks)
        wanted = (
            "all" if self.everything else [name.strip() for name in self.metrics.split(",")] if self.metrics else None
        )
        names = selected_metrics(wanted, sets=present, weights=self.model_url is None)
        check_inputs_used(names, sets=present, weights=self.model_url is None)
        check_installed(names, config)
        if self.judging.estimate and not any(find_metric(name).judged for name in names):
            raise UsageError(f"--estimate is about the judge, which none of {', '.join(names)} asks.")
        compared = {"original": self.original, "retain-only": self.retain_only}
        references = {role: name for role, name in compared.items() if name is not None}
        check_names(
            model if self.model_url is None else None,
            references,
            base=self.loading.base,
            output=self.result.output,
            overwrite=self.result.overwrite,
        )
        warn(
            filter(
                None,
                (check_system_prompt(name, config.system) for name in dict.fromkeys([model, *references.values()])),
            )
        )
        judge = open_judge(self.judging)
        measuring = EvaluationRunner(
            self._rows(sources) | {"probes": self._probes(), "metrics": wanted, "config": config},
            judge,
            self.loading,
            device=self.device,
            backend=self.backend,
            gpu_memory_utilization=self.gpu_memory_utilization,
            url=self.model_url,
            key=self.model_key,
            concurrency=self.judging.judge_concurrency,
            estimate_only=self.judging.estimate,
            say=note,
        )
        result, found = measuring.measure(model, references, output=self.result.output)
        if result is None:
            say(f"judge: {measuring.total()}")
            return
        terminal().print(panel_table({"unlearned" if found else model: result, **found}))
        warn(result.warnings)
        if self.result.output is not None:
            say(f"written: {self.result.output}")

    def _checked(self) -> str:
        """The model's name, if the words make sense together."""
        if self.model is None:
            raise UsageError("--model missing.")
        if self.forget is None and self.retain is None and self.rwku is None and not self.settings.get("task"):
            raise UsageError("give --forget, --retain or both (or --rwku, or --task).")
        if self.everything and self.metrics:
            raise UsageError("give --all or --metrics, not both.")
        if self.gpu_memory_utilization is not None and self.backend != "vllm":
            raise UsageError("--gpu-memory-utilization goes with --backend vllm.")
        if self.rwku is None and (self.rwku_subjects or "rwku-flavour" in self.settings):
            raise UsageError("--rwku-subjects and --rwku-flavour go with --rwku FOLDER.")
        return self.model

    def _rows(self, sources: dict[str, str | None]) -> dict[str, Any]:
        """Rows of all sets, as `evaluate` takes them."""
        from atwu.benchmarks.subsample import evenly_spaced

        rows = {name: open_rows(source) for name, source in sources.items()}
        few: dict[str, Any] = {name: evenly_spaced(every, self.limit) for name, every in rows.items()}
        return {name: few.pop(name) for name in ("forget", "retain", "holdout")} | {
            "extra_retain": few,
            "pool": rows["retain"],
        }

    def _probes(self) -> Any:
        """RWKU's own probes, if they are asked for."""
        if self.rwku is None:
            return None
        from atwu.evaluation.runner import rwku_probes

        probes = rwku_probes(self.rwku, (self.rwku_subjects or "").split(";"), limit=self.limit)
        note(f"rwku: {len(probes.probes)} probes, {sum(probes.duplicates.values())} exact duplicates dropped")
        return probes


def named_sets(texts: Sequence[str]) -> dict[str, str | None]:
    """NAME=SOURCE pairs of --extra-retain; names that mean something else are refused by `evaluate`."""
    from atwu.evaluation.columns import RESERVED_SET_NAMES

    found: dict[str, str | None] = {}
    for text in texts:
        name, _, source = text.partition("=")
        if not name or not source or name in RESERVED_SET_NAMES or name in found:
            raise UsageError(f"--extra-retain must be NAME=SOURCE with a name of its own, got {text!r}.")
        found[name] = source
    return found
