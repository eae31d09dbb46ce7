"""Files in a world: what the candidate gets is what the kernel would have given, and the record says what it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aboveboard.contract import Contract
from aboveboard.world import World

from . import odd_calls

if TYPE_CHECKING:
    from aboveboard.evidence import Event

pytestmark = pytest.mark.usefixtures("world_available")
PROGRAM = Path(odd_calls.__file__)
HOME = "/home/dev"

BY_DESIGN = {
    "noatime_on_a_foreign_file": "one user id exists inside, so nothing inside is anybody else's",
    "modes_that_forbid/foreign chmod": "the synthetic /etc is the candidate's own; the record tells of every change",
    "modes_that_forbid/foreign write": "the same",
    "modes_that_forbid/foreign unlink": "the same",
    "modes_that_forbid/foreign mkdir": "the same",
    "modes_that_forbid/give away": "EINVAL instead of EPERM: the other id does not exist",
    "sockets_used_wrongly/bind foreign": "every address is local: that is how the sink answers for all of them",
}
"""Where a world differs from the machine outside, and why that is meant."""


@cache
def native() -> dict[str, Any]:
    """The outcomes outside, as an ordinary user."""
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM)], stdin=subprocess.DEVNULL, capture_output=True, timeout=110, check=True
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@cache
def inside() -> tuple[dict[str, Any], list[Event]]:
    """The outcomes inside, and the events."""
    with World() as world:
        world.put(f"{HOME}/odd_calls.py", PROGRAM)
        done = world.run([sys.executable, "-I", f"{HOME}/odd_calls.py"], timeout=110)
        assert done.returncode == 0, done.stderr
        events = list(world.close().events())
    return json.loads(done.stdout), events


def differences(where: str, expected: object, found: object) -> dict[str, tuple[object, object]]:
    """Paths into two outcomes at which they differ."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        parts = [(f"{where}/{key}", expected[key], found[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        parts = [(f"{where}/{n}", *pair) for n, pair in enumerate(zip(expected, found, strict=True))]
    else:
        return {} if expected == found else {where: (expected, found)}
    return {path: pair for part in parts for path, pair in differences(*part).items()}


# --- the same as outside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", odd_calls.CALLS)
def test_given_an_odd_call_when_made_in_a_world_then_it_is_answered_as_outside(name: str) -> None:
    outside = native()[name]
    assert "hangs" not in str(outside)
    assert "died" not in str(outside)
    found = differences(name, outside, inside()[0][name])
    assert {path: pair for path, pair in found.items() if path not in BY_DESIGN} == {}


def test_given_the_list_of_meant_differences_when_compared_then_none_of_it_is_out_of_date() -> None:
    found = {p for name in odd_calls.CALLS for p in differences(name, native()[name], inside()[0][name])}
    assert set(BY_DESIGN) - found == set()


def test_given_hundreds_of_odd_calls_when_recorded_then_the_supervisor_was_never_at_a_loss() -> None:
    limits = [dict(e.data) for e in inside()[1] if e.type == "limit"]
    assert limits == []


# --- what the record says -----------------------------------------------------------------------------------------


def observed(program: str, **options: Any) -> tuple[dict[str, Any], list[Event]]:
    """What a Python program printed as JSON in a fresh world, and the events."""
    with World(**options) as world:
        world.put(f"{HOME}/program.py", program.encode())
        done = world.run([sys.executable, "-I", "-B", f"{HOME}/program.py"], cwd=HOME, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout or b"null"), list(world.close().events())


def named(events: list[Event], path: str) -> list[Event]:
    return [e for e in events if path in (e.text("n"), e.text("x"), e.text("to"), e.text("tox"))]


def test_given_a_relative_name_when_opened_then_the_resolved_path_and_the_object_are_recorded() -> None:
    _, events = observed("import os; os.mkdir('d'); os.symlink('d', 'l'); os.close(os.open('l/../d/f', 65))")
    (opened,) = named(events, f"{HOME}/d/f")[:1]
    assert (opened.type, opened.text("n"), opened.text("a"), opened.result) == ("open", "l/../d/f", "wc", "ok")
    device, inode = opened.data["v"]  # type: ignore[misc]
    assert device > 0
    assert inode > 0


def test_given_names_that_are_no_text_when_used_then_the_record_gives_the_same_bytes_back() -> None:
    _, events = observed(
        "import os; os.close(os.open(b'/tmp/\\xff\\n\"', 65)); os.rename(b'/tmp/\\xff\\n\"', b'/tmp/\\xfe')"
    )
    assert named(events, os.fsdecode(b'/tmp/\xff\n"'))[0].type == "open"
    (renamed,) = named(events, os.fsdecode(b"/tmp/\xfe"))[:1]
    assert (renamed.type, renamed.text("n")) == ("fs", os.fsdecode(b'/tmp/\xff\n"'))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("os.mkdir('gone/x')", "gone/x"),
        ("os.unlink('gone/x')", "gone/x"),
        ("os.rename('gone/x', 'y')", "gone/x"),
        ("os.open('gone/x', 0)", "gone/x"),
        ("os.execv('gone/x', ['x'])", "gone/x"),
        ("os.mkdir('x' * 300)", "x" * 300),
    ],
)
def test_given_a_call_that_fails_when_recorded_then_it_is_still_said_what_was_named(call: str, name: str) -> None:
    _, events = observed(f"import os\ntry:\n    {call}\nexcept OSError: pass")
    assert [e.result for e in named(events, name) if e.result.startswith("E")]


def test_given_a_fifo_when_both_ends_wait_for_each_other_then_both_opens_are_recorded_as_done() -> None:
    program = (
        "import os\nos.mkfifo('p')\n"
        "if os.fork() == 0:\n    os.write(os.open('p', os.O_WRONLY), b'x'); os._exit(0)\n"
        "os.read(os.open('p', os.O_RDONLY), 1)\nos.wait()\n"
    )
    _, events = observed(program)
    opens = [e for e in named(events, "p") if e.type == "open"]
    assert sorted(e.text("a") for e in opens) == ["r", "w"]
    assert {(e.result, e.text("k"), e.text("x")) for e in opens} == {("ok", "fifo", f"{HOME}/p")}
    assert len({e.pid for e in opens}) == 2


# --- what is not given out ----------------------------------------------------------------------------------------

REFUSED = """
import errno, json, os, sys
def attempt(path, flags):
    try:
        os.close(os.open(path, flags))
    except OSError as e:
        return errno.errorcode[e.errno]
    return "given"
other = os.fork()
if other == 0:
    os.read(0, 1)
    os._exit(0)
print(json.dumps({
    "own memory for writing": attempt("/proc/self/mem", os.O_RDWR),
    "own memory by number": attempt(f"/proc/{os.getpid()}/mem", os.O_WRONLY),
    "own memory by a thread": attempt("/proc/thread-self/mem", os.O_RDWR),
    "own memory by a link": (os.symlink("/proc/self/mem", "link"), attempt("link", os.O_RDWR))[1],
    "own memory by a directory": attempt(f"/proc/self/task/{os.getpid()}/mem", os.O_RDWR),
    "memory of a child": attempt(f"/proc/{other}/mem", os.O_RDONLY),
    "name of a child": attempt(f"/proc/{other}/comm", os.O_RDONLY),
    "init memory": attempt("/proc/1/mem", os.O_RDONLY),
    "init environment": attempt("/proc/1/environ", os.O_RDONLY),
    "init root": attempt("/proc/1/root/etc/passwd", os.O_RDONLY),
    "init working directory": attempt("/proc/1/cwd", os.O_RDONLY),
    "init descriptors": attempt("/proc/1/fd/3", os.O_RDONLY),
    "init map": attempt("/proc/1/maps", os.O_RDONLY),
    "init name": attempt("/proc/1/comm", os.O_RDONLY),
    "kernel switch": attempt("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "trigger": attempt("/proc/sysrq-trigger", os.O_WRONLY),
    "kernel memory": attempt("/proc/kcore", os.O_RDONLY),
    "user map": attempt("/proc/self/uid_map", os.O_WRONLY),
    "own environment": attempt("/proc/self/environ", os.O_RDONLY),
}))
os.kill(other, 9)
"""


def test_given_files_of_procfs_when_they_would_lead_out_or_around_then_none_is_given() -> None:
    answers, events = observed(REFUSED)
    given = {name for name, answer in answers.items() if answer == "given"}
    assert given == {"name of a child", "init name", "own environment"}
    escapes = [e for e in events if e.type == "escape" and "mem" in e.text("d")]
    assert len(escapes) >= 5


@pytest.mark.parametrize("call", ["os.chroot('/tmp')", "os.chroot('.')"])
def test_given_chroot_when_called_then_it_is_refused_and_recorded_with_its_path(call: str) -> None:
    answer, events = observed(
        f"import errno, json, os\ntry:\n    {call}\nexcept OSError as e: print(json.dumps(errno.errorcode[e.errno]))"
    )
    assert answer == "EPERM"
    assert [(e.syscall, e.result) for e in events if e.type == "escape"] == [("chroot", "denied")]
    assert [e.text("d") for e in events if e.type == "escape"] == [call[11:-2]]


# --- blocking -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blocked() -> dict[str, Any]:
    """The outcomes in a world that enforces a contract, in a place where the contract allows everything."""
    contract = Contract.parse(b'[contract]\nread = ["**"]\nwrite = ["**"]\nmetadata = ["**"]\nprograms = ["*"]\n')
    with World(mode="block", contract=contract) as world:
        world.put(f"{HOME}/odd_calls.py", PROGRAM)
        done = world.run([sys.executable, "-I", f"{HOME}/odd_calls.py"], timeout=110)
        assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


IN_BLOCK_MODE = {
    "openat2_forms": "restricted resolution is ENOSYS: programs fall back to openat",
    "programs_that_cannot_run": "programs from /tmp are refused by Landlock before the kernel looks at them",
    "programs_that_are_running": "the same",
    "modes_that_forbid": "see above",
}


@pytest.mark.parametrize("name", [n for n in odd_calls.CALLS if n not in IN_BLOCK_MODE])
def test_given_an_odd_call_that_is_allowed_when_made_in_block_mode_then_it_is_answered_as_outside(
    blocked: dict[str, Any], name: str
) -> None:
    found = differences(name, native()[name], blocked[name])
    assert {path: pair for path, pair in found.items() if path not in BY_DESIGN} == {}
