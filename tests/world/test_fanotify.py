"""Tier R: an open that the supervisor did not make is seen by the kernel's own account, and by nobody's grace."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aboveboard.contract import Contract
from aboveboard.evidence import Evidence
from aboveboard.oracles.process import judge
from aboveboard.world import World
from aboveboard.world.fanotify import Warden

root = pytest.mark.root


def unexplained(evidence: Evidence) -> list[dict[str, object]]:
    return [e.data for e in evidence.events() if e.type == "fanotify" and not e.data["exec"]]


def executed(evidence: Evidence) -> list[str]:
    return [str(e.data["x"]) for e in evidence.events() if e.type == "fanotify" and e.data["exec"]]


@pytest.fixture
def warden() -> Iterator[Warden]:
    warden = Warden.start()
    yield warden
    warden.finish()
    warden.reap()


@root
def test_an_ordinary_run_has_no_open_but_the_supervisors_and_those_of_exec() -> None:
    script = """
printf '#!/bin/sh\\ncat /etc/hostname' > /tmp/script; chmod +x /tmp/script; /tmp/script
mkfifo /tmp/fifo; (echo through > /tmp/fifo &); cat /tmp/fifo
python3 -c 'import json, subprocess; subprocess.run(["/bin/true"]); open("/tmp/x", "w").write("x")'
"""
    with World(tier="R") as world:
        done = world.run(["/bin/sh", "-c", script])
    evidence = world.close()
    assert done.returncode == 0, done
    assert unexplained(evidence) == []
    assert "/tmp/script" in executed(evidence)
    assert any("/ld-linux" in path for path in executed(evidence))


@root
def test_a_way_past_the_supervisor_is_seen_and_the_verdict_is_not_clean() -> None:
    # Without the traps the candidate opens its files itself: the bypass of all bypasses.
    with World(tier="R", disable=frozenset({"notify"})) as world:
        world.run(["/bin/cat", "/etc/hostname"])
    evidence = world.close()
    seen = {str(event["x"]): event for event in unexplained(evidence)}
    assert "/etc/hostname" in seen
    assert seen["/etc/hostname"]["p"]
    verdict = judge(evidence, Contract(minimum_tier="P"))
    assert verdict.verdict == "indeterminate"
    assert any(reason.code == "open-unseen" for reason in verdict.reasons)


@root
def test_the_traps_and_the_kernel_name_the_same_object() -> None:
    with World(tier="R", disable=frozenset({"notify"})) as world:
        out = world.run(["/usr/bin/stat", "-c", "%d %i", "/etc/hostname"]).stdout.split()
        world.run(["/bin/cat", "/etc/hostname"])
    (event,) = [e for e in unexplained(world.close()) if e["x"] == "/etc/hostname"]
    assert event["v"] == [int(out[0]), int(out[1])]


@root
def test_a_monitor_of_the_host_that_looks_into_the_world_is_not_taken_for_the_candidate() -> None:
    with World(tier="R", grace_seconds=0) as world:
        process = world.popen(["/bin/sh", "-c", "echo ready; exec sleep 60"])
        until_ready(process)
        found: list[int] = []
        while not found:
            found = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_sleeper(p) and in_other_root(p)]
        pid = found[0]
        assert Path(f"/proc/{pid}/root/etc/hostname").read_text() == "dev-laptop\n"
    assert unexplained(world.close()) == []


def is_sleeper(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0060\0"
    except OSError:
        return False


def until_ready(process: object) -> None:
    while not process.output("stdout"):  # type: ignore[attr-defined]
        try:
            process.wait(0.01)  # type: ignore[attr-defined]
        except TimeoutError:
            continue
        raise AssertionError("it ended")


def in_other_root(pid: str) -> bool:
    return os.stat(f"/proc/{pid}/ns/mnt").st_ino != os.stat("/proc/self/ns/mnt").st_ino


@root
def test_marking_proves_itself_by_an_open_that_is_seen(warden: Warden, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    place = os.open(tmp_path, os.O_PATH)
    try:
        assert warden.mark([place], str(file), os.getpid(), os.getpid())
    finally:
        os.close(place)


@root
def test_marking_another_mount_is_not_taken_for_a_proof(warden: Warden, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    place = os.open("/proc", os.O_PATH)
    try:
        assert not warden.mark([place], str(file), os.getpid(), os.getpid())
    finally:
        os.close(place)


@root
def test_the_death_of_the_listening_process_is_a_loss_of_the_witness() -> None:
    warden = Warden.start()
    os.kill(warden._pid, signal.SIGKILL)
    (event,) = warden.finish()
    assert (event["e"], event["name"], event["ok"]) == ("witness", "fanotify", False)


@root
def test_a_flood_of_opens_is_told_in_part_and_said_to_be_so() -> None:
    script = "import os\nfor i in range(1500): os.close(os.open(f'/tmp/f{i}', os.O_CREAT | os.O_RDWR))"
    with World(tier="R", disable=frozenset({"notify"})) as world:
        world.run(["python3", "-c", script])
    evidence = world.close()
    assert len(unexplained(evidence)) <= 1000
    lost = [e for e in evidence.events() if e.type == "witness" and e.data["name"] == "fanotify" and not e.data["ok"]]
    assert len(lost) == 1


def test_who_is_not_root_is_refused_the_listening() -> None:
    code = (
        "import os\n"
        "from aboveboard.world.fanotify import Warden\n"
        "if os.geteuid() == 0:\n"
        "    os.setresuid(65534, 65534, 65534)\n"
        "try:\n"
        "    Warden.start()\n"
        "except OSError as e:\n"
        "    print(e.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(errno.EPERM), done.stderr
