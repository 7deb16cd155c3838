"""Commands to kill, with small models of the built-in benchmark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from atwu.benchmarks.people_rows import people
from tests.micro_models import write_models

CONCURRENCY = 2
"""Concurrent judge calls; those in flight are lost by a kill."""


@dataclass(frozen=True, slots=True)
class Target:
    """A command that runs in its own folder, which contains output and cache."""

    arguments: tuple[str, ...]
    kept: str
    """Files that exist as soon as there is work to resume from."""


def prepare(place: Path, judge: str) -> dict[str, Target]:
    """Write models, rows and settings; return the commands by name.

    Args:
        judge: URL of a judge server.
    """
    place.mkdir(parents=True, exist_ok=True)
    rows = people("tiny")
    write_models(place / "model")
    for name, few in (("forget", rows.forget), ("retain", rows.retain), ("holdout", rows.holdout)):
        lines = [json.dumps({"question": row.question, "answer": row.answer}) for row in few[:8]]
        (place / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    cases = [
        {"question": f"Who is no. {n}?", "reference": "Orla.", "answer": "Orla.", "label": True} for n in range(24)
    ]
    (place / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    training = {"max_steps": 3, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
    target = {"shape": "people-tiny", "training": {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}}
    own = {"forget": str(place / "forget.jsonl"), "retain": str(place / "retain.jsonl")}
    rates = {"learning_rate": 1e-3, "learning_rates": [1e-4, 1e-2]}
    search = {"benchmark": own, "target": str(place / "model"), "training": training | {"save_strategy": "no"}, **rates}
    (place / "micro.yaml").write_text(yaml.safe_dump(search))
    setting = {"like": "people-tiny", "name": "micro", "target": target, "training": training}
    study = {"methods": ["wga", "atwu"], "seeds": 2, "metrics": ["memorization"], "setting": setting}
    (place / "study.yaml").write_text(yaml.safe_dump(study))
    judging = (
        "--judge",
        "openai:m",
        "--judge-url",
        judge,
        "--judge-concurrency",
        str(CONCURRENCY),
        "--output",
        "out.json",
    )
    inside = ("--forget", f"{place}/forget.jsonl", "--retain", f"{place}/retain.jsonl")
    return {
        "unlearn": Target(
            (
                *("unlearn", "--model", f"{place}/model", *inside, "--output", "out", "--method", "atwu"),
                *("--steps", "12", "--batch-size", "4", "--lr", "1e-3", "--scorer-every", "2", "--save-steps", "3"),
                *("--holdout", f"{place}/holdout.jsonl", "--disable-tqdm"),
            ),
            "out.incomplete/checkpoint-*",
        ),
        "finetune": Target(
            (
                *("finetune", "--model", f"{place}/model", "--data", f"{place}/retain.jsonl", "--output", "out"),
                *("--max-steps", "12", "--per-device-train-batch-size", "4", "--learning-rate", "1e-3"),
                *("--save-strategy", "steps", "--save-steps", "3", "--use-cpu", "--disable-tqdm"),
            ),
            "out.incomplete/checkpoint-*",
        ),
        "evaluate": Target(
            (
                *("evaluate", "--model", f"{place}/model", *inside, "--metrics", "memorization,rouge,judge"),
                *("--paraphrases", "1", "--max-new-tokens", "8", "--batch-tokens", "256", "--device", "cpu", *judging),
            ),
            "cache/replies.sqlite",
        ),
        **{
            name: Target(
                (
                    *(
                        "tune",
                        "--method",
                        "wga",
                        "--setting",
                        f"{place}/micro.yaml",
                        "--trials",
                        "4",
                        "--output",
                        "out",
                    ),
                    *storage,
                ),
                "out/trials/**/eval.json",
            )
            for name, storage in (("tune", ()), ("tune, in a journal", ("--storage", "search.journal")))
        },
        **{
            f"study, {number} at once": Target(
                ("study", "run", f"{place}/study.yaml", "--output", "out", "--processes", str(number)),
                "out/runs/*/eval.json",
            )
            for number in (1, 2)
        },
        "judge": Target(("judge", "agreement", "--data", f"{place}/cases.jsonl", *judging), "cache/replies.sqlite"),
    }
