"""What ``World`` promises to whoever writes a program with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import socketserver
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from aboveboard.contract import Contract
from aboveboard.errors import EnvironmentProblem, UsageError
from aboveboard.world import Limits, Mount, Service, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aboveboard.evidence import Event, Evidence

pytestmark = pytest.mark.usefixtures("world_available")


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def events(evidence: Evidence, kind: str, **fields: object) -> list[Event]:
    """The events of one type whose fields have these values."""
    return [e for e in evidence.events() if e.type == kind and all(e.data.get(k) == v for k, v in fields.items())]


def sh(world: World, script: str, **options: object) -> str:
    """The output of a shell script that must succeed."""
    done = world.run(["/bin/sh", "-c", script], **options)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


# --- commands -----------------------------------------------------------------------------------------------------


def test_a_command_has_its_code_and_both_outputs_apart(world: World) -> None:
    done = world.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert (done.timed_out, done.truncated) == (False, False)


def test_a_signal_is_a_negative_code(world: World) -> None:
    assert world.run(["/bin/sh", "-c", "kill -SEGV $$"]).returncode == -signal.SIGSEGV


def test_the_state_of_a_world_outlives_a_command(world: World) -> None:
    sh(world, "echo kept > /tmp/file")
    assert sh(world, "cat /tmp/file") == "kept\n"


def test_input_is_bytes_a_descriptor_or_nothing(world: World, tmp_path: Path) -> None:
    big = os.urandom(1 << 20)
    assert world.run(["/bin/cat"], stdin=big).stdout == big
    (tmp_path / "input").write_bytes(b"from a file")
    with (tmp_path / "input").open("rb") as file:
        assert world.run(["/bin/cat"], stdin=file.fileno()).stdout == b"from a file"
    assert world.run(["/bin/cat"]).stdout == b""


def test_output_can_go_to_a_descriptor(world: World, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as file:
        done = world.run(["/bin/echo", "there"], stdout=file.fileno())
    assert (done.stdout, (tmp_path / "output").read_bytes()) == (b"", b"there\n")


def test_directory_and_variables_are_the_commands_own(world: World) -> None:
    assert sh(world, "pwd; echo $COLOUR", cwd="/usr", env={"COLOUR": "red"}) == "/usr\nred\n"
    assert sh(world, "pwd; echo $COLOUR") == "/home/dev\n\n"


def test_a_program_that_is_not_there_is_named(world: World) -> None:
    with pytest.raises(UsageError, match="'no-such-program' is not there"):
        world.run(["no-such-program"])
    with pytest.raises(UsageError, match="'/no/such/place' is not there"):
        world.run(["/bin/true"], cwd="/no/such/place")
    with pytest.raises(UsageError, match="no command"):
        world.run([])
    assert world.run(["/bin/true"]).returncode == 0


def test_a_file_that_is_no_program_is_said_to_be_none(world: World) -> None:
    world.put("/home/dev/data", b"\0\1\2", mode=0o755)
    with pytest.raises(EnvironmentProblem, match="could not be started"):
        world.run(["/home/dev/data"])


# --- many at once -------------------------------------------------------------------------------------------------


def test_commands_run_at_once(world: World) -> None:
    """Each waits for the next one: one after another they would never end."""
    names = [f"/tmp/turn{n}" for n in range(8)]
    scripts = [f"until [ -e {names[(n + 1) % 8]} ]; do :; done; echo {n}" for n in range(8)]
    running = [world.popen(["/bin/sh", "-c", f": > {names[n]}; {script}"]) for n, script in enumerate(scripts)]
    assert [process.wait(60) for process in running] == [0] * 8


def test_many_threads_share_a_world_and_each_gets_its_own_answer(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: world.run(["/bin/echo", str(n)]), range(40)))
    assert [d.stdout for d in done] == [b"%d\n" % n for n in range(40)]
    assert len({d.command for d in done}) == 40


def test_an_event_names_the_command_and_the_process_that_caused_it() -> None:
    with World() as world:
        running = {
            name: world.popen(
                ["/bin/sh", "-c", f"/bin/cat /etc/hostname > /tmp/{name}; /bin/rm /tmp/{name}"], name=name
            )
            for name in ("one", "two", "three")
        }
        for process in running.values():
            process.wait(60)
    evidence = world.close()
    for name, process in running.items():
        (command,) = events(evidence, "command", name=name)
        assert command.command == process.command
        mine = [e for e in evidence.events() if f"/tmp/{name}" in (e.path, e.text("n"))]
        assert {e.command for e in mine if e.type in ("open", "fs")} == {process.command}
        (removed,) = [e for e in mine if e.type == "fs"]
        programs = {e.pid: e.path for e in events(evidence, "proc", c=process.command)}
        assert programs[removed.pid].endswith("/rm")
        (status,) = events(evidence, "status", c=process.command)
        assert status.data["code"] == 0


def test_a_phase_is_on_the_events_of_its_command() -> None:
    with World() as world:
        sh(world, ": > /tmp/a", phase="install")
        sh(world, ": > /tmp/b")
    evidence = world.close()
    phases = {e.path: e.phase for e in events(evidence, "open") if e.path in ("/tmp/a", "/tmp/b")}
    assert phases == {"/tmp/a": "install", "/tmp/b": "call"}


def test_worlds_do_not_see_each_other() -> None:
    def one(number: int) -> tuple[str, str]:
        with World() as world:
            seen = sh(world, f"[ -e /tmp/mine ] && echo other; echo {number} > /tmp/mine; cat /tmp/mine")
        (made,) = events(world.close(), "change", x="/tmp/mine")
        return seen, made.text("w")

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(8)))
    assert results == [(f"{n}\n", "created") for n in range(8)]


def test_worlds_work_in_an_event_loop() -> None:
    async def one(number: int) -> bytes:
        async with World() as world:
            a, b = await asyncio.gather(world.arun(["/bin/echo", str(number)]), world.arun(["/bin/echo", "second"]))
            return a.stdout + b.stdout

    async def several() -> list[bytes]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        answers = await asyncio.gather(*(one(n) for n in range(3)))
        ticking.cancel()
        assert ticks > 100, "the event loop was held up"
        return answers

    assert asyncio.run(several()) == [b"%d\nsecond\n" % n for n in range(3)]


# --- files --------------------------------------------------------------------------------------------------------


def test_a_file_put_in_is_there_and_recorded_as_ours() -> None:
    with World() as world:
        world.put("/home/dev/deep/er/file", b"content", mode=0o755)
        assert sh(world, "cat deep/er/file; stat -c %a deep/er/file") == "content755\n"
    (put,) = events(world.close(), "put")
    assert put.text("n") == "/home/dev/deep/er/file"


def test_what_was_made_inside_can_be_taken_out(world: World) -> None:
    sh(world, "printf 'a\\0b' > made")
    assert world.get("made") == b"a\0b"
    assert world.get("/home/dev/made") == b"a\0b"


def test_taking_out_is_bounded_and_says_what_is_wrong(world: World) -> None:
    sh(world, "head -c 2000 /dev/zero > big; mkfifo pipe; mkdir directory")
    with pytest.raises(FileNotFoundError):
        world.get("absent")
    with pytest.raises(OSError, match="larger than 1000 bytes"):
        world.get("big", limit=1000)
    for odd in ("pipe", "directory"):
        with pytest.raises(OSError, match=odd):
            world.get(odd)


def test_a_tree_comes_out_without_links_and_devices(world: World, tmp_path: Path) -> None:
    sh(
        world,
        "mkdir -p out/sub; echo 1 > out/a; echo 2 > out/sub/b; chmod 750 out/a; mkfifo out/pipe; "
        "ln -s /etc/passwd out/link; ln -s / out/root",
    )
    world.get_tree("out", tmp_path / "got")
    got = {str(p.relative_to(tmp_path / "got")) for p in (tmp_path / "got").rglob("*")}
    assert got == {"a", "sub", "sub/b"}
    assert (tmp_path / "got" / "sub" / "b").read_bytes() == b"2\n"
    with pytest.raises(OSError, match="too many"):
        world.get_tree("out", tmp_path / "again", entries=2)


def test_the_workspace_is_copy_on_write_and_relative_paths_start_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("host")
    with World(workspace=tmp_path) as world:
        assert (
            sh(world, "pwd; cat file; echo inside > file; echo new > other; rm file; cat other")
            == f"{tmp_path}\nhostnew\n"
        )
        assert world.get("other") == b"new\n"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "host"
    changes = {e.path: e.text("w") for e in events(world.close(), "change")}
    assert changes == {f"{tmp_path}/file": "deleted", f"{tmp_path}/other": "created"}


def test_a_mount_is_writable_inside_only_where_it_is_copy_on_write(tmp_path: Path) -> None:
    for name in ("cow", "ro"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    mounts = [Mount(str(tmp_path / name), f"/data/{name}", name) for name in ("cow", "ro")]
    with World(mounts=mounts) as world:
        assert sh(world, "cat /data/*/file; echo changed > /data/cow/file; cat /data/cow/file") == "cowrochanged\n"
        assert world.run(["/bin/sh", "-c", "echo changed > /data/ro/file"]).returncode != 0
    assert [(tmp_path / name / "file").read_text() for name in ("cow", "ro")] == ["cow", "ro"]


def test_a_mount_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent is not there"):
        World(mounts=[Mount(str(tmp_path / "absent"), "/data")]).start()


# --- services -----------------------------------------------------------------------------------------------------


class Upper(socketserver.StreamRequestHandler):
    """Answers each line in capitals."""

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line.upper())


ASK = (
    "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b'question\\n'); "
    "print(s.makefile().readline().strip())"
)


@pytest.fixture(params=["tcp", "unix"])
def upstream(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "tcp":
        server: socketserver.BaseServer = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Upper)
        where = f"tcp:127.0.0.1:{server.server_address[1]}"
    else:
        server = socketserver.ThreadingUnixStreamServer(str(tmp_path / "sock"), Upper)
        where = f"unix:{tmp_path}/sock"
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield where
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_service_of_the_host_is_reached_by_its_name_and_recorded(upstream: str) -> None:
    with World(services=[Service("model", "model.test", 4000, upstream)]) as world:
        assert world.run([sys.executable, "-c", ASK, "model.test", "4000"]).stdout == b"QUESTION\n"
    flows = events(world.close(), "flow", service="model")
    assert [flow.text("head") for flow in flows] == ["question\n"]


def test_a_service_inside_is_a_server_run_in_the_world() -> None:
    serve = (
        "import socketserver\n"
        "class Upper(socketserver.StreamRequestHandler):\n"
        "    def handle(self): self.wfile.write(self.rfile.readline().upper())\n"
        "s = socketserver.TCPServer(('127.0.0.1', 5005), Upper); open('/tmp/ready', 'w').close(); s.serve_forever()"
    )
    with World(services=[Service("mock", "mock.test", 80, "inside:5005")]) as world:
        server = world.popen([sys.executable, "-c", serve])
        sh(world, "until [ -e /tmp/ready ]; do :; done")
        assert world.run([sys.executable, "-c", ASK, "mock.test", "80"]).stdout == b"QUESTION\n"
        server.kill()
        assert server.wait(30) == -signal.SIGKILL
    assert events(world.close(), "flow", service="mock")


def test_nothing_but_the_service_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        port = listener.getsockname()[1]
        with World() as world:
            world.run([sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"])
            world.run([sys.executable, "-c", f"import socket; socket.create_connection(('192.0.2.1', {port}), 5)"])
        with pytest.raises(BlockingIOError):
            listener.accept()


# --- bounds -------------------------------------------------------------------------------------------------------


def test_a_command_that_takes_too_long_is_killed_and_the_world_goes_on() -> None:
    with World() as world:
        done = world.run(["/bin/sh", "-c", "echo started; exec sleep 1000"], timeout=0.5)
        assert (done.returncode, done.stdout, done.timed_out) == (-signal.SIGKILL, b"started\n", True)
        assert sh(world, "echo on") == "on\n"
    (limit,) = events(world.close(), "limit")
    assert limit.text("what") == "wall"


def test_a_world_that_takes_too_long_ends() -> None:
    with World(limits=Limits(wall_seconds=1.0)) as world:
        assert world.run(["/bin/sleep", "1000"]).returncode == -signal.SIGKILL
    evidence = world.close()
    assert [e.text("what") for e in events(evidence, "limit")] == ["wall"]
    assert [e.text("reason") for e in events(evidence, "end")] == ["limit"]


def test_a_flood_of_output_is_cut_and_said_to_be() -> None:
    with World(limits=Limits(output_bytes=100_000)) as world:
        done = world.run(["/bin/sh", "-c", "exec yes"], timeout=60)
    assert (done.truncated, done.timed_out, len(done.stdout)) == (True, False, 100_000)
    assert [e.text("what") for e in events(world.close(), "limit")] == ["output"]


def test_a_fork_bomb_is_bounded() -> None:
    bomb = (
        "import os, time\n"
        "for _ in range(200):\n"
        "    try: pid = os.fork()\n"
        "    except OSError: print('refused'); break\n"
        "    if not pid: time.sleep(1000)\n"
    )
    with World(limits=Limits(processes=50), grace_seconds=0) as world:
        assert world.run([sys.executable, "-c", bomb], timeout=60).stdout == b"refused\n"
    assert "processes" in [e.text("what") for e in events(world.close(), "limit")]


def test_a_full_disk_is_the_candidates_problem_and_recorded() -> None:
    with World(limits=Limits(disk_bytes=4 << 20)) as world:
        done = world.run(["/bin/sh", "-c", "head -c 50000000 /dev/zero > /tmp/big"])
        assert done.returncode != 0
        assert b"No space left" in done.stderr
    assert "disk" in [e.text("what") for e in events(world.close(), "limit")]


def test_too_many_events_end_the_world() -> None:
    with World(limits=Limits(events=500)) as world:
        done = world.run(["/bin/sh", "-c", "while :; do : < /dev/null; done"], timeout=60)
        assert done.returncode == -signal.SIGKILL
    evidence = world.close()
    assert [e.text("what") for e in events(evidence, "limit")] == ["events"]
    assert evidence.verify_chain().ok


# --- the end ------------------------------------------------------------------------------------------------------


def test_closing_twice_gives_the_same_evidence(world: World) -> None:
    assert world.close() is world.close()


def test_a_closed_world_runs_nothing(world: World) -> None:
    world.close()
    with pytest.raises(OSError, match="not running"):
        world.run(["/bin/true"])


def test_evidence_is_whole_and_sealed(tmp_path: Path) -> None:
    with World(evidence=tmp_path / "evidence") as world:
        sh(world, "true")
    report = world.close().verify_chain()
    assert report.ok
    assert report.complete
    assert (tmp_path / "evidence" / "events.jsonl").stat().st_mode & 0o777 == 0o600


def test_evidence_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(UsageError, match="not empty"):
        World(evidence=tmp_path).start()
    assert [p.name for p in tmp_path.iterdir()] == ["something"]


def test_a_temporary_record_is_removed_with_its_evidence() -> None:
    with World() as world:
        sh(world, "true")
    evidence = world.close()
    folder = evidence.folder
    assert folder is not None
    assert os.path.exists(folder)
    del world, evidence
    assert not os.path.exists(folder)


def test_what_still_runs_at_the_end_gets_its_grace_then_dies() -> None:
    with World(grace_seconds=5) as world:
        world.run(["/bin/sh", "-c", "(sleep 0.2; echo late > /tmp/late) >/dev/null 2>&1 &"])
    assert [e.text("w") for e in events(world.close(), "change", x="/tmp/late")] == ["created"]

    with World(grace_seconds=0) as world:
        world.run(["/bin/sh", "-c", "sleep 1000 >/dev/null 2>&1 &"])
    (survivor,) = events(world.close(), "survivor")
    assert list(survivor.data["argv"]) == ["sleep", "1000"]  # type: ignore[call-overload]


def test_block_mode_needs_a_contract() -> None:
    with pytest.raises(UsageError, match="needs a contract"):
        World(mode="block")


def test_an_unknown_witness_cannot_be_switched_off() -> None:
    with pytest.raises(UsageError, match="unknown witness 'nobody'"):
        World(disable=frozenset({"nobody"}))


@pytest.mark.parametrize("mode", ["blok", "Block", "", None])
def test_a_misspelled_mode_is_refused_and_does_not_switch_blocking_off(mode: str) -> None:
    with pytest.raises(UsageError, match="unknown mode"):
        World(mode=mode, contract=Contract())  # type: ignore[arg-type]
