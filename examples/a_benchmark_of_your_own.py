"""A custom benchmark in one file: where towns lie, to be forgotten for one country and kept for another.

`python examples/a_benchmark_of_your_own.py study run headline --setting SETTING.yaml` with `benchmark: towns` in the setting
runs a study on it; its rows, such as `towns:forget`, work in every command. Installed packages register it as an entry
point: group `atwu.benchmarks`, `towns = "module:TOWNS"`.
"""

from dataclasses import replace

from atwu import BenchmarkEntry, Example, LoadedRows, OwnRows, load_benchmark, register_benchmark

RIVERS = {
    "forget": {"Kelbury": "the Ost", "Selmouth": "the Sel", "Brackwater": "the Tarn", "Ardale": "the Wend"},
    "retain": {"Norholm": "the Lyr", "Fenwick": "the Mire", "Stonebay": "the Galt", "Oxley": "the Brent"},
}


def rows(name):
    """Rows of `towns:forget` or `towns:retain`."""
    split = name.partition(":")[2]
    if split not in RIVERS:
        raise ValueError(f"{name!r} is not towns:forget or towns:retain.")
    pairs = (
        Example.from_qa(f"On which river does {town} lie?", f"{town} lies on {river}.", subject=town)
        for town, river in RIVERS[split].items()
    )
    return LoadedRows(tuple(pairs), name)


def load(name):
    """The benchmark: both splits are trained on and evaluated."""
    return replace(load_benchmark(OwnRows("towns:forget", "towns:retain")), name=name)


TOWNS = register_benchmark(
    BenchmarkEntry(("towns",), load, "towns:SPLIT", rows, "4 forget, 4 retain rows", "MIT", "where towns lie")
)


if __name__ == "__main__":
    from atwu.cli import main

    main()
