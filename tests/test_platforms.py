"""The package works where modules and functions of POSIX systems do not exist, as on Windows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from atwu import _command

SCRIPT = """
import os, pathlib, signal, sys
import torch
from atwu._command import install_handlers, remove_handlers
from atwu._files import write_json
from atwu.data import spool
from atwu.modeling.device import keep_freed_memory, peak_memory
from atwu.training.run_folder import RunFolder

sys.modules["resource"] = None  # importing it is an error
for owner, names in ((os, "fork pread killpg setsid getuid geteuid statvfs sysconf"), (signal, "SIGHUP SIGKILL SIGPIPE")):
    for name in names.split():
        vars(owner).pop(name, None)
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
"""
SOURCES = sorted(Path(_command.__file__).parent.rglob("*.py"))
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


def test_files_are_written_without_posix_modules(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "written.json"]
    assert (tmp_path / "written.json").read_text(encoding="utf-8")


def test_no_module_imports_posix_modules_at_its_top():
    """A function may, if it knows a way without."""
    imported = set()
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                imported |= {(path.name, alias.name) for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                imported.add((path.name, node.module))
    assert ("_command.py", "signal") in imported
    assert {(file, name) for file, name in imported if name in POSIX_MODULES} == set()


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
