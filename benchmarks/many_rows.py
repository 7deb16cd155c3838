"""Measure a run with many rows: processor time of checking, encoding, weighting and training, and memory.

    OMP_NUM_THREADS=1 python benchmarks/many_rows.py 30000 100000 1000000

The rows are questions and answers of random words, about 110 tokens each, in a Parquet file. The run is SatGA with rarity
weights, which count every token of every row, for three steps of the model of `people-tiny`, which is trained if not cached.
Each number of rows is measured in its own process.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from step_implementations import elsewhere

FORMAT = "{:>9} {:>10} {:>10} {:>9} {:>10}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="+", help="how many, ascending")
    counts = parser.parse_args().rows
    print(FORMAT.format("rows", "file", "processor", "wall", "peak"), flush=True)
    seconds = []
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            elsewhere(write, count, path)
            processor, wall, peak = elsewhere(run, path)
            size = path.stat().st_size / 1e6
        seconds.append(processor)
        print(
            FORMAT.format(count, f"{size:.0f} MB", f"{processor:.0f} s", f"{wall:.0f} s", f"{peak:.0f} MB"), flush=True
        )
    if len(seconds) > 1:
        slope = math.log(seconds[-1] / seconds[-2]) / math.log(counts[-1] / counts[-2])
        print(f"exponent of the processor's time between the last two: {slope:.2f}")


def run(path: Path) -> tuple[float, float, float]:
    """Return processor seconds, wall-clock seconds, and peak memory in MB including libraries."""
    from atwu.experiments.benchmark_settings import find_setting
    from atwu.experiments.study_models import prepare_models
    from atwu.training.config import UnlearnConfig
    from atwu.training.unlearn_run import ModelSource, run_unlearn

    target = prepare_models(find_setting("people-tiny")).target
    quiet = {"save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    config = UnlearnConfig(method="satga", weighting="rarity", learning_rate=1e-5, max_steps=3, **quiet)
    begin = time.time(), time.process_time()
    rows = {"forget": str(path), "retain": "people:small:retain"}
    run_unlearn(ModelSource(model=str(target)), config, **rows, output=path.parent / "run")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return time.process_time() - begin[1], time.time() - begin[0], peak


def write(count: int, path: Path) -> None:
    """Write the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    drawn = random.Random(0)
    words = ["".join(drawn.choices("abcdefghijklmnoprstuvwz", k=drawn.randint(2, 9))) for _ in range(20_000)]

    def records() -> Iterator[dict[str, str]]:
        for number in range(count):
            question, answer = (" ".join(drawn.choices(words, k=length)) for length in (6, 14))
            yield {
                "question": f"What is {question} {number}?",
                "answer": f"It is {answer}.",
                "subject": f"{number // 20}",
            }

    schema = pa.schema([(name, pa.string()) for name in ("question", "answer", "subject")])
    with pq.ParquetWriter(path, schema) as writer:
        batch = []
        for record in records():
            batch.append(record)
            if len(batch) == 20_000:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema))


if __name__ == "__main__":
    main()
