"""Who is calling: every event belongs to the process, the program and the command that caused it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aboveboard.world import World
from aboveboard.world.log import Log
from aboveboard.world.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aboveboard.evidence import Event

in_a_world = pytest.mark.usefixtures("world_available")


# --- the table, over this machine's own /proc ---------------------------------------------------------------------


class Watched:
    """Stands for the supervisor's loop: remembers what is watched."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        self.callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        del self.callbacks[fd]


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Tasks, Watched, Log]]:
    monkeypatch.chdir("/proc")
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    log, loop = Log(fd, 100), Watched()
    yield Tasks(log, loop.watch, loop.unwatch), loop, log
    os.close(fd)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_given_a_process_when_first_seen_then_it_is_recorded_once_with_its_program(
    tasks: tuple[Tasks, Watched, Log], child: subprocess.Popen[bytes]
) -> None:
    table, loop, log = tasks
    first = table.of(child.pid, 4)
    assert table.of(child.pid, 4) is first
    assert (first.pid, first.parent, first.command) == (child.pid, os.getpid(), 4)
    assert log.counts == {"proc": 1}
    assert first.pidfd in loop.callbacks


def test_given_a_process_that_ended_when_its_descriptor_tells_then_it_is_forgotten_and_recorded(
    tasks: tuple[Tasks, Watched, Log], child: subprocess.Popen[bytes]
) -> None:
    table, loop, log = tasks
    process = table.of(child.pid, 4)
    loop.callbacks[process.pidfd]()
    assert child.pid not in table.processes
    assert child.pid not in table.by_thread
    assert loop.callbacks == {}
    assert log.counts == {"proc": 1, "gone": 1}


def test_given_the_same_number_again_when_the_old_process_is_gone_then_it_is_another_process(
    tasks: tuple[Tasks, Watched, Log], child: subprocess.Popen[bytes]
) -> None:
    table, loop, log = tasks
    old = table.of(child.pid, 4)
    loop.callbacks[old.pidfd]()
    new = table.of(child.pid, 5)
    assert new is not old
    assert new.command == 5
    assert log.counts == {"proc": 2, "gone": 1}


def test_given_a_thread_when_it_calls_then_it_is_its_process(tasks: tuple[Tasks, Watched, Log]) -> None:
    import threading

    table, _, log = tasks
    table.of(os.getpid(), 1)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(table.of(threading.get_native_id(), 1)))
    thread.start()
    thread.join()
    assert found[0] is table.of(os.getpid(), 1)
    assert log.counts == {"proc": 1}


def test_given_threads_that_ended_when_numbers_may_come_round_again_then_they_are_read_anew(
    tasks: tuple[Tasks, Watched, Log], child: subprocess.Popen[bytes]
) -> None:
    # Nobody tells of the end of a thread. The smallest range of process ids is 32,768 (proc_sys_kernel(5)).
    table, _, _ = tasks
    process = table.of(os.getpid(), 1)
    table.by_thread[child.pid] = process  # a thread that ended, and whose number another process now has
    process.threads.add(child.pid)
    for _ in range(32_000):
        table.counted(thread=True)
    assert table.of(child.pid, 2).pid == child.pid
    assert table.of(os.getpid(), 1) is process
    assert table.thread_clones == 32_000


def test_given_a_task_that_is_gone_when_asked_for_then_it_is_an_error(tasks: tuple[Tasks, Watched, Log]) -> None:
    with pytest.raises(OSError, match="No such file"):
        tasks[0].of(1 << 22, 1)


def test_given_a_mask_when_read_then_it_is_the_callers_own(tasks: tuple[Tasks, Watched, Log]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import os; os.umask(0o137); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert tasks[0].umask(process.pid) == 0o137
        process.kill()


# --- in a world ---------------------------------------------------------------------------------------------------


def python(world: World, program: str, **options: Any) -> bytes:
    done = world.run([sys.executable, "-I", "-B", "-c", program], timeout=100, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def opens(events: list[Event], path: str) -> list[Event]:
    return [e for e in events if e.type == "open" and e.text("n") == path]


@in_a_world
def test_given_two_commands_at_once_when_both_act_then_each_event_names_its_command() -> None:
    program = "import os\nfor n in range(50): os.close(os.open('/tmp/{}-%d' % n, 65))"
    with World() as world:
        running = [world.popen([sys.executable, "-I", "-c", program.format(name)]) for name in ("one", "two")]
        assert [process.wait(60) for process in running] == [0, 0]
        events = list(world.close().events())
    for process, name in zip(running, ("one", "two"), strict=True):
        mine = [e for e in events if e.type == "open" and e.text("n").startswith(f"/tmp/{name}-")]
        assert len(mine) == 50
        assert {e.command for e in mine} == {process.command}
        assert len({e.pid for e in mine}) == 1
    assert len({e.pid for e in events if e.text("n").startswith("/tmp/")}) == 2


@in_a_world
def test_given_threads_when_they_open_files_then_all_belong_to_one_process() -> None:
    program = """
import os, threading
def work(n): os.close(os.open(f"/tmp/thread-{n}", 65))
threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    with World() as world:
        python(world, program)
        events = list(world.close().events())
    mine = [e for e in events if e.text("n").startswith("/tmp/thread-")]
    assert len(mine) == 20
    (pid,) = {e.pid for e in mine}
    (seen,) = [e for e in events if e.type == "proc" and e.pid == pid][-1:]
    assert seen.text("x") == os.path.realpath(sys.executable)


@in_a_world
def test_given_children_and_grandchildren_when_they_act_then_the_chain_of_parents_is_recorded() -> None:
    program = """
import os
def act(n):
    os.close(os.open(f"/tmp/generation-{n}", 65))
    if n < 3:
        if os.fork() == 0:
            act(n + 1); os._exit(0)
        os.wait()
act(0)
"""
    with World() as world:
        python(world, program)
        events = list(world.close().events())
    pids = [opens(events, f"/tmp/generation-{n}")[0].pid for n in range(4)]
    parents = {e.pid: e.integer("pp") for e in events if e.type == "proc"}
    assert len(set(pids)) == 4
    assert [parents[pid] for pid in pids[1:]] == pids[:-1]
    assert {e.pid for e in events if e.type == "gone"} >= set(pids)


@in_a_world
def test_given_a_program_that_becomes_another_when_it_acts_then_the_new_program_is_recorded_for_it() -> None:
    with World() as world:
        python(world, "import os; os.execv('/bin/sh', ['sh', '-c', ': > /tmp/after'])")
        events = list(world.close().events())
    (after,) = opens(events, "/tmp/after")
    programs = [e.text("x") for e in events if e.type == "proc" and e.pid == after.pid]
    assert list(dict.fromkeys(programs)) == [os.path.realpath(sys.executable), os.path.realpath("/bin/sh")]
    assert programs[-1] == os.path.realpath("/bin/sh")


FORKS = 10_000


@in_a_world
@pytest.mark.timeout(120)
def test_given_ten_thousand_forks_when_the_next_process_acts_then_it_is_taken_for_nobody_else() -> None:
    program = f"""
import os
os.close(os.open("/tmp/before", 65))
for n in range({FORKS}):
    if os.fork() == 0:
        if n % 1000 == 0:
            os.close(os.open(f"/tmp/child-{{n}}", 65))
        os._exit(0)
    os.wait()
if os.fork() == 0:
    os.close(os.open("/tmp/after", 65)); os._exit(0)
os.wait()
print(os.getpid())
"""
    with World() as world:
        python(world, program)
        events = list(world.close().events())
    before, after = opens(events, "/tmp/before")[0], opens(events, "/tmp/after")[0]
    children = [opens(events, f"/tmp/child-{n}")[0] for n in range(0, FORKS, 1000)]
    assert before.pid != after.pid
    assert all(e.pid != before.pid for e in children)
    for event in [*children, after]:
        (known,) = [e for e in events if e.type == "proc" and e.pid == event.pid and e.number < event.number][-1:]
        assert known.integer("pp") == before.pid
        ended = [e.number for e in events if e.type == "gone" and e.pid == event.pid]
        assert not [n for n in ended if known.number < n < event.number]
    (census,) = [e for e in events if e.type == "pids"]
    assert census.integer("allocated") == census.integer("seen")
    assert census.integer("seen") > FORKS
