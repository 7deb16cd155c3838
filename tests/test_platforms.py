"""The package can be imported where modules of POSIX systems do not exist, as on Windows."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import builtins, importlib, pkgutil, sys

plain_import = builtins.__import__

def import_without(name, globals=None, *rest, **more):
    importer = str((globals or {}).get("__name__"))
    if name in ("fcntl", "resource") and importer.split(".")[0] == "atwu":  # libraries have their own ways
        raise ImportError(name)
    return plain_import(name, globals, *rest, **more)

builtins.__import__ = import_without
import torch
import atwu
count = 0
for module in pkgutil.walk_packages(atwu.__path__, "atwu."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        count += 1
from atwu.modeling.device import keep_freed_memory, peak_memory
from atwu._files import write_json
keep_freed_memory(torch.device("cpu"))
assert peak_memory(torch.device("cpu")) > 0
write_json(sys.argv[1], {"written": True})
print(count)
"""


def test_every_module_is_imported_and_files_are_written_without_posix_modules(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "written.json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 200
    assert (tmp_path / "written.json").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["written.json"]
