"""Inputs of the package, how each is read, and which wrong values must never be accepted."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random
from typing import Any

from atwu._file_reading import prefix_errors
from atwu.benchmarks.sources import load_rows
from atwu.cli.cli_options import parse_command
from atwu.cli.study import StudyRunCommand, TuneCommand, _setting
from atwu.cli.train import FinetuneCommand, UnlearnCommand
from atwu.data.row_parsing import write_rows
from atwu.evaluation.result import EvalResult, read_result
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.study_plan import plan_study
from atwu.experiments.tune_methods import plan_tuning
from atwu.methods.presets import named_preset
from atwu.report.read_records import read_records
from atwu.report.report_records import Records
from atwu.report.table_writers import WRITERS
from atwu.training.config import FinetuneConfig, UnlearnConfig, read_preset
from tests.fuzz.mutate import as_json, as_yaml, changed, damaged
from tests.report.conftest import make_records, write_study

HIDDEN = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad")


@dataclass(frozen=True)
class Target:
    """One kind of input.

    Attributes:
        make: writes a damaged one into a folder and returns its path.
        read: reads it as the package does; raises `AssertionError` if a wrong value was accepted.
        share: relative number of tries; larger for fast inputs.
    """

    make: Callable[[Path, Random], Path]
    read: Callable[[Path], None]
    share: int = 2


def document(name: str, examples: Callable[[], list[Any]], write: Callable[[Any], bytes]) -> Callable[..., Path]:
    """Return a function that writes one of some documents with changed structure, changed bytes, or both."""
    known: list[Any] = []

    def make(folder: Path, random: Random) -> Path:
        if not known:
            known.extend(examples())
        value, kind = random.choice(known), random.random()
        content = write(changed(value, random) if kind < 0.75 else value)
        if kind > 0.7:
            content = damaged(content, random)
        path = folder / name
        path.write_bytes(content)
        return path

    return make


# Rows

ROWS: list[dict[str, Any]] = [
    {"question": "Where was Ada Quill born?", "answer": "She was born in Marr.", "subject": "Ada Quill"},
    {"question": "What is her work?", "answer": "Glass.", "forget_spans": [[0, 5]], "paraphrases": ["Her work?"]},
    {"prompt": "Her name is", "completion": "Ada Quill.", "target_words": [{"word": "Ada", "start": 0, "end": 3}]},
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who is she?"},
            {"role": "assistant", "content": "A glassblower."},
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": "In Marr."},
        ],
        "wrong_answers": ["In Oll.", "At sea."],
        "alternate": "I do not know.",
    },
    {"text": "Ada Quill blows glass in Marr."},
]


def as_lines(rows: Any) -> bytes:
    return b"\n".join(as_json(row) for row in rows) if isinstance(rows, list) else as_json(rows)


def as_csv(rows: Any) -> bytes:
    import csv
    import io

    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in row.items()}
        )
    return out.getvalue().encode("utf-8", "surrogatepass")


def read_rows(path: Path) -> None:
    rows = load_rows(str(path)).rows
    assert rows, "an empty set of rows was accepted"
    for row in rows:
        for text in (row.answer, *(message.content for message in row.messages), *row.paraphrases, *row.wrong_answers):
            assert set(text) - HIDDEN - set(" \t\r\n"), "invisible text was accepted"
            assert "\x00" not in text, "a NUL character was accepted"
        roles = [message.role for message in row.messages]
        turns = roles[1:] if roles[:1] == ["system"] else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2) + ["user"] * (len(turns) % 2), f"roles {roles}"
        assert all(0 <= start < end <= len(row.answer) for start, end in row.forget_spans or ())
    again = path.with_name("again.jsonl")
    write_rows(again, rows)
    assert load_rows(str(again)).rows == rows, "rows differ after writing and reading"


# Settings

SETTINGS: dict[str, Any] = {
    "method": "atwu",
    "learning_rate": 1e-4,
    "num_train_epochs": 3,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "weight_decay": 0.01,
    "warmup_steps": 0.1,
    "max_length": 128,
    "seed": 1,
    "rho": 0.3,
    "beta": 2.0,
    "scorer_every": 2,
    "budget": "soft",
    "lora_r": 4,
    "lora_targets": "q_proj,v_proj",
    "system": "Be brief.",
    "use_cpu": True,
    "save_strategy": "no",
    "max_grad_norm": 1.0,
    "forget_loss": "npo",
}
COUNTS = ("per_device_train_batch_size", "gradient_accumulation_steps", "max_length")


def check_config(config: Any) -> None:
    """Assert that a run with this config could start."""
    for field in fields(config):
        value = getattr(config, field.name, None)
        assert not (isinstance(value, float) and not math.isfinite(value)), f"{field.name} is {value}"
    for name in COUNTS:
        value = getattr(config, name)
        assert type(value) is int, f"{name} is {value!r}"
        assert value >= 1, f"{name} is {value!r}"
    assert type(config.seed) is int, f"seed is {config.seed!r}"
    assert 0 <= config.seed < 2**32, f"seed is {config.seed!r}"
    scores = config.recipe().scores if isinstance(config, UnlearnConfig) else None
    trains_scorer = scores is not None and scores.scorer_procedure != "frozen"
    assert config.learning_rate > 0 or (
        config.learning_rate == 0 and trains_scorer
    )  # a frozen model with a scorer that is trained
    assert config.weight_decay >= 0, f"weight_decay is {config.weight_decay}"
    assert config.warmup_steps >= 0, f"warmup_steps is {config.warmup_steps}"
    assert config.max_grad_norm is None or config.max_grad_norm >= 0, f"max_grad_norm is {config.max_grad_norm}"
    for value in getattr(config, "component_options", {}).values():
        assert not (isinstance(value, float) and not math.isfinite(value))


def read_settings(path: Path) -> None:
    command = parse_command(
        UnlearnCommand,
        ["--model", "m", "--forget", "f.jsonl", "--output", str(path.parent / "out"), "--config", str(path)],
        name="unlearn",
    )
    with prefix_errors(path):
        config = UnlearnConfig(**command.settings)
    config.recipe()
    check_config(config)


def read_finetune(path: Path) -> None:
    words = ["--model", "m", "--data", "f.jsonl", "--output", str(path.parent / "out"), "--config", str(path)]
    command = parse_command(FinetuneCommand, words, name="finetune")
    with prefix_errors(path):
        config = FinetuneConfig(**command.settings)
    check_config(config)


def flags(folder: Path, random: Random) -> Path:
    """Write the arguments of a command line as JSON."""
    words: list[str] = []
    settings = changed(SETTINGS, random)
    for name, value in settings.items() if isinstance(settings, dict) else ():
        text = str(value) if random.random() < 0.7 else json.dumps(value)
        if value is True and random.random() < 0.8:
            words.append(f"--{str(name).replace('_', '-')}")
        elif random.random() < 0.5:
            words.append(f"--{str(name).replace('_', '-')}={text}")
        else:
            words += [f"--{str(name).replace('_', '-')}", text]
    if random.random() < 0.3 and words:
        words[random.randrange(len(words))] = random.choice(
            ("--", "-", "---", "--=", "-x", "--help=", "=", "--lr", "\x00")
        )
    path = folder / "flags.json"
    path.write_text(json.dumps(words))
    return path


def read_flags(path: Path) -> None:
    words = json.loads(path.read_text())
    command = parse_command(
        UnlearnCommand, ["--model", "m", "--forget", "f", "--output", str(path.parent / "out"), *words], name="unlearn"
    )
    check_config(UnlearnConfig(**command.settings))


# Studies, settings, presets

STUDY: dict[str, Any] = {
    "title": "Mine",
    "about": "Rates.",
    "methods": [
        "atwu",
        {"label": "mine", "method": "satga", "weighting": "rarity", "rho": 0.2},
        {"method": "npo", "beta": 0.5},
    ],
    "vary": {"learning_rate": [1e-4, 1e-3], "num_train_epochs": [1, 2]},
    "seeds": {"people-tiny": 1, "default": [1, 2]},
    "setting": "people-tiny",
    "metrics": ["memorization", "rouge"],
    "presets": False,
}
SETTING: dict[str, Any] = {
    "like": "people-tiny",
    "about": "longer",
    "learning_rate": 1e-3,
    "learning_rates": [1e-4, 1e-2],
    "training": {"num_train_epochs": 2, "per_device_train_batch_size": 8},
    "evaluation": {"max_new_tokens": 20},
    "metrics": ["memorization"],
    "seconds": 30.0,
}


def read_a_study(path: Path) -> None:
    planned = plan_study(str(path), output=path.parent / "runs")
    assert 0 < len(planned.runs) <= 10_000, f"{len(planned.runs)} runs"
    for run in planned.runs:
        assert type(run.seed) is int, f"seed {run.seed!r}"
        assert 0 <= run.seed < 2**32, f"seed {run.seed!r}"


def read_setting(path: Path) -> None:
    setting = find_setting(str(path))
    assert 0 < setting.learning_rate < math.inf, f"learning rate {setting.learning_rate}"
    assert 0 <= setting.seconds < math.inf, f"seconds {setting.seconds}"
    with prefix_errors(path):
        plan_study("pretrained", str(path), output=path.parent / "runs")


def presets() -> list[Any]:
    named = (named_preset(name) for name in ("tofu-1b/atwu", "people-small/npo"))
    return [{**preset.options, "about": dict(preset.about)} for preset in named]


def read_both(path: Path) -> None:
    read_settings(path)
    read_preset(path)


def read_set(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace").strip()
    words = ["--method", "atwu", "--setting", "people-tiny", "--set", f"rho={text}"]
    command = parse_command(TuneCommand, words, name="tune")
    tuning = plan_tuning(
        command.method, setting=command.setting, options=dict(_setting(each) for each in command.fixed)
    )
    rho = tuning.variants[0].options["rho"]
    assert 0 < rho < 1, f"rho is {rho}"


def read_seeds(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace").strip()
    parse_command(StudyRunCommand, ["headline", "--seeds", text], name="study run")


def as_text(value: Any) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


# Results and runs


def short(result: EvalResult, rows: int = 3) -> EvalResult:
    """Return the result with few rows, so that damage hits other keys as often as rows."""
    few = {
        name: replace(
            each,
            ids=each.ids[:rows],
            subjects=each.subjects[:rows],
            metrics={metric: values[:rows] for metric, values in each.metrics.items()},
        )
        for name, each in result.rows.items()
    }
    return replace(result, rows=few)


def short_records(labels: tuple[str, ...]) -> Records:
    records = make_records(labels, (0,))
    references = {role: short(result) for role, result in records.references.items()}
    return replace(
        records, references=references, runs=tuple(replace(run, result=short(run.result)) for run in records.runs)
    )


def results() -> list[Any]:
    return [short_records(("atwu",)).runs[0].result.to_json()]


def read_a_result(path: Path) -> None:
    result = read_result(path)
    again = path.with_name("again.json")
    result.write(again)
    assert read_result(again).to_json() == result.to_json(), "the result differs after writing and reading"
    for values in (*result.sets.values(), result.overall):
        for value in values.values():
            assert value.value is None or math.isfinite(value.value)
            assert value.low is None or value.high is None or value.low <= value.high, (
                "an interval has its ends swapped"
            )


_STUDY: list[Path] = []


def study_folder(folder: Path, random: Random) -> Path:
    """Write a finished study with one damaged file."""
    if not _STUDY:
        import atexit
        import tempfile

        place = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        _STUDY.append(write_study(short_records(("atwu", "wga")), place / "study"))
    target = folder / "study"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(_STUDY[0], target)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    path = random.choice([each for each in files if each.name != "eval.json"])
    kind = random.random()
    if kind < 0.1:
        path.unlink()
    elif kind < 0.3:
        path.write_bytes(damaged(path.read_bytes(), random))
    elif path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_bytes(as_lines(changed(lines, random)))
    else:
        path.write_bytes(as_json(changed(json.loads(path.read_text()), random)))
    return target


def read_a_study_folder(path: Path) -> None:
    records = read_records([path])
    form = sorted(WRITERS)[sum((path / "study.json").read_bytes()) % len(WRITERS)]
    text = WRITERS[form](records)
    assert "\x1b" not in text, "an escape character was printed"


TARGETS: Mapping[str, Target] = {
    "rows .jsonl": Target(document("rows.jsonl", lambda: [ROWS[:2], ROWS[2:], ROWS], as_lines), read_rows, share=4),
    "rows .json": Target(document("rows.json", lambda: [ROWS], as_json), read_rows, share=4),
    "rows .csv": Target(document("rows.csv", lambda: [ROWS[:2], ROWS[2:3], ROWS[3:4]], as_csv), read_rows, share=4),
    "settings": Target(document("mine.yaml", lambda: [SETTINGS], as_yaml), read_settings),
    "finetune": Target(
        document(
            "mine.yaml",
            lambda: [{key: value for key, value in SETTINGS.items() if hasattr(FinetuneConfig, key)}],
            as_yaml,
        ),
        read_finetune,
    ),
    "flags": Target(flags, read_flags),
    "study": Target(document("mine.yaml", lambda: [STUDY], as_yaml), read_a_study),
    "setting": Target(document("mine.yaml", lambda: [SETTING], as_yaml), read_setting),
    "preset": Target(document("mine.yaml", presets, as_yaml), read_both),
    "--set": Target(document("value.yaml", lambda: ["0.1", "0.25"], as_text), read_set, share=1),
    "--seeds": Target(document("value.yaml", lambda: ["3", "7"], as_text), read_seeds, share=1),
    "eval.json": Target(document("eval.json", results, as_json), read_a_result),
    "study folder": Target(study_folder, read_a_study_folder, share=1),
}
