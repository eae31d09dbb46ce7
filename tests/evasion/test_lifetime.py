"""No process of a run outlives it, whoever ends first and however the child was made."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aboveboard.errors import AboveboardError
from aboveboard.world import Process, World

from . import harness

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("world_available")
SLEEPERS = {
    "double fork and setsid": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(300)
    os._exit(0)
os.wait()
time.sleep(300)
""",
    "plain child": """
import os, time
os.fork()
time.sleep(300)
""",
    "child that ignores signals": """
import os, signal, time
for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
    signal.signal(number, signal.SIG_IGN)
os.fork()
time.sleep(300)
""",
    "stopped child": """
import os, signal, time
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(300)
""",
    "child of a thread": """
import subprocess, threading, time
threading.Thread(target=subprocess.run, args=(["/bin/sleep", "300"],)).start()
time.sleep(300)
""",
}


def processes_with(mark: str) -> list[int]:
    """Host pids whose environment holds a mark that only this test's world was given."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in environment:
                found.append(int(name))
    return found


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Polls a condition up to a deadline."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        os.sched_yield()
    return condition()


def told_an_end(process: Process) -> bool:
    """Whether the caller hears within five seconds that the program has ended, by a status or an error."""
    began = time.monotonic()
    try:
        status = process.wait(5)
    except AboveboardError:
        return time.monotonic() - began < 5
    return status < 0


@pytest.mark.parametrize("name", SLEEPERS)
def test_killing_the_supervisor_leaves_no_process_after_one_second(name: str) -> None:
    mark = f"RUN_MARK={os.getpid()}-{time.monotonic_ns()}"
    key, _, value = mark.partition("=")
    with tempfile.TemporaryDirectory() as record, harness.workspace() as folder:
        world = World(evidence=record, workspace=folder, env={key: value}, limits=harness.SMALL)
        with world:
            started = world.popen([harness.PYTHON, "-c", SLEEPERS[name]])
            assert eventually(lambda: len(processes_with(mark)) >= 2, 10), "the program did not start"
            os.kill(world._supervisor_pid, signal.SIGKILL)
            assert eventually(lambda: processes_with(mark) == [], 1.0), "processes outlived the supervisor"
            assert told_an_end(started), "the caller still waits for a program that is dead"
        # Every event up to the last is there, and the chain says that the end is missing.
        events = harness.raw_events(record)
        assert events[0]["e"] == "world"
        assert any(event["e"] == "command" for event in events)
        assert all(event["e"] != "end" for event in events)


def test_a_record_cut_by_a_killed_supervisor_is_never_clean() -> None:
    from aboveboard.evidence import Evidence
    from aboveboard.oracles.process import judge

    with tempfile.TemporaryDirectory() as record, harness.workspace() as folder:
        world = World(
            evidence=record,
            workspace=folder,
            mounts=[harness.tools_mount()],
            candidate=[harness.TOOLS],
            limits=harness.SMALL,
        )
        with world:
            world.run([harness.PYTHON, f"{harness.TOOLS}/plain.py", "twin_task"])
            os.kill(world._supervisor_pid, signal.SIGKILL)
        verdict = judge(Evidence(record), harness.contract())
    assert verdict.verdict == "indeterminate"
    assert verdict.reasons


def test_killing_the_caller_ends_the_world() -> None:
    """The program that asked for the world is killed: its worlds go with it."""
    mark = f"RUN_MARK={os.getpid()}-{time.monotonic_ns()}"
    key, _, value = mark.partition("=")
    child = os.fork()
    if child == 0:
        try:
            with tempfile.TemporaryDirectory() as record, World(evidence=record, env={key: value}) as world:
                world.run([harness.PYTHON, "-c", SLEEPERS["double fork and setsid"]])
        finally:
            os._exit(0)
    try:
        assert eventually(lambda: len(processes_with(mark)) >= 2, 10), "the program did not start"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert eventually(lambda: processes_with(mark) == [], 2.0), "processes outlived the caller"


def test_a_survivor_of_the_grace_window_is_named_and_killed() -> None:
    outcome = harness.run([harness.PYTHON, f"{harness.TOOLS}/plain.py", "life_daemon"], harness.contract())
    assert any(event["e"] == "survivor" for event in outcome.events)
    assert any(effect.kind == 21 for effect in outcome.verdict.forbidden)


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_status_is_the_programs_own(code: int) -> None:
    assert harness.run(["/bin/sh", "-c", f"exit {code}"], harness.contract()).status == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_deadly_signal_is_reported_as_such(number: signal.Signals) -> None:
    outcome = harness.run(["/bin/sh", "-c", f"kill -{int(number)} $$"], harness.contract())
    assert outcome.status == -number
