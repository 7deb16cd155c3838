"""Every script with options starts."""

from __future__ import annotations

from pathlib import Path

from tests.commands import run_command

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("scripts/*.py")]
    if "ArgumentParser(" in path.read_text(encoding="utf-8") or path.name == "__main__.py"
)
RUN = """
import os, runpy, sys
import matplotlib.pyplot  # once for all scripts
failed = []
for script in sys.argv[1:]:
    print(f"== {script}", flush=True)
    if not (child := os.fork()):
        sys.argv, sys.path[0] = [script, "--help"], os.path.dirname(script)
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:  # by --help; the interpreter's own end would take two seconds
            sys.stdout.flush()
            os._exit(end.code or 0)
        os._exit(1)
    failed += [script] if os.waitpid(child, 0)[1] else []
sys.exit(" ".join(failed) or 0)
"""


def test_every_script_starts() -> None:
    done = run_command(SCRIPTS, code=RUN, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("usage:") == len(SCRIPTS)
