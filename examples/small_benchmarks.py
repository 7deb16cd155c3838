"""Invented rows in the shape of LUME, MUSE, WMDP and KnowUnDo, to try these benchmarks without their data.

    python examples/small_benchmarks.py
    export ATWU_DATA=small-benchmarks
    atwu study run headline --setting lume-tiny --only npo --seeds 1

and likewise with muse-tiny, knowundo-tiny and small-benchmarks/wmdp.yaml (with its own questions, extra `lm-eval`).
"""

import json
from pathlib import Path

from atwu.benchmarks.people_rows import people

FOLDER = Path("small-benchmarks").resolve()
DATA = people("tiny")
SETS = {"forget": DATA.forget, "retain": DATA.retain, "holdout": DATA.holdout}
TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {file}}}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: 0
metric_list: [{{metric: acc}}]
"""


def write(name, rows):
    path = FOLDER / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def texts(rows):
    """One text about each person."""
    return {
        who: " ".join(row.answer for row in rows if row.subject == who)
        for who in dict.fromkeys(r.subject for r in rows)
    }


def halves(text):
    words = text.split()
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def lume(rows):
    for number, (who, text) in enumerate(list(texts(rows).items())[:3], start=1):
        begin, rest = halves(text)
        about = {"task": f"Task{number}"}
        yield about | {"id": f"{who}sc1", "input": begin, "output": rest}
        for index, row in enumerate(row for row in rows if row.subject == who):
            yield about | {"id": f"{who}qa{index}", "input": row.question, "output": row.answer}


for split in ("forget", "retain"):
    rows = SETS[split]
    asked = [{"question": row.question, "answer": row.answer} for row in rows]
    choices = [{"question": row.question, "choices": [row.answer, *row.wrong_answers[:3]]} for row in rows]
    write(f"lume/{split}", lume(rows))
    write(f"muse-news/knowmem/{split}_qa", asked[2:])
    write(f"muse-news/knowmem/{split}_qa_icl", asked[:2])
    write(f"wmdp/cyber-{split}-corpus", [{"text": text} for text in texts(rows).values()])
    pairs = [{"text": row.question, "labels": row.answer} for row in rows]
    name = {"forget": "unlearn", "retain": "retention"}[split]
    write(f"knowundo/privacy/{name}_train", pairs[::2])
    write(f"knowundo/privacy/{name}_val", pairs[1::2])
    task = {"forget": "wmdp_cyber", "retain": "mmlu"}[split]
    write(f"tasks/{task}", choices)
    (FOLDER / f"tasks/{task}.yaml").write_text(TASK.format(name=task, file=FOLDER / f"tasks/{task}.jsonl"))
for split, rows in SETS.items():
    found = [{"text": text} for text in texts(rows).values()]
    write(f"muse-news/privleak/{split}", found)
    for table in {"retain": ("retain1", "retain2")}.get(split, (split,)):
        write(f"muse-news/raw/{table}", found)
for split, table in {"forget": "member", "holdout": "nonmember"}.items():
    write(f"lume/{table}", [{"document": text} for text in texts(SETS[split]).values()])
write(
    "muse-news/verbmem/forget",
    [{"prompt": begin, "gt": rest} for begin, rest in map(halves, texts(DATA.forget).values())],
)
removed = [{"text": text} for text in texts(DATA.forget).values()]
for fold in range(1, 5):
    write(f"muse-news/scal/forget_{fold}", removed[:fold])
    write(f"muse-news/sust/forget_{fold}", removed[fold - 1 : fold])
(FOLDER / "wmdp.yaml").write_text(f"like: wmdp-tiny\nevaluation: {{task_folder: {FOLDER / 'tasks'}}}\n")
