"""Where supervisors come from, and that nothing of a world outlives its client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aboveboard.evidence import Evidence
from aboveboard.world import World
from aboveboard.world.spawner import SPAWNER, _close_all_but

if TYPE_CHECKING:
    from collections.abc import Callable

in_a_world = pytest.mark.usefixtures("world_available")
SLEEPER = [sys.executable, "-c", "import os, time; print(flush=True); os.fork(); time.sleep(300)"]


def with_mark(mark: str) -> list[int]:
    """Pids of the host whose environment holds a mark that only one world was given."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in environment.split(b"\0"):
                found.append(int(name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        os.sched_yield()
    return condition()


def test_given_descriptors_to_keep_when_the_others_are_closed_then_only_those_are_open() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            wanted = {0, 1, 2, writer, 700}
            os.dup2(writer, 700)
            os.dup2(writer, 900)
            _close_all_but(wanted)
            opened = [fd for fd in range(1024) if _is_open(fd)]
            os.write(writer, repr(sorted(opened)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    told = os.read(reader, 1000).decode()
    os.close(reader)
    assert os.waitpid(pid, 0)[1] == 0
    assert told == repr(sorted({0, 1, 2, writer, 700}))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@in_a_world
def test_given_threads_that_make_worlds_at_once_when_started_then_each_has_a_supervisor_of_its_own() -> None:
    pids: list[int] = []
    outputs: list[bytes] = []

    def work(n: int) -> None:
        with World() as world:
            pids.append(world._supervisor_pid)
            outputs.append(world.run(["/bin/echo", str(n)]).stdout)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outputs) == [b"0\n", b"1\n", b"2\n", b"3\n"]
    assert len(set(pids)) == 4
    assert os.getpid() not in pids


@in_a_world
def test_given_a_spawner_that_was_killed_when_a_world_is_made_then_another_is_started() -> None:
    with World() as world:
        status = Path(f"/proc/{world._supervisor_pid}/status").read_text()
    spawner = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid"))
    assert spawner != os.getpid()
    os.kill(spawner, signal.SIGKILL)
    assert eventually(lambda: not alive(spawner), 5)
    with World() as world:
        assert world.run(["/bin/echo", "again"]).stdout == b"again\n"
    assert SPAWNER._owner == os.getpid()


@in_a_world
def test_given_a_world_that_is_dropped_without_close_when_collected_then_no_process_of_it_is_left() -> None:
    import gc

    mark = f"DROPPED={os.getpid()}-{time.monotonic_ns()}"
    key, _, value = mark.partition("=")
    world = World(env={key: value}).start()
    started = world.popen(SLEEPER)
    assert eventually(lambda: len(with_mark(mark)) >= 2, 10)
    supervisor = world._supervisor_pid
    del world, started
    gc.collect()
    assert eventually(lambda: with_mark(mark) == [], 2)
    assert eventually(lambda: not alive(supervisor), 2)


CLIENT = """
import sys
sys.path[:0] = {path!r}
from aboveboard.world import World
world = World(evidence={record!r}, env={{{key!r}: {value!r}}}, grace_seconds=30).start()
started = world.popen({argv!r})
print(world._supervisor_pid, flush=True)
started.wait()
"""


@in_a_world
def test_given_a_client_that_is_killed_when_its_world_runs_then_all_ends_within_a_second_and_the_record_is_sealed(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    mark = f"ORPHAN={os.getpid()}-{time.monotonic_ns()}"
    key, _, value = mark.partition("=")
    program = CLIENT.format(path=sys.path, record=str(record), key=key, value=value, argv=SLEEPER)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        supervisor = int(client.stdout.readline())
        assert eventually(lambda: len(with_mark(mark)) >= 2, 10)
        client.kill()
        died = time.monotonic()
        client.wait()
        assert eventually(lambda: with_mark(mark) == [] and not alive(supervisor), 5)
        assert time.monotonic() - died < 1.0
    evidence = Evidence(record)
    report = evidence.verify_chain()
    assert (report.ok, report.complete, report.torn) == (True, True, False)
    last = list(evidence.events())[-1]
    assert (last.type, last.text("reason"), last.integer("lost")) == ("end", "client-gone", 0)
