"""Original and retain-only models of a setting, what identifies them, and what a method needs of the rows.

Models that are trained for a setting are small; they are trained once, with one CPU thread, so that results do not depend
on the number of cores, and cached.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._cache import cache_folder, short_hash, writable_folder
from atwu._file_reading import read_json
from atwu._files import file_digest, file_lock, versions
from atwu._manifest import RECORD_NAME, damage, is_intact
from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.people_rows import SIZES, people
from atwu.benchmarks.sources import load_benchmark, load_rows
from atwu.data.alternates import check_alternates
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.experiments.benchmark_settings import BenchmarkSetting, FinetunedTarget
from atwu.experiments.executors import cpu_threads
from atwu.modeling.named_models import model_source
from atwu.training.config import FinetuneConfig, UnlearnConfig
from atwu.training.progress import Say
from atwu.training.row_sets import add_labels
from atwu.training.unlearn_run import ModelSource, run_finetune

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Models:
    benchmark: Benchmark
    target: str
    retain_only: str | None


def setting_rows(setting: BenchmarkSetting) -> Benchmark:
    """Return the benchmark of a setting, with the sources and paraphrases that the setting replaces."""
    benchmark = load_benchmark(setting.benchmark)
    known = {
        _question_and_answer(row): row.paraphrases for source in setting.paraphrases for row in load_rows(source).rows
    }
    lacking = [row for row in benchmark.forget if not known.get(_question_and_answer(row))]
    if lacking and setting.paraphrases:
        raise ValueError(
            f"{', '.join(setting.paraphrases)}: no paraphrases for {len(lacking)} of the {len(benchmark.forget)} "
            f"evaluated forget rows of {benchmark.name}, such as {lacking[0].question!r:.80}; atwu rows paraphrases writes "
            "them."
        )

    def with_paraphrases(rows: Sequence[Example]) -> Sequence[Example]:
        return tuple(
            dataclasses.replace(row, paraphrases=known.get(_question_and_answer(row), row.paraphrases)) for row in rows
        )

    return dataclasses.replace(
        benchmark,
        forget=with_paraphrases(benchmark.forget),
        retain=with_paraphrases(benchmark.retain),
        extra_retain={name: with_paraphrases(rows) for name, rows in benchmark.extra_retain.items()},
        forget_source=setting.forget or benchmark.forget_source,
        retain_source=setting.retain or benchmark.retain_source,
        paired_source=setting.paired,
    )


def _question_and_answer(row: Example) -> tuple[str, str]:
    return row.question, row.answer


def prepare_models(
    setting: BenchmarkSetting,
    *,
    seed: int = 0,
    with_retain_only: bool = True,
    say: Say = logger.info,
) -> Models:
    """Return rows and models of a setting (with the retain-only one, if any); models not in the cache are trained."""
    benchmark = setting_rows(setting)
    if not isinstance(setting.target, FinetunedTarget):
        retain_only = None
        if with_retain_only:
            retain_only = setting.retain_only
        return Models(benchmark, setting.target, retain_only)
    sources = {"target": benchmark.full_source}
    if setting.train_retain_only:
        sources["retain_only"] = benchmark.retain_only_source
    folder = _folder_of(setting.name, setting.target, sources, seed)
    needed = {role: source for role, source in sources.items() if with_retain_only or role == "target"}
    # Only if something is to be written: a read-only cache serves finished models.
    if any(damage(folder / role) is not None for role in needed):
        folder = writable_folder(folder)
    waiting = f"another command is training the models in {folder}; waiting for it"
    for role, source in needed.items():
        if damage(folder / role) is not None:
            with file_lock(folder / "lock", waiting=lambda: say(waiting)), cpu_threads(1):
                # Looked at again: the command that held the lock may have trained it.
                if not is_intact(folder / role):
                    say(f"training the {role.replace('_', '-')} model (once; cached in {folder})")
                    _train(setting.target, source, folder, role, benchmark=benchmark.name, seed=seed, say=say)
                    continue
        say(f"loaded from the cache: {folder / role}")
    folders = {role: str(folder / role) for role in needed}
    return Models(benchmark, folders["target"], folders.get("retain_only"))


def _folder_of(name: str, target: FinetunedTarget, sources: Mapping[str, str], seed: int) -> Path:
    key: dict[str, Any] = {
        "target": dataclasses.asdict(target),
        "rows": {role: load_rows(source).fingerprint for role, source in sources.items()},
        "seed": seed,
    }
    if target.model is not None:
        key["model"] = model_identity(target.model)
    base, digest = cache_folder(), short_hash(key)[:12]
    # The name is for people: other settings with the same model share the folder.
    return next(iter(sorted(base.glob(f"*-{digest}"))), base / f"{name}-{digest}")


def _train(
    target: FinetunedTarget, source: str, folder: Path, role: str, *, benchmark: str, seed: int, say: Say
) -> None:
    """Train a model in its folder; from scratch with a tokenizer that both roles share."""
    tokenizer = corpus = None
    if target.shape is not None and role != "target":
        # Other tokens would make the losses of both models incomparable.
        tokenizer = str(folder / "target")
    model = ModelSource(model=target.model, scratch=target.shape, tokenizer=tokenizer)
    prefix, _, size = benchmark.partition(":")
    if prefix == "people" and size in SIZES:
        # The tokenizer of the built-in benchmark is also trained on its holdout rows and refusals.
        corpus = people(size).texts
    config = FinetuneConfig(**target.training, seed=seed)
    run_finetune(model, config, data=source, output=folder / role, corpus=corpus, say=say)


def has_retain_only(setting: BenchmarkSetting) -> bool:
    if isinstance(setting.target, FinetunedTarget):
        return setting.train_retain_only
    return setting.retain_only is not None


def models_identity(models: Models, *, paired: bool = False) -> dict[str, Any]:
    """Return what identifies these rows (`paired`: those with preferred answers) and models, independent of paths."""
    benchmark = models.benchmark
    # Evaluated rows identify a result as well as trained ones.
    measured = (*benchmark.forget, *benchmark.retain, *benchmark.pool, *benchmark.holdout)
    measured += tuple(row for rows in benchmark.extra_retain.values() for row in rows)
    sources = {"forget": benchmark.forget_source_for(paired=paired), "retain": benchmark.retain_source}
    rows = {name: load_rows(source).fingerprint for name, source in sources.items()}
    rows["measured"] = fingerprint(measured)
    if benchmark.probes is not None:
        rows["probes"] = short_hash([dataclasses.asdict(probe) for probe in benchmark.probes.probes])
    names = {"target": models.target, "retain_only": models.retain_only}
    return {
        "rows": rows,
        "models": {role: None if name is None else model_identity(name) for role, name in names.items()},
        "versions": versions(),
    }


def model_identity(name: str) -> str:
    """Return the fingerprint of a model trained here, a digest of another folder's files, or a Hub name."""
    folder = Path(model_source(name))
    if not folder.is_dir():
        return str(folder)
    record = folder / RECORD_NAME
    if record.is_file():
        return str(read_json(record)["result_fingerprint"])
    # Weights, settings and tokenizer; a changed model card leaves the model as it is.
    files = [file for file in folder.iterdir() if file.suffix in (".safetensors", ".json", ".model")]
    return _folder_digest(tuple((str(file), file.stat().st_mtime_ns) for file in sorted(files)))


@functools.lru_cache(maxsize=8)
def _folder_digest(files: tuple[tuple[str, int], ...]) -> str:
    """Digest of the contents, cached because a large model takes seconds."""
    return file_digest(*(path for path, _ in files))


def needs_preferred_answers(config: UnlearnConfig) -> bool:
    loss = config.recipe().answering
    return loss is not None and loss.from_column


def missing_requirement(config: UnlearnConfig, benchmark: Benchmark) -> str | None:
    """Describe what a run needs that the forget rows lack, as the end of a sentence; None if nothing is missing."""
    recipe = config.recipe()
    paired = needs_preferred_answers(config)
    if not (recipe.reads_labels or paired):  # rows may have to be downloaded, so only for methods that look at them
        return None
    source = benchmark.forget_source_for(paired=paired)
    try:
        rows: Sequence[Example] = load_rows(source).rows
    except FileNotFoundError as error:
        return f"needs rows of {source}, which are not available: {error}"
    if recipe.reads_labels and any(row.forget_spans is None for row in add_labels(rows, config.forget_words)):
        return "needs rows with forget_spans, or a file of words to label (forget_words)"
    if paired and recipe.answering is not None:
        try:
            check_alternates(rows, own=recipe.answering.own_alternates)
        except ValueError:
            return "trains on alternate answers, and these rows have none"
    return None
