"""The code blocks of the documentation, replacements for slow commands, and the folder in which they run."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atwu import load_rows
from tests.micro_models import write_micro
from tests.report.conftest import make_records, write_study

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""Pages of the documentation; their commands are run."""
RECORDED = [*sorted((ROOT / "benchmarks/results").glob("*.md")), ROOT / "theory/README.md"]
"""Pages that say how measurements were made; their commands are read, not run."""
SHELL = (
    "atwu",
    "py-spy",
    "make",
    "pip",
    "python",
    "export",
    "echo",
    "ray",
    "transformers",
    "ATWU_DATA=",
    "OMP_NUM_THREADS=",
)
"""Beginnings of the first line of a block of commands; output is marked as ```text."""
NOT_CODE = ("json", "yaml", "toml", "text", "bibtex")

SUBSTITUTES = (
    (
        r"--(model|compare) (smollm2|MODEL|TARGET)\b",
        r"--\1 target",
        "a model of random weights: what is tested is the way",
    ),
    (r"examples/france.jsonl", "forget.jsonl", "six rows instead of twelve"),
    (r"(atwu unlearn .*)", r"\1 --steps 2 --learning-rate 1e-3", "two steps instead of as many as it takes"),
    (r"(atwu evaluate .*)--all", r"\1--metrics memorization", "the whole panel: tests/cli/test_evaluate_command.py"),
    (r" --figures \S+", "", "drawn in tests/report/test_figures.py"),
    (r"(atwu study run .*)", r"\1 --plan", "what it would do: tests/experiments/study/test_run_study.py does it"),
    (r"--plan --plan", "--plan", "asked for already"),
)
"""Pattern, replacement, and reason; applied to every command in this order."""

ELSEWHERE = {
    r"pip install": "pyproject.toml",
    r"atwu demo": "tests/cli/test_commands.py",
    r"export (ATWU_DATA|OPENAI_API_KEY)": "tests/benchmarks/test_tofu.py",
    r".*(tofu:|rwku|suite:)": "tests/benchmarks/test_benchmarks.py",
    r".*(--probes lume|muse:|wmdp:)": "tests/benchmarks/test_small_benchmarks.py",
    r"python examples/small_benchmarks\.py": "tests/benchmarks/test_small_benchmarks.py",
    r"atwu study run .*--setting (lume|muse|knowundo)-tiny": "tests/benchmarks/test_small_benchmarks.py",
    r"atwu tune": "tests/experiments/tuning/test_tune_command.py",
    r"atwu unlearn --config runs/tune": "tests/methods/test_presets.py",
    r"atwu study run .*(--presets|--cluster|\.yaml)": "tests/experiments/test_executors.py",
    r"atwu rows (paraphrases|labels)": "tests/cli/test_judge_command.py",
    r"atwu (ask|unlearn .*--forget rows\.jsonl)": "tests/cli/test_ask_command.py",
    r"atwu study compare": "tests/experiments/study/test_compare.py",
    r"atwu evaluate .*--task ": "tests/evaluation/metrics/test_tasks.py",
    r"atwu (compare|report) benchmarks/results": "tests/report/test_recorded_files.py",
    r"atwu report \S+ --output report\.html": "tests/cli/test_report_command.py",
    r"atwu evaluate --model atwu-demo": "tests/cli/test_evaluate_command.py",
    r"ray (start|stop)": "tests/experiments/test_executors.py",
    r"python examples/an?_(metric|attack)_of_your_own\.py": "tests/evaluation/test_register.py",
    r"python examples/a_benchmark_of_your_own\.py": "tests/benchmarks/test_benchmarks.py",
    r"python examples/a_method_of_your_own\.py": "tests/methods/test_own_method.py",
    r"python examples/a_weighting_with_a_table\.py": "tests/methods/test_weighting_with_a_table.py",
    r"atwu (evaluate|judge|study run) .*--judge openai": "tests/cli/test_judge_command.py",
    r"atwu finetune --scratch": "tests/cli/test_commands.py",
    r"atwu unlearn .*(--about|questions\.txt)": "tests/request/test_asked_requests.py",
    r"atwu unlearn .*--lora-r": "tests/cli/test_adapters_command.py",
    r"atwu unlearn --model (?:first|unlearned)": "tests/request/test_earlier_requests.py",
    r"atwu evidence (unlearned|first)": "tests/request/test_evidence.py",
    r"atwu export (unlearned|first)": "tests/exporting/test_export.py",
    r"atwu report .* --output board": "tests/report/test_board.py",
    r"(transformers|vllm|llama-server) |atwu evaluate .*--model-url": "tests/judge/test_serve.py",
}
"""Commands that need more than a test has (data, servers, machines, minutes), and the file that covers them."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """File and line of the block."""
        return f"{self.page.name}:{self.line}"

    @property
    def kind(self) -> str:
        """`python`, `shell` or `other` (output and data); empty for blocks that are not to be run."""
        if self.language == "python":
            return "python"
        if self.language in ("", "bash"):
            return "shell" if self.text.startswith(SHELL) else ""
        return "other" if self.language in NOT_CODE else ""

    def commands(self) -> list[str]:
        """Return its shell commands, without comments, continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        return [shlex.join(words) for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def snippets(page: Path) -> Iterator[Snippet]:
    """Every fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```", text, flags=re.S | re.M):
        yield Snippet(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


def elsewhere(command: str) -> str | None:
    """Return the file that covers a command which is not run; None for one that is run."""
    return next((file for pattern, file in ELSEWHERE.items() if re.match(pattern, command)), None)


def substituted(command: str) -> str:
    """A command at the size of a test."""
    for pattern, small, _ in SUBSTITUTES:
        command = re.sub(pattern, small, command)
    return command


def furnish(folder: Path, commands: list[str]) -> None:
    """Put into a folder what commands read and do not make themselves."""
    text = " ".join(commands)
    made = set(re.findall(r"(?:--output|--html|-o) (\S+)", text))

    def wanted(name: str) -> bool:
        return name not in made and re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", text) is not None

    for name in ("target", "retain-only", "unlearned", "atwu-demo/atwu"):
        if wanted(name):
            write_micro(folder / name)
    for name in ("forget", "retain", "holdout", "mine", "faq", "first"):
        if wanted(f"{name}.jsonl"):
            split = {"mine": "forget", "first": "forget", "faq": "retain"}.get(name, name)
            rows = load_rows(f"people:tiny:{split}:6").rows
            lines = (json.dumps({"question": row.question, "answer": row.answer}) for row in rows)
            (folder / f"{name}.jsonl").write_text("\n".join(lines))
    if "runs/headline-people-small" in text:
        write_study(make_records(seeds=[0]), folder / "runs" / "headline-people-small")
    records = make_records(seeds=[0])
    rows = {"rows": {}, "dtype": "float32", "backend": "transformers"}
    results = [*records.references.values(), *(run.result for run in records.runs)]
    for name in re.findall(r"\S*eval(?:\.original)?\.json", text):
        if name not in made:
            result = results.pop(0) if name != "eval.original.json" else records.references["original"]
            model = Path(name).parent.name or result.model
            result = dataclasses.replace(result, model=model, settings={**result.settings, **rows})
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            result.write(folder / name)
