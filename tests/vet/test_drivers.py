"""The drivers that run inside: imports, calls and phase marks, here on code of our own and without a world."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aboveboard.vet.drivers

DRIVERS = Path(aboveboard.vet.drivers.__file__).parent

TOOL = """\
import datetime, json, sys, time
def paths(source, target): open(target, "w").write(open(source).read().upper())
def text(content): return content.upper()
def size(content): return {"kind": type(content).__name__, "length": len(content)}
def fail(source, target): raise ValueError("no")
def main():
    print(sys.argv)
    return 3
def years(content):
    return " ".join(str(y) for y in (datetime.date.today().year, datetime.datetime.now().year, time.gmtime().tm_year))
"""


@pytest.fixture
def drive(tmp_path):
    (tmp_path / "tool.py").write_text(TOOL)
    (tmp_path / "in").write_text('{"a": "b"}')
    marks = tmp_path / "marks"
    marks.mkdir()

    def run(driver=("run.py",), **spec):
        base = {
            "mark": f"{marks}/",
            "modules": ["tool"],
            "path": [str(tmp_path)],
            "input": str(tmp_path / "in"),
            "output": str(tmp_path / "out"),
            "argv": None,
            "pass": "paths",
        }
        command = [sys.executable] if driver[0].endswith(".py") else ["node"]
        return subprocess.run(
            [*command, str(DRIVERS / driver[0]), json.dumps(base | spec)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_importing_every_module_succeeds_when_one_does(drive):
    assert drive(mode="import").returncode == 0
    assert drive(mode="import", modules=["tool", "missing"]).returncode == 0
    failed = drive(mode="import", modules=["missing"])
    assert failed.returncode == 1
    assert "ModuleNotFoundError" in failed.stderr


@pytest.mark.parametrize(
    ("way", "entry", "output"),
    [
        ("paths", "tool:paths", '{"A": "B"}'),
        ("text", "tool:text", '{"A": "B"}'),
        ("bytes", "tool:size", {"kind": "bytes", "length": 10}),
        ("json", "tool:size", {"kind": "dict", "length": 1}),
    ],
)
def test_an_entry_gets_what_was_asked_for_and_its_result_is_the_output(drive, tmp_path, way, entry, output):
    done = drive(mode="call", entry=entry, **{"pass": way})
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out").read_text()
    assert (json.loads(text) if isinstance(output, dict) else text) == output


def test_an_entry_with_arguments_is_called_as_a_program(drive):
    done = drive(mode="call", entry="tool:main", argv=["-x", "y"])
    assert (done.returncode, done.stdout) == (3, "['tool', '-x', 'y']\n")


def test_an_adapter_gets_the_module_and_both_paths(drive, tmp_path):
    (tmp_path / "adapter.py").write_text("def run(module, source, target): return module.__name__ + source[-3:]")
    done = drive(mode="call", adapter=str(tmp_path / "adapter.py"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "tool/in"


@pytest.mark.parametrize("entry", ["tool:fail", "tool:missing", "missing:f", "tool:json.__name__"])
def test_a_call_that_fails_says_so(drive, tmp_path, entry):
    done = drive(mode="call", entry=entry)
    assert done.returncode != 0
    assert done.stderr
    assert not (tmp_path / "out").exists()


def test_the_clock_is_shifted_for_python_code(drive, tmp_path):
    import datetime as dt

    assert drive(mode="call", entry="tool:years", shift=400 * 86_400, **{"pass": "text"}).returncode == 0
    expected = (dt.datetime.now(dt.UTC) + dt.timedelta(days=400)).year
    assert set((tmp_path / "out").read_text().split()) == {str(expected)}


def test_a_script_runs_as_main_with_its_own_folder_on_the_path(drive, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "helper.py").write_text("X = 1")
    (tmp_path / "s" / "go.py").write_text("import helper, sys\nprint(__name__, sys.argv[1:])")
    done = drive(mode="call", script=str(tmp_path / "s" / "go.py"), argv=["a"])
    assert done.stdout == "__main__ ['a']\n", done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize(
    ("package", "source"),
    [
        ('{"main": "x.js"}', "module.exports = (t) => t.toUpperCase()"),
        ('{"type": "module", "main": "x.js"}', "export default async (t) => t.toUpperCase()"),
    ],
)
def test_the_node_driver_calls_a_package_of_either_kind(drive, tmp_path, package, source):
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "package.json").write_text(package)
    (folder / "x.js").write_text(source)
    done = drive(("run.cjs",), mode="call", folder=str(folder), entry="", **{"pass": "text"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == '{"A": "B"}'
