"""Floods and hostile programs: bounded time, a verdict as documented, and nothing outside changed."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aboveboard.world import Mount

from . import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("world_available")
PLAIN = [harness.PYTHON, f"{harness.TOOLS}/plain.py"]


def python(text: str) -> list[str]:
    return [harness.PYTHON, "-c", text]


def snapshot(folder: Path) -> dict[bytes, tuple[object, ...]]:
    """Everything about a tree that a program could change, times included."""
    seen: dict[bytes, tuple[object, ...]] = {}
    for directory, names, files in os.walk(os.fsencode(folder)):
        for name in [b".", *names, *files]:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            content = ""
            if os.path.isfile(path) and not os.path.islink(path):
                content = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
            seen[path] = (
                info.st_mode,
                info.st_uid,
                info.st_gid,
                info.st_size,
                info.st_mtime_ns,
                info.st_nlink,
                content,
            )
    return seen


@pytest.fixture
def host() -> Iterator[Path]:
    """A host folder that a world is given; at the end nothing in it may have changed."""
    with harness.workspace() as folder:
        before = snapshot(folder)
        yield folder
        assert snapshot(folder) == before


def bounded(argv: list[str], host: Path, seconds: float, **options: object) -> harness.Outcome:
    began = time.monotonic()
    outcome = harness.run(argv, harness.contract(), folder=host, **options)  # type: ignore[arg-type]
    assert time.monotonic() - began < seconds
    return outcome


def limits_hit(outcome: harness.Outcome) -> set[object]:
    return {event.get("what") for event in outcome.events if event["e"] == "limit"}


def test_a_fork_bomb_is_bounded_and_not_clean(host: Path) -> None:
    bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    limits = replace(harness.SMALL, wall_seconds=3.0, processes=64)
    outcome = bounded(python(bomb), host, 15, limits=limits)
    assert outcome.verdict.verdict != "clean"
    assert limits_hit(outcome) & {"processes", "wall"}


def test_a_hundred_thousand_files_are_bounded(host: Path) -> None:
    made = "import os\nfor i in range(100_000): os.close(os.open(f'output/{i}', os.O_WRONLY | os.O_CREAT))"
    outcome = bounded(python(made), host, 60, timeout=50.0, limits=replace(harness.SMALL, wall_seconds=60.0))
    created = sum(event["e"] == "change" for event in outcome.events)
    assert created >= 100_000 or outcome.verdict.verdict != "clean"


def test_a_hundred_thousand_opens_are_all_recorded(host: Path) -> None:
    outcome = bounded([*PLAIN, "flood_opens"], host, 60, timeout=50.0, limits=replace(harness.SMALL, wall_seconds=60.0))
    assert outcome.status == 0
    opens = [str(event.get("x", event.get("n"))) for event in outcome.events if event["e"] == "open"]
    opened = sum(path.endswith("input/data.txt") for path in opens)
    assert opened >= 100_000
    assert outcome.verdict.verdict == "clean", outcome.verdict.reasons


def test_more_events_than_the_limit_is_never_clean(host: Path) -> None:
    outcome = bounded([*PLAIN, "flood_opens"], host, 30, limits=replace(harness.SMALL, events=2_000))
    assert "events" in limits_hit(outcome)
    assert outcome.verdict.verdict != "clean"


def test_a_gigabyte_of_output_is_cut_and_said(host: Path) -> None:
    flood = "import sys\nblock = b'x' * (1 << 20)\nfor _ in range(1024):\n sys.stdout.buffer.write(block)"
    outcome = bounded(python(flood), host, 40, timeout=30.0, limits=replace(harness.SMALL, output_bytes=1 << 20))
    assert len(outcome.stdout) <= 1 << 20
    assert "output" in limits_hit(outcome)


def test_binary_output_comes_out_as_it_is(host: Path) -> None:
    outcome = bounded(python("import sys; sys.stdout.buffer.write(bytes(range(256)) * 16)"), host, 15)
    assert outcome.stdout == bytes(range(256)) * 16
    assert outcome.verdict.verdict == "clean"


def test_a_fifo_without_a_writer_does_not_hang_the_supervisor(host: Path) -> None:
    text = (
        "import os, threading\nos.mkfifo('output/pipe')\n"
        "threading.Thread(target=lambda: open('output/pipe').read(), daemon=True).start()\n"
        "for _ in range(50): open('input/data.txt').read()\n"
        "print('alive', flush=True)\nos._exit(0)"
    )
    outcome = bounded(python(text), host, 15)
    assert outcome.stdout == b"alive\n"


def test_both_ends_of_a_fifo_meet(host: Path) -> None:
    text = (
        "import os, threading\nos.mkfifo('output/pipe')\n"
        "threading.Thread(target=lambda: open('output/pipe', 'w').write('met')).start()\n"
        "print(open('output/pipe').read())"
    )
    assert bounded(python(text), host, 15).stdout == b"met\n"


def test_a_program_that_hangs_is_ended_and_said(host: Path) -> None:
    outcome = bounded(python("import time; time.sleep(600)"), host, 15, timeout=1.0)
    assert outcome.status < 0
    assert outcome.verdict.verdict != "clean"


def test_a_program_that_spins_is_ended_at_the_wall_limit(host: Path) -> None:
    outcome = bounded(python("while True: pass"), host, 15, limits=replace(harness.SMALL, wall_seconds=1.0))
    assert "wall" in limits_hit(outcome)
    assert outcome.verdict.verdict != "clean"


def test_a_full_disk_is_bounded_and_said(host: Path) -> None:
    fill = "with open('output/big', 'wb') as f:\n for _ in range(1 << 12): f.write(b'x' * (1 << 20))"
    outcome = bounded(python(fill), host, 30, limits=replace(harness.SMALL, file_bytes=1 << 40))
    assert outcome.status != 0
    assert outcome.verdict.verdict != "clean"


def test_a_program_that_deletes_everything_it_can_leaves_the_host_as_it_was(host: Path) -> None:
    text = (
        "import os, shutil\nfor top in ('.', os.path.expanduser('~'), '/tmp', '/opt', '/usr', '/etc', '/var'):\n"
        " shutil.rmtree(top, ignore_errors=True)"
    )
    outcome = bounded(python(text), host, 60, timeout=50.0, limits=replace(harness.SMALL, wall_seconds=50.0))
    assert any(effect.kind == 17 for effect in outcome.verdict.forbidden)
    assert Path(harness.PYTHON).exists()


def test_a_program_that_deletes_its_own_file_is_still_judged(host: Path) -> None:
    outcome = bounded(["/bin/sh", "output/self.sh"], host, 15)
    script_seen = [e for e in outcome.events if e["e"] == "change" and str(e["x"]).endswith("output/self.sh")]
    assert [e["w"] for e in script_seen] == ["deleted"]


NAMES = [b"\xff\xfe", b"new\nline", b'tab\tquote"back\\slash', "ünï".encode(), b"\x01\x7f", b"a" * 255]


@pytest.mark.parametrize("name", NAMES)
def test_any_file_name_is_recorded_as_it_is(name: bytes, host: Path) -> None:
    outcome = bounded(python(f"open(b'output/' + {name!r}, 'wb').write(b'x')"), host, 15)
    paths = [os.fsencode(str(e["x"])) for e in outcome.events if e["e"] == "change" and e.get("k") == "file"]
    assert os.fsencode(host) + b"/output/" + name in paths


def test_a_path_longer_than_the_kernel_takes_fails_as_usual(host: Path) -> None:
    text = "import errno\ntry: open('./' * 2050 + 'x')\nexcept OSError as e: print(errno.errorcode[e.errno])"
    assert bounded(python(text), host, 15).stdout == b"ENAMETOOLONG\n"


def test_a_bad_pointer_fails_as_usual(host: Path) -> None:
    text = (
        "import ctypes, errno, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.syscall(257, -100, ctypes.c_void_p(8), 0, 0) == -1\nprint(errno.errorcode[ctypes.get_errno()])"
    )
    assert bounded(python(text), host, 15).stdout == b"EFAULT\n"


def test_signals_during_a_call_do_not_lose_it(host: Path) -> None:
    """Interval timers interrupt every call: each open still succeeds and is recorded once (crun#526, sandlock#235)."""
    text = (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, .001, .001)\n"
        "for _ in range(2000): open('input/data.txt').close()\nprint('done')"
    )
    outcome = bounded(python(text), host, 30)
    assert outcome.stdout == b"done\n"
    assert outcome.verdict.verdict == "clean"


def test_a_mount_point_that_the_world_made_is_no_change_of_the_candidates(host: Path) -> None:
    """Given where a copy-on-write tree of the host has no such directory, in which the world must create it."""
    shown = Mount(str(host / "package"), "/opt/some/package", "ro")
    outcome = bounded([*PLAIN, "twin_task"], host, 15, mounts=[shown])
    assert [e["x"] for e in outcome.events if e["e"] == "change" and str(e["x"]).startswith("/opt")] == []
    assert outcome.verdict.verdict == "clean", outcome.verdict.effects
