"""The package works where modules and functions of POSIX systems do not exist, as on Windows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from atwu import _command

SCRIPT = """
import builtins, importlib, os, pathlib, pkgutil, signal, sys

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
for owner, names in ((os, "fork pread killpg setsid getuid geteuid statvfs sysconf"), (signal, "SIGHUP SIGKILL SIGPIPE")):
    for name in names.split():
        delattr(owner, name)
from atwu._files import write_json
from atwu._command import install_handlers, remove_handlers
from atwu.data import spool
from atwu.modeling.device import keep_freed_memory, peak_memory
from atwu.training.run_folder import RunFolder
folder = pathlib.Path(sys.argv[1])
os.environ["ATWU_CACHE"] = str(folder / "cache")
keep_freed_memory(torch.device("cpu"))
assert peak_memory(torch.device("cpu")) > 0
install_handlers()
remove_handlers()
spool.IN_MEMORY = 2
assert list(spool.store_rows(iter([[1], [2], [3], [4]]))) == [[1], [2], [3], [4]]
left = folder / ".written.json.0123.tmp"
left.write_text("half")
left.with_name(".written.json.0123.lock.tmp").touch()
write_json(folder / "written.json", {"written": True})
with RunFolder(folder / "run").alone():
    assert (folder / "run.incomplete").is_dir()
print(count)
"""
SOURCES = sorted(Path(_command.__file__).parent.rglob("*.py"))


def test_every_module_is_imported_and_files_are_written_without_posix_modules(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "written.json"]
    assert (tmp_path / "written.json").read_text(encoding="utf-8")


def _opens_text_in_the_system_encoding(call: ast.Call) -> bool:
    """Whether a call reads or writes text in the encoding of the machine, which is not UTF-8 on Windows."""
    named = {keyword.arg for keyword in call.keywords}
    match call.func:
        case ast.Attribute(attr="read_text"):
            return "encoding" not in named and not call.args
        case ast.Attribute(attr="write_text"):
            return "encoding" not in named
        case ast.Attribute(attr="open") if all(isinstance(argument, ast.Constant) for argument in call.args):
            mode = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
            return "encoding" not in named and "b" not in str(mode[:1])
    return False


def test_text_is_read_and_written_as_utf8():
    named = [
        f"{path.name}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _opens_text_in_the_system_encoding(node)
    ]
    assert named == []


@pytest.mark.parametrize(
    ("system", "line"),
    [("posix", r"atwu chat 'C:\my model' --about 'Orla Venn'"), ("nt", r'atwu chat "C:\my model" --about "Orla Venn"')],
)
def test_a_suggested_command_is_quoted_for_the_shell_of_the_system(system, line, monkeypatch):
    monkeypatch.setattr(_command.os, "name", system)
    assert _command.command_line(["atwu", "chat", r"C:\my model", "--about", "Orla Venn"]) == line
